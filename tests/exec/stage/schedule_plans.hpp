// A small training plan for every schedule of the registry.
#pragma once

#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"

namespace plumb::exec::test {

// As many layers as the stages need.
inline Model hybrid_of(int stages) {
  Model model = hybrid();
  const std::vector<Layer> layers = model.layers;
  while (static_cast<int>(model.layers.size()) < stages) {
    model.layers.insert(model.layers.end(), layers.begin(), layers.end());
  }
  return model;
}

inline Plan plan_of(const ScheduleEntry& entry, int ranks, const Model& model) {
  const ScheduleShape shape = shape_for(entry, {.chunks = 2, .microbatches = 2 * ranks, .ranks = ranks});
  return training_plan({.model = model,
                        .schedule = entry.name,
                        .ranks = ranks,
                        .chunks = shape.chunks,
                        .microbatches = shape.microbatches,
                        .slices = shape.slices});
}

inline int layers_for(const ScheduleEntry& entry, int ranks) { return entry.uses_chunks ? 2 * ranks : ranks; }

inline Plan hybrid_plan(const ScheduleEntry& entry, int ranks) {
  return plan_of(entry, ranks, hybrid_of(layers_for(entry, ranks)));
}

// Of one kind of layer, a third of a hybrid's time: where it is the ranks' messages that differ.
inline Plan llama_plan(const ScheduleEntry& entry, int ranks) {
  return plan_of(entry, ranks, llama(layers_for(entry, ranks)));
}

}  // namespace plumb::exec::test
