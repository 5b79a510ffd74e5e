// A model whose vocabulary is divided over the ranks of a pipeline (arXiv 2411.05288), as the two models that its costs
// are those of.
#pragma once

#include "common/model/model.hpp"

namespace plumb {

// Embedding and head are left with what is no part of the vocabulary: learned positions and the final norm.
[[nodiscard]] Model without_vocabulary(Model model);

// One of so many equal parts: an embedding and a head, without positions and final norm. A tied table is one table.
// `part`: of the two sorts of them.
[[nodiscard]] Model part_of_vocabulary(Model model, ModelPart part, int parts);

}  // namespace plumb
