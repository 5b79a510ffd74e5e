// Ranks that hold what a test says of a small model's tensors, saved and restored on threads.
#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "exec/checkpoint/restore.hpp"
#include "exec/checkpoint/save.hpp"
#include "exec/launch/launch.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/exec/checkpoint/stored_stage.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"

namespace plumb::exec::test {

inline Plan small_plan() { return training_plan({.model = llama(1), .schedule = "1f1b", .ranks = 1}); }

// One value for each element of each state, all different.
inline States drawn_states(const CheckpointIndex& index) {
  States states;
  float next = 0.25F;
  for (const auto& [name, tensor] : index.tensors) {
    const std::int64_t size =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    for (const StateKind kind : kinds_of(tensor, index.training.optimizer)) {
      std::vector<float>& values = states[{name, kind}];
      for (std::int64_t i = 0; i < size; ++i) values.push_back(next += 1.0F);
    }
  }
  return states;
}

using Stages = std::vector<std::unique_ptr<Stage>>;
// Of a rank: which elements of a whole tensor of so many it holds.
using Holding = std::function<IndexRanges(int rank, const std::string& weight, std::int64_t elements)>;

// With the values of `states`, or all zero.
inline Stages stages_of_rank(int rank, const CheckpointIndex& index, const Holding& holding, const States& states,
                             bool filled) {
  std::vector<StoredStage::Held> held;
  for (const auto& [state, values] : states) {
    StoredStage::Held mine{.weight = state.first, .kind = state.second};
    mine.ranges = holding(rank, state.first, static_cast<std::int64_t>(values.size()));
    if (index.tensors.at(state.first).frozen) mine.type = ElementType::bf16;
    for (const IndexRange& range : mine.ranges) {
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        mine.values.push_back(filled ? values[static_cast<std::size_t>(i)] : 0.0F);
      }
    }
    if (!mine.values.empty()) held.push_back(std::move(mine));
  }
  Stages stages;
  stages.push_back(nullptr);  // another rank's
  stages.push_back(std::make_unique<StoredStage>(std::move(held)));
  return stages;
}

inline void save_run(int ranks, const CheckpointIndex& index, const Holding& holding, const States& states,
                     const std::filesystem::path& folder, const std::vector<std::int64_t>& steps,
                     std::int64_t keep = 0) {
  run_on_threads(make_local_transports(ranks), [&](Transport& transport) {
    const Stages stages = stages_of_rank(transport.rank(), index, holding, states, true);
    CheckpointSaver saver(transport, stages, index, folder, keep);
    for (const std::int64_t step : steps) (void)saver.save(step);
  });
}

// Whole tensors on one rank.
inline IndexRanges all_of(int /*rank*/, const std::string& /*weight*/, std::int64_t elements) {
  return {{0, elements}};
}

}  // namespace plumb::exec::test
