// What a rank does for one block: computing and moving, step by step. Times, traffic, memory and unfolded graphs are
// evaluations of the same list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "common/cost/device_time.hpp"
#include "common/placement/placed_block.hpp"

namespace plumb {

// A collective that a site needs (common/placement): of which tensor, what for, over which axes of the mesh.
struct StepMove {
  std::string site = {};
  std::string tensor = {};
  Role role = Role::output;
  Collective collective = Collective::all_reduce;
  Axes over = {};
  double bytes = 0;     // of its larger side, on one rank
  double received = 0;  // bytes, by each rank
  int pieces = 1;       // it takes one of so many equal parts of the collective's time, whose `bytes` these are
  bool operator==(const StepMove&) const = default;
};

enum class StepKind : std::uint8_t { matmul, core, stream, move };
struct ProgramStep {
  std::string name = {};
  Phase phase = Phase::forward;
  StepKind kind = StepKind::stream;
  MatmulSizes matmul = {};  // of a matmul
  Flops flops = {};         // of a core
  double bytes = 0;         // streamed
  StepMove move = {};       // of a move
  bool redone = false;      // in F, and again where the attention is recomputed (selective)
  // Of a move: it runs on a stream of its own beside these steps, by their places in the list, and takes time only
  // beyond theirs; several beside the same follow one another there. All else waits for what stands before it in its
  // phase.
  std::vector<std::size_t> beside = {};
  bool operator==(const ProgramStep&) const = default;
};

// What an operation leaves for the backward, bytes on one rank.
struct KeptValue {
  double until_input_gradient = 0;
  double until_weight_gradient = 0;  // … from I on
  // What its own largest moment in F has beside all that is kept, and that in I; divided as its work is.
  double in_forward = 0;
  double in_input_gradient = 0;
  bool redone = false;  // selective recompute frees it behind F and makes it again
  bool operator==(const KeptValue&) const = default;
};

struct BlockProgram {
  std::vector<ProgramStep> steps = {};  // of a microbatch: F in this order, I and W against it
  std::vector<StepMove> once = {};      // of a step: gradients that stayed summands of the tensor group's ranks
  std::vector<KeptValue> kept = {};     // by operation
  bool operator==(const BlockProgram&) const = default;
};

}  // namespace plumb
