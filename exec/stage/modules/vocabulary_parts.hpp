// Blocks at the ends of a model whose vocabulary is divided over the pipeline (arXiv 2411.05288).
#pragma once

#include "exec/stage/modules/module.hpp"

namespace plumb::exec {

// What its stages keep that follow one another: positions are added to hidden states [batch, tokens, hidden] that the
// parts have looked up; and the final norm.
[[nodiscard]] Module make_positions(const ModuleContext& context);
[[nodiscard]] Module make_last_norm(const ModuleContext& context);

// A rank's part, the model's vocabulary being its rows and `part` its place: hidden states of its own tokens, zeros of
// others; and of the head its weights alone, with which exec/stage/head_part.hpp computes: no module.
[[nodiscard]] Module make_embedding_part(const ModuleContext& context, int part);
[[nodiscard]] Module make_head_part(const ModuleContext& context);

}  // namespace plumb::exec
