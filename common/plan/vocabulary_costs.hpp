// What a plan's ranks take for their parts of a vocabulary that the pipeline divides (arXiv 2411.05288).
#pragma once

#include <vector>

#include "common/plan/plan.hpp"
#include "common/plan/plan_costs.hpp"

namespace plumb {

// A rank's part of the head and of the embedding, for one microbatch; all ranks have equal ones. A tied table is held
// with the embedding. With one barrier W of the head also scales its input by the whole softmax's statistics.
struct PartCosts {
  ComputeCost head;
  ComputeCost embedding;
};
[[nodiscard]] PartCosts part_costs(const Plan& plan, const Scenario& scenario);

// `scenario` with such a part as its model, whose head and embedding are the blocks 1 and 0. `scenario`: as the plan
// was made of, or its own.
[[nodiscard]] Scenario scenario_of_part(const Plan& plan, Scenario scenario);

// What their stages take, with what each takes once a step, in their order.
[[nodiscard]] std::vector<ComputeCost> part_stages(const Plan& plan, const PartCosts& parts, const StageGroups& groups);

// What joins them: of a tensor group among the ranks at the same place in it, which have the same tokens where these
// are divided. Hidden states are broadcast and added up over a ring, in which all ranks but one receive them; of
// tokens' statistics, three numbers in fp32, there is an all-reduce. With modules that predict more tokens all heads'
// go together.
[[nodiscard]] VocabularyCost vocabulary_cost(const Plan& plan);

// What each rank holds of its parts: states alone, and with what of a microbatch and the next one they keep, work with
// and exchange. Nothing where the vocabulary is not divided.
struct PartMemory {
  Bytes least = {};
  Bytes most = {};
};
[[nodiscard]] PartMemory part_memory(const Plan& plan);

}  // namespace plumb
