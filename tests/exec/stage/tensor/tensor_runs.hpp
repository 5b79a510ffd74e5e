// Runs of tensor groups against one device and against what their placed blocks say.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/model/divided_vocabulary.hpp"
#include "exec/check/check.hpp"
#include "exec/check/shards.hpp"
#include "exec/stage/tensor/division.hpp"
#include "tests/catch.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/stage/pipelines.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec::test {

inline std::string describe_case(const Plan& plan) {
  return plan.name + ", " + describe(plan.layout) + (plan.training.precision == ElementType::bf16 ? ", bf16" : "");
}

inline NamedGradients whole(const Plan& plan, const std::vector<NamedGradients>& by_rank) {
  Shards shards(plan);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(shards.add(static_cast<int>(rank), by_rank[rank]) == "");
  }
  return std::move(shards).whole();
}

inline CheckResult checked(const Plan& plan, const TrainingRun& run) {
  return check_against_shared_reference(plan, Trained{.losses = run.losses,
                                                      .gradients = whole(plan, run.by_rank),
                                                      .weights = whole(plan, run.before),
                                                      .routing = whole(plan, run.routing)});
}

// Of a stage; where the pipeline divides the vocabulary, of models that its costs are those of.
inline std::vector<std::pair<Model, int>> blocks_of(const Plan& plan, int stage) {
  const bool divides = plan.schedule.vocabulary_barriers > 0;
  if (is_part(plan.schedule, stage)) {
    const bool head = sort_of_stage(plan.schedule, stage) == StageSort::head;
    return {{part_of_vocabulary(plan.model, sort_of_part(plan.layout), plan.layout.pipeline), head ? 1 : 0}};
  }
  const BlockRange range = blocks_of_stage(plan.split, stage);
  std::vector<std::pair<Model, int>> blocks;
  for (int block = range.first; block < range.last; ++block) {
    blocks.emplace_back(divides ? without_vocabulary(plan.model) : plan.model, block);
  }
  return blocks;
}

// What a rank receives in a step of its tensor group and parts of it, by their ranks: from the moves of its blocks.
inline std::map<std::vector<int>, double> predicted_bytes(const Plan& plan, int rank) {
  std::map<std::vector<int>, double> bytes;
  const std::vector<int> ranks = group(plan.layout, rank, MeshAxis::tensor);
  const int position = coordinates(plan.layout, rank).at(static_cast<std::size_t>(MeshAxis::tensor));
  const int place = lane_of(plan.layout, rank).pipeline_rank;
  const auto of = [&](const Mesh& mesh, Axes over) -> double& {
    std::vector<int> among;
    for (const int member : group(mesh, position, over)) among.push_back(ranks[static_cast<std::size_t>(member)]);
    return bytes[among];
  };
  for (const int stage : stages_of_rank(plan.schedule, place)) {
    const bool redone = recomputed_stages(plan.schedule)[static_cast<std::size_t>(stage)];
    for (const auto& [model, block] : blocks_of(plan, stage)) {
      const PlacedBlock placed = Division(model, block, plan.layout.tensor, plan.training).placed();
      for (const PlacedMove& move : placed.moves) {
        if (!move.move.collective) continue;
        const int times = plan.schedule.microbatches * (redone && move.phase == Phase::forward ? 2 : 1);
        of(placed.mesh, move.move.over) += received_bytes(placed, move, plan.training.precision) * times;
      }
      for (const PlacedWeight& weight : placed.weights) {
        for (const Move& move :
             moves(placed.mesh, weight.stored.whole, with_partial(weight.stored.placement, weight.gradient_partial),
                   weight.stored.placement)) {
          of(placed.mesh, move.over) += received_elements(placed.mesh, move) * 4;
        }
      }
    }
  }
  return bytes;
}

inline void require_predicted_bytes(const Plan& plan, const TrainingRun& run) {
  const auto steps = static_cast<double>(run.losses.size());
  for (std::size_t rank = 0; rank < run.in_group.size(); ++rank) {
    INFO("rank " << rank);
    const std::vector<int> ranks = group(plan.layout, static_cast<int>(rank), MeshAxis::tensor);
    std::map<std::vector<int>, double> measured;
    for (const auto& [among, bytes] : run.by_group[rank]) {
      if (std::ranges::includes(ranks, among)) measured[among] = static_cast<double>(bytes.value) / steps;
    }
    const std::map<std::vector<int>, double> predicted = predicted_bytes(plan, static_cast<int>(rank));
    CHECK(measured == predicted);
    double all = 0;
    for (const auto& [among, bytes] : predicted) all += bytes;
    CHECK(static_cast<double>(run.in_group[rank].value) == steps * all);
  }
}

inline void require_passed(const Plan& plan, const TrainingRun& run) {
  const CheckResult result = checked(plan, run);
  INFO(result.problem << " (" << result.worst_tensor << ": " << result.worst_error_ratio << ", mean "
                      << result.mean_error_ratio << ")");
  CHECK(result.passed);
  (void)whole(plan, run.weights);  // copies are equal
  require_predicted_bytes(plan, run);
}

// Of two steps, which pass; the run between threads.
inline TrainingRun require_same_bits_over_gloo(const Plan& plan) {
  TrainingRun between_threads = train(plan, 2);
  const TrainingRun over_gloo = train(plan, 2, transport_kinds().back().make);
  require_passed(plan, over_gloo);
  CHECK(over_gloo.losses == between_threads.losses);
  CHECK(over_gloo.by_rank == between_threads.by_rank);
  return between_threads;
}

}  // namespace plumb::exec::test
