#include "common/layout/tensor_grid.hpp"

#include <variant>

#include "common/base/error.hpp"

namespace plumb {
namespace {

bool is_cube(const TensorLayout& tensor) { return tensor.kind == TensorKind::three_d; }
int depth_of(const TensorLayout& tensor) { return tensor.kind == TensorKind::two_and_half_d ? tensor.depth : 1; }

std::int64_t grid_ranks(const TensorLayout& tensor, std::int64_t q) {
  return is_cube(tensor) ? q * q * q : q * q * depth_of(tensor);
}

// The largest side whose grid has no more ranks than the degree.
std::int64_t side_below(const TensorLayout& tensor) {
  std::int64_t q = 0;
  while (grid_ranks(tensor, q + 1) <= tensor.degree) ++q;
  return q;
}

std::string ranks_wanted(const TensorLayout& tensor) {
  if (is_cube(tensor)) return "q³";
  return tensor.kind == TensorKind::two_and_half_d ? std::to_string(tensor.depth) + "·q²" : "q²";
}

std::string with_degree(const TensorLayout& tensor) {
  return "a " + grid_text(tensor) + (tensor.kind == TensorKind::two_and_half_d ? " and" : " of") + " degree " +
         std::to_string(tensor.degree);
}

// Each dimension of a weight is divided by one axis of the grid as the layer's product reads it, and one of the two by
// another axis as it is stored. All sides are alike but for 2.5d's depth, which divides no weight: in 2d and 2.5d the
// other axis is the other dimension's, so q ranks divide each; in 3d both may divide one.
class GridDivisor {
 public:
  explicit GridDivisor(const TensorLayout& tensor) : tensor_(tensor), grid_(tensor_grid(tensor)) {}

  void require(std::int64_t size, const char* name) const {
    const std::int64_t ways = std::int64_t{grid_.column} * (is_cube(tensor_) ? grid_.row : 1);
    if (size % ways == 0) return;
    const std::int64_t below = size / ways * ways;
    throw InputError("layout",
                     with_degree(tensor_) + " divides each shape of a weight among " + std::to_string(ways) +
                         " ranks, which do not divide " + std::to_string(size) + " " + name,
                     (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + ways) +
                         ", another degree, or kind: 1d");
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& instead) const {
    throw InputError("layout", what + " cannot be planned in a " + grid_text(tensor_) + " yet",
                     instead + ", or kind: 1d");
  }

  void operator()(std::monostate) const {}
  void operator()(const SoftmaxAttention& attention) const {
    require(attention.heads, "heads");
    require(attention.kv_heads, "kv_heads");
  }
  void operator()(const LatentAttention&) const { refuse("latent attention", softmax); }
  void operator()(const GatedDelta&) const { refuse("the gated delta rule (linear)", softmax); }
  void operator()(const ChannelGatedDelta&) const { refuse("the channel-wise gated delta rule", softmax); }
  void operator()(const Lightning&) const { refuse("lightning attention", softmax); }
  void operator()(const Mamba&) const { refuse("Mamba", softmax); }
  void operator()(const Mamba2&) const { refuse("Mamba-2", softmax); }
  void operator()(const DenseMlp& mlp) const { require(mlp.width, "columns of an MLP (ffn)"); }
  void operator()(const MoeMlp&) const { refuse("a mixture of experts", "dense MLPs"); }

 private:
  static constexpr const char* softmax = "softmax attention (full or sliding)";
  const TensorLayout& tensor_;
  TensorGrid grid_;
};

}  // namespace

std::optional<TensorGrid> find_grid(const TensorLayout& tensor) {
  const std::int64_t q = side_below(tensor);
  if (q == 0 || grid_ranks(tensor, q) != tensor.degree) return std::nullopt;
  const auto side = static_cast<int>(q);
  return TensorGrid{.column = side, .row = side, .depth = is_cube(tensor) ? side : depth_of(tensor)};
}

TensorGrid tensor_grid(const TensorLayout& tensor) {
  if (const auto grid = find_grid(tensor)) return *grid;
  const std::int64_t q = side_below(tensor);
  const std::string below = q > 0 ? std::to_string(grid_ranks(tensor, q)) + " or " : "";
  throw InputError(
      "layout.tensor.degree",
      "a " + grid_text(tensor) + " needs " + ranks_wanted(tensor) + " ranks, not " + std::to_string(tensor.degree),
      "degree: " + below + std::to_string(grid_ranks(tensor, q + 1)));
}

const std::string& name_of(TensorKind kind) { return tensor_kind_names().at(static_cast<std::size_t>(kind)); }

std::string grid_text(const TensorLayout& tensor) {
  const std::string name = name_of(tensor.kind) + " tensor layout";
  return tensor.kind == TensorKind::two_and_half_d ? name + " of depth " + std::to_string(tensor.depth) : name;
}

void require_grid(const Layout& layout) {
  const TensorLayout& tensor = layout.tensor;
  if (tensor.kind != TensorKind::two_and_half_d && tensor.depth != 1) {
    throw InputError("layout", "a " + grid_text(tensor) + " has no depth", "kind: 2.5d, or no depth");
  }
  if (!is_grid(tensor)) return;
  if (tensor.depth < 1) throw InputError("layout", "the depth of a 2.5d tensor layout must be at least 1");
  (void)tensor_grid(tensor);
  if (tensor.sequence_parallel) {
    throw InputError("layout",
                     "a " + grid_text(tensor) + " divides hidden states already: sequence parallelism is of kind 1d",
                     "sequence_parallel: false");
  }
  if (has_stage_data(layout)) {
    throw InputError("layout",
                     "stages with different data degrees cannot be planned with a " + grid_text(tensor) + " yet",
                     "kind: 1d, or one data degree");
  }
}

void require_divided_by_grid(const Model& model, const TensorLayout& tensor) {
  const GridDivisor divisor(tensor);
  if (model.vision) divisor.refuse("a model of images", "a model of text");
  if (model.mtp_modules > 0) divisor.refuse("multi-token prediction", "a model without it");
  if (model.tied_embeddings) {
    // Its two placements differ: as the embedding's the vocabulary is divided by the row, as the head's by the column.
    divisor.refuse("a tied embedding's table", "tied_embeddings: false");
  }
  divisor.require(model.hidden, "hidden channels");
  divisor.require(model.vocabulary, "tokens of the vocabulary");
  for (const Layer& layer : model.layers) {
    std::visit(divisor, layer.mixer);
    std::visit(divisor, layer.mlp);
  }
}

std::int64_t sequences_multiple(const TensorLayout& tensor) {
  if (!is_grid(tensor)) return 1;
  const TensorGrid grid = tensor_grid(tensor);
  return std::int64_t{grid.row} * grid.depth;  // of 3d also row · column, which is as many
}

std::optional<std::string> undivided_microbatch(const TensorLayout& tensor, std::int64_t microbatch) {
  const std::int64_t multiple = sequences_multiple(tensor);
  if (microbatch % multiple == 0) return std::nullopt;
  return with_degree(tensor) + " divides the sequences of a microbatch among " + std::to_string(multiple) +
         " ranks, which do not divide " + std::to_string(microbatch);
}

}  // namespace plumb
