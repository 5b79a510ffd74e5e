// Whether what a run is going to hold fits into the memory that is there: asked before anything is allocated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"
#include "common/plan/plan.hpp"
#include "exec/host/host_identity.hpp"

namespace plumb::exec {

// Of whoever's files and machine the shapes are.
struct MemoryNeed {
  std::string where = {};     // the file or plan
  std::string what = {};      // who holds it: "its 8 ranks on this host"
  std::string made_for = {};  // machine_text
  Bytes bytes = {};
  std::string hint = {};
};
struct MemoryThere {
  std::string where = {};           // "this host (node7)"
  std::optional<Bytes> bytes = {};  // none: nobody knows, and nothing is refused
};

// Throws InputError in one line when there is less than what is needed.
void require_memory(const MemoryNeed& need, const MemoryThere& there);

// "dgx-h100 with H100 SXM5 80 GB".
[[nodiscard]] std::string machine_text(const Machine& machine);

// The host's, as require_memory takes it.
[[nodiscard]] MemoryThere memory_of_host(const HostIdentity& host = {});

// What these ranks of the plans' layouts hold at their worst moments, as the plans predict: the states of all plans,
// which alternate, and the most that one of them has beside.
[[nodiscard]] Bytes memory_of_ranks(const std::vector<const Plan*>& plans, const std::vector<int>& ranks);

// Of these the weights and the optimizer's states, without gradients and what comes and goes.
[[nodiscard]] Bytes states_of_ranks(const Plan& plan, const std::vector<int>& ranks);

}  // namespace plumb::exec
