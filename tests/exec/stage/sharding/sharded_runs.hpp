// Trainings whose data-parallel ranks share out states, gradients or weights, and what is asked of them.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "exec/stage/primitives/block_parameters.hpp"
#include "tests/catch.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/commands/sessions.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec::test {

struct Rule {
  Sharding sharding;
  bool by_block = false;  // gathers weights in each action
  bool each_microbatch = false;
  bool beside = true;
  int shard = 1;  // of hsdp
  int prefetch = 1;
  int layers_per_unit = 1;
};

inline Plan sharded(Plan plan, const Rule& rule) {
  DataLayout& data = plan.layout.data;
  data.sharding = rule.sharding;
  data.reshard_after_forward = rule.by_block;
  data.reduces_each_microbatch = rule.each_microbatch;
  data.prefetch = rule.prefetch;
  data.layers_per_unit = rule.layers_per_unit;
  data.shard = rule.shard;
  data.replicate = rule.sharding == Sharding::hsdp ? data.degree / rule.shard : 1;
  plan.software.data_overlap = rule.beside;
  plan.software.data_bucket = {.bytes = {5000}};
  return plan;
}

inline std::string text(const Plan& plan) {
  const DataLayout& data = plan.layout.data;
  return plan.name + ", " + describe(plan.layout) + (data.reshard_after_forward ? ", by block" : "") +
         (data.reduces_each_microbatch ? ", each microbatch" : "");
}

struct Outcome {
  SessionLogs logs;
  std::vector<double> losses;
};

inline Outcome train(const Plan& plan, int steps, const TransportKind& kind = transport_kinds().front()) {
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  SessionOptions options = checked_steps(kind, steps);
  options.gathers_weights = true;
  Outcome made{.logs = train_session(kind, {prepared}, options), .losses = {}};
  made.losses = losses_of(prepared, made.logs.ranks.front());
  return made;
}

inline void require_same_bits(const Outcome& one, const Outcome& other) {
  CHECK(one.logs.different_copy.empty());
  CHECK(one.losses == other.losses);
  CHECK(one.logs.weights == other.logs.weights);
  CHECK(one.logs.checked.gradients == other.logs.checked.gradients);
}

inline void require_passed(const Plan& plan, const Outcome& run) {
  Trained trained = run.logs.checked;
  trained.losses = run.losses;
  const CheckResult result = check_against_shared_reference(plan, trained);
  INFO(result.problem << " (" << result.worst_tensor << ": " << result.worst_error_ratio << ")");
  CHECK(result.passed);
  CHECK(run.logs.different_copy.empty());
}

// Parts of a weight, by the rule written out anew: element i is of part i % n, but in order.
inline std::int64_t own_elements(std::int64_t elements, int ranks, int position) {
  return elements / ranks + (position < elements % ranks ? 1 : 0);
}

inline std::int64_t elements_of(const Parameter& parameter) {
  return std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::int64_t{1}, std::multiplies());
}

}  // namespace plumb::exec::test
