// The grid of ranks of a 2d, 2.5d or 3d tensor layout, and what it must divide of a model and a microbatch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "common/layout/layout.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Between blocks each rank has its part of the hidden states alone: of tokens, or of sequences and channels.
[[nodiscard]] constexpr bool divides_hidden_states(const TensorLayout& tensor) {
  return divides_tokens(tensor) || (is_grid(tensor) && tensor.degree > 1);
}

// Whether ranks compute with parts of what one device has whole: of a tensor group, or, of the vocabulary, of a
// pipeline.
[[nodiscard]] inline bool divides_tensors(const Layout& layout) {
  return layout.tensor.degree > 1 || layout.vocabulary_barriers > 0;
}

// What its ranks have of a vocabulary over the pipeline. With one barrier the softmax's gradient is scaled when all
// parts' statistics are there, the targets' rows are not: a tensor group adds each up by itself.
[[nodiscard]] inline ModelPart sort_of_part(const Layout& layout) {
  const bool apart = layout.vocabulary_barriers == 1 && layout.tensor.degree > 1;
  return apart ? ModelPart::vocabulary_and_target_rows : ModelPart::vocabulary;
}

// Ranks along each of its axes, innermost first; all alike in 3d, the first two in 2d and 2.5d.
struct TensorGrid {
  int column = 1;
  int row = 1;
  int depth = 1;
  bool operator==(const TensorGrid&) const = default;
};
// Of a layout of a kind other than 1d, of a depth of at least 1; none: the degree is not q² (2d), depth·q² (2.5d) or q³
// (3d).
[[nodiscard]] std::optional<TensorGrid> find_grid(const TensorLayout& tensor);
// The same; throws InputError (where = "layout.tensor.degree") where there is none, with the degrees beside it.
[[nodiscard]] TensorGrid tensor_grid(const TensorLayout& tensor);

inline constexpr std::array all_tensor_kinds = {TensorKind::one_d, TensorKind::two_d, TensorKind::two_and_half_d,
                                                TensorKind::three_d};
// Whose products can go in panels beside their moves (common/program/decomposed.hpp), where the layout is asynchronous.
[[nodiscard]] constexpr bool has_panels(TensorKind kind) {
  return kind == TensorKind::two_d || kind == TensorKind::two_and_half_d;
}
// Whether its moves can be asynchronous: of panels, or of tokens.
[[nodiscard]] constexpr bool goes_in_pieces(const TensorLayout& tensor) {
  return is_grid(tensor) ? has_panels(tensor.kind) : tensor.sequence_parallel;
}
// "1d", "2.5d".
[[nodiscard]] const std::string& name_of(TensorKind kind);
// "2d tensor layout", "2.5d tensor layout of depth 2".
[[nodiscard]] std::string grid_text(const TensorLayout& tensor);

// Throws InputError for what the kind cannot have: a degree that is no grid (where = "layout.tensor.degree"); a depth
// but of 2.5d, sequence parallelism (hidden states are divided already), data degrees by stage (where = "layout").
void require_grid(const Layout& layout);

// Throws InputError (where = "layout") that names the first shape of the model that the grid does not divide (hidden,
// heads, kv_heads, columns of an MLP, the vocabulary), or a feature of the model that cannot be planned in such a
// layout.
void require_divided_by_grid(const Model& model, const TensorLayout& tensor);

// Of how many sequences a microbatch must be a multiple: the axes of a grid divide the batch, too.
[[nodiscard]] std::int64_t sequences_multiple(const TensorLayout& tensor);
// Problem of a microbatch on each data-parallel rank that cannot be divided so; nullopt if it can.
[[nodiscard]] std::optional<std::string> undivided_microbatch(const TensorLayout& tensor, std::int64_t microbatch);
// Throws InputError (where = "training") for such a microbatch.
void require_grid_microbatch(const TensorLayout& tensor, std::int64_t microbatch);

}  // namespace plumb
