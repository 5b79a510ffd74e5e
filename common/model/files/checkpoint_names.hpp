// Where a model's parameters lie in a Hugging Face checkpoint: names of tensors, their shapes, and which elements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/model.hpp"
#include "common/model/parameters.hpp"

namespace plumb {

// `rows` · `columns` elements of a parameter from its element `first` on, row by row, in one tensor: element (row,
// column) is the tensor's element offset + row · row_step + column · column_step, both counted in the order of memory.
struct TensorPiece {
  std::string tensor = {};
  std::vector<std::int64_t> shape = {};  // of the whole tensor
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  std::int64_t offset = 0;
  std::int64_t row_step = 1;
  std::int64_t column_step = 1;
  bool operator==(const TensorPiece&) const = default;
};

// Values of `model_type` whose names are known, ascending. They are those of transformers' modules (each family's
// modeling_*.py): llama, mistral, qwen2 and qwen3 alike; experts one tensor each; GPT-2 with its matrices as [in, out]
// (Conv1D) and those of q, k and v in one; ViT.
[[nodiscard]] const std::vector<std::string>& checkpoint_families();

// Pieces that make up the parameter, in its order. Throws InputError where the model was read from no config.json, or
// from one of a family that is not among checkpoint_families, and RunError for a parameter that the family has not.
[[nodiscard]] std::vector<TensorPiece> checkpoint_pieces(const Model& model, const Parameter& parameter);

// What stands before all names but the head's: a checkpoint of the model without a head leaves it out.
[[nodiscard]] std::string checkpoint_prefix(const Model& model);

// Tensors that files have beside the parameters and transformers does not take from them: buffers of positions and
// masks, and a tied head.
[[nodiscard]] bool is_beside_parameters(const Model& model, std::string_view tensor);

// The module that PEFT knows the matrix `owner` ("layers.3.attention.q") by: "model.layers.3.self_attn.q_proj"; of
// experts that of expert number `expert`. Models without a known family are named as llama's; a part that these have in
// no such module, as of linear attention, is named alike. None: the family has the matrix in one with others, and PEFT
// one adapter for all.
[[nodiscard]] std::optional<std::string> adapter_module(const Model& model, std::string_view owner,
                                                        std::int64_t expert);
// Whether PEFT's models have their matrices as [in, out].
[[nodiscard]] bool has_transposed_matrices(const Model& model);

}  // namespace plumb
