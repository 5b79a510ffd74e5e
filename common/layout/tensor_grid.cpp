#include "common/layout/tensor_grid.hpp"

#include <variant>

#include "common/base/error.hpp"
#include "common/capability/capability.hpp"
#include "common/layout/layout_features.hpp"
#include "common/model/model_features.hpp"

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

  template <class Kind>
  void operator()(const Kind&) const {}  // that the table of capabilities refuses, or without a shape
  void operator()(const SoftmaxAttention& attention) const {
    require(attention.heads, "heads");
    require(attention.kv_heads, "kv_heads");
  }
  void operator()(const DenseMlp& mlp) const { require(mlp.width, "columns of an MLP (ffn)"); }

 private:
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
  UsedFeatures used{.set = FeatureSet().set(index_of(feature_of(tensor.kind)))};
  used.set.set(index_of(Feature::sequence_parallel), tensor.sequence_parallel);
  used.set.set(index_of(Feature::data_by_stage), has_stage_data(layout));
  require_none(refusals(used, Purpose::plan));
}

void require_divided_by_grid(const Model& model, const TensorLayout& tensor) {
  const UsedFeatures used{.set = features_of(model) | FeatureSet().set(index_of(feature_of(tensor.kind)))};
  for (const Refusal& refusal : refusals(used, Purpose::plan)) {
    throw InputError("layout", refusal.problem, refusal.hint);
  }
  const GridDivisor divisor(tensor);
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

void require_grid_microbatch(const TensorLayout& tensor, std::int64_t microbatch) {
  const auto undivided = undivided_microbatch(tensor, microbatch);
  if (!undivided) return;
  throw InputError("training", *undivided,
                   "microbatch: " + std::to_string(sequences_multiple(tensor)) + ", or a multiple of it");
}

}  // namespace plumb
