// Plans of grids of ranks (2d to 3d), and models that they divide.
#pragma once

#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"

namespace plumb::exec::test {

struct Grid {
  TensorKind kind;
  int degree;
  int depth = 1;
  int microbatch = 2;  // sequences, of which each rank has some
  bool reshard = false;
  bool panels = false;
};
inline const Grid square{TensorKind::two_d, 4};
inline const Grid deep{TensorKind::two_and_half_d, 8, 2, 4};

// Grouped queries, full and in a window; SwiGLU and RMSNorm.
inline Model grouped(int layers) {
  Model model = llama(layers);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    auto& attention = std::get<SoftmaxAttention>(model.layers[layer].mixer);
    attention.heads = 8;
    attention.kv_heads = 4;
    if (layer % 2 == 0) continue;
    attention.window = 16;
    attention.qk_norm = true;
  }
  return model;
}

// Biases, LayerNorm, learned positions, GELU.
inline Model biased(int layers) { return gpt2(layers, false); }

inline Plan plan_of(const Model& model, const Grid& grid, const char* schedule, int ranks,
                    ElementType precision = ElementType::fp32) {
  Plan plan = training_plan({.model = model,
                             .schedule = schedule,
                             .ranks = ranks,
                             .microbatches = ranks == 1 ? 2 : 4,
                             .precision = precision,
                             .tensor = grid.degree,
                             .kind = grid.kind,
                             .depth = grid.depth,
                             .microbatch = grid.microbatch,
                             .asynchronous = grid.panels});
  plan.layout.tensor.reshard_after_forward = grid.reshard;
  return plan;
}

}  // namespace plumb::exec::test
