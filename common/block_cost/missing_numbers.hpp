// Which numbers of its machine a scenario's prediction stands on, so that none of them is made up where it is missing.
#pragma once

#include <string>
#include <vector>

#include "common/scenario/scenario.hpp"

namespace plumb {

// A number that is needed and that the machine's file leaves out.
struct MissingNumber {
  std::string key = {};     // "attention_efficiency", as in a machine's file
  bool of_device = false;   // it stands in the file's `device` block, else at its top
  std::string needed = {};  // "for fused attention": by what of the scenario
  std::string line = {};    // what to write there
};

// All of them, in the order of a machine's file; none: the machine has all that the scenario needs. A number is missing
// where it is zero and has no source: what a file gives has one, also a zero.
//
// CUDA devices need `multiprocessors`, `matmul_depth`, `kernel_gap`, `launch_time` and `framework_memory`, unless the
// scenario gives the memory that a rank may use; `attention_efficiency` where a kernel of the model is fused attention
// or a recurrence; `message_multiprocessors` where a pipeline sends messages. Any layout with groups of several tensor-
// or data-parallel ranks needs the three numbers of collectives. CPU machines have stand-ins for all of these, which a
// profile replaces (common/cluster/machine_yaml.hpp), and a profile replaces those of the device but its memory.
[[nodiscard]] std::vector<MissingNumber> missing_numbers(const Scenario& scenario);

// "machine x has no 'kernel_gap', which is needed between …; no 'launch_time', …": of at least one.
[[nodiscard]] std::string problem_of(const std::vector<MissingNumber>& missing, const std::string& machine);

// Where to write them, and what: "its device block: kernel_gap: {…}", of several a line each.
[[nodiscard]] std::string lines_of(const std::vector<MissingNumber>& missing);

}  // namespace plumb
