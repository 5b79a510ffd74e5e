// Blocks at the ends of a model whose vocabulary is divided over the pipeline (arXiv 2411.05288).
#pragma once

#include "exec/stage/modules/module.hpp"
#include "exec/stage/vocabulary/part_rows.hpp"

namespace plumb::exec {

// What its stages keep that follow one another: positions are added to hidden states [batch, tokens, hidden] that the
// parts have looked up; and the final norm.
[[nodiscard]] Module make_positions(const ModuleContext& context);
[[nodiscard]] Module make_last_norm(const ModuleContext& context);

// Of the whole vocabulary the first row that a rank has: of its pipeline rank's part, or of that its place in the
// tensor group, if there is one.
[[nodiscard]] std::int64_t first_row_of_part(const Model& whole, const VocabularyPart& part, const Divided* divided);

// A rank's part, the model's vocabulary being its rows from `first_row` on: hidden states of its own tokens, zeros of
// others, added up over the tensor group; and of the head its weights alone, with which exec/stage/head_part.hpp
// computes: no module.
[[nodiscard]] Module make_embedding_part(const ModuleContext& context, std::int64_t first_row);
[[nodiscard]] Module make_head_part(const ModuleContext& context);

}  // namespace plumb::exec
