// A whole model as one stage over a made-up text, and one step of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/data/data.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec::test {

inline std::shared_ptr<const Corpus> some_text() {
  std::string text;
  for (unsigned int i = 0, state = 7; i < 4000; ++i) {
    state = state * 1664525U + 1013904223U;
    text.push_back(static_cast<char>(state >> 24U));
  }
  return std::make_shared<const Corpus>(text);
}

inline const Numerics fp64{.compute = at::kDouble, .gradient = at::kDouble, .rounding = at::kFloat};

inline constexpr int sequences = 2;  // microbatches, of two sequences each

inline TorchStageSettings whole(const Model& model, std::int64_t sequence, const Numerics& numerics, int slices = 1) {
  Training training;
  training.sequence = sequence;
  training.global_batch = 2 * sequences;
  training.microbatch = 2;
  return {.model = model,
          .training = training,
          .blocks = {.first = 0, .last = static_cast<int>(model.layers.size()) + 2},
          .microbatches = sequences * slices,
          .slices = slices,
          .numerics = numerics};
}

// In slices of so many tokens.
inline TorchStageSettings in_slices(TorchStageSettings settings, const std::vector<std::int64_t>& tokens) {
  settings.slices = static_cast<int>(tokens.size());
  settings.microbatches = sequences * settings.slices;
  settings.slice_tokens = tokens;
  return settings;
}

// Trains one step, one microbatch after the other: F of its slices, then I and W of them in reverse. The mean loss.
inline double train_step(TorchStage& stage, int slices = 1, bool recomputed = false) {
  stage.begin_step(0);
  for (int first = 0; first < sequences * slices; first += slices) {
    for (int slice = first; slice < first + slices; ++slice) (void)stage.forward(slice, {});
    for (int slice = first + slices; slice-- > first;) {
      if (recomputed) stage.recompute(slice);
      (void)stage.input_gradient(slice, {});
      stage.weight_gradient(slice);
    }
  }
  stage.end_step();
  stage.sum_tied_gradients();
  return stage.loss();
}

}  // namespace plumb::exec::test
