#include "exec/stage/tensor/division.hpp"

#include <algorithm>
#include <variant>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

const Extent& extent_of(const Shape& shape, Dim dim) {
  const auto found = std::ranges::find(shape, dim, &Extent::dim);
  if (found == shape.end()) throw RunError("placement", "a shape without the dimension " + std::string(name_of(dim)));
  return *found;
}

std::int64_t size_in(const Shape& shape, Dim dim) { return extent_of(shape, dim).size; }

}  // namespace

Division::Division(const Model& model, int block, const TensorLayout& tensor, const Training& training, int position)
    : placed_(place_block(model, static_cast<std::size_t>(block), tensor,
                          {.sequences = training.microbatch, .sequence = training.sequence})),
      position_(position) {
  const bool is_layer = block > 0 && block <= static_cast<int>(model.layers.size());
  const std::string prefix = is_layer ? layer_prefix(static_cast<std::size_t>(block) - 1) : "";
  for (const PlacedWeight& weight : placed_.weights) {
    const std::string& name = weight.stored.whole.name;
    const bool shared = model.tied_embeddings && name == "head.weight";
    weights_.emplace(shared ? "embedding.weight" : prefix + name, weight);
  }
}

const PlacedWeight& Division::weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) throw RunError("parameter " + name, "no site of its block has it");
  return found->second;
}

// A parameter's dimension may hold several of the placement's: [heads · channels, hidden].
std::vector<std::int64_t> Division::local_shape(const Parameter& whole) const {
  const PlacedTensor& stored = weight(whole.name).stored;
  std::vector<std::int64_t> local;
  std::size_t at = 0;
  for (const std::int64_t size : whole.shape) {
    std::int64_t all = 1;
    std::int64_t mine = 1;
    for (; all < size && at < stored.local.size(); ++at) {
      all *= stored.whole.shape[at].size;
      mine *= stored.local[at].size;
    }
    if (all != size)
      throw RunError("parameter " + whole.name, "its site has the shape " + describe(stored.whole.shape));
    local.push_back(mine);
  }
  return local;
}

std::vector<IndexRange> Division::owned(const std::string& name) const {
  const PlacedTensor& stored = weight(name).stored;
  return owned_elements(placed_.mesh, stored.whole.shape, stored.placement, position_);
}

std::int64_t Division::elements(const std::string& name) const {
  return plumb::elements(weight(name).stored.whole.shape);
}

std::vector<std::string> Division::names() const {
  std::vector<std::string> all;
  for (const auto& [name, weight] : weights_) all.push_back(name);
  return all;
}

std::vector<int> Division::summands(const std::string& name) const {
  const Axes over = weight(name).gradient_partial;
  return is_empty(over) ? std::vector<int>{} : group(placed_.mesh, position_, over);
}

std::int64_t Division::local_size(std::string_view site, Dim dim) const {
  return size_in(site_of(placed_, site).outputs.front().local, dim);
}

std::int64_t Division::vocabulary() const {
  for (const PlacedWeight& weight : placed_.weights) {
    if (has(weight.stored.local, Dim::vocabulary)) return size_in(weight.stored.local, Dim::vocabulary);
  }
  throw RunError("placement", "a block without a vocabulary");
}

// Where a block reads a microbatch's tokens or targets: the look-up of an embedding, the loss of a head.
const PlacedSite& Division::end_of_model() const {
  const auto is_end = [](const PlacedSite& site) {
    return site.kind == OperationKind::lookup || site.kind == OperationKind::loss;
  };
  const auto found = std::ranges::find_if(placed_.sites, is_end);
  if (found == placed_.sites.end()) throw RunError("placement", "a block that reads neither tokens nor targets");
  return *found;
}

IndexRange Division::range_of(const PlacedTensor& tensor, Dim dim) const {
  return plumb::owned(placed_.mesh, extent_of(tensor.whole.shape, dim), tensor.placement, position_).front();
}

std::int64_t Division::first_of_vocabulary() const {
  const PlacedSite& site = end_of_model();
  const bool reads_table = site.kind == OperationKind::lookup;
  return range_of(reads_table ? site.weights.front() : site.inputs.front(), Dim::vocabulary).begin;
}

IndexRange Division::sequences() const { return range_of(end_of_model().inputs.front(), Dim::batch); }

// Before it is gathered.
Shape Division::stored_input(const PlacedSite& site) const {
  const PlacedTensor& input = site.inputs.front();
  const PlacedMove* const gathered = find_move(placed_, Phase::forward, Role::input, input.whole.name);
  return gathered == nullptr ? input.local : plumb::local_shape(placed_.mesh, input.whole, gathered->move.from);
}

std::vector<std::int64_t> Division::hidden_states() const {
  const PlacedSite& first = placed_.sites.front();
  const bool makes_them = first.kind == OperationKind::lookup;
  const Shape local = makes_them ? placed_.sites.back().kept.front().local : stored_input(first);
  return {size_in(local, Dim::batch), size_in(local, Dim::sequence), size_in(local, Dim::hidden)};
}

Layer Division::local(Layer layer) const {
  if (auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer)) {
    attention->heads = local_size("attention.q", Dim::heads);
    attention->kv_heads = local_size("attention.k", Dim::kv_heads);
  }
  if (auto* delta = std::get_if<GatedDelta>(&layer.mixer)) {
    delta->key_heads = local_size("linear.k", Dim::kv_heads);
    delta->value_heads = local_size("linear.v", Dim::heads);
  }
  if (auto* dense = std::get_if<DenseMlp>(&layer.mlp)) dense->width = local_size("mlp.up", Dim::width);
  if (auto* moe = std::get_if<MoeMlp>(&layer.mlp)) {
    moe->width = local_size("mlp.experts.up", Dim::width);
    if (moe->shared_width > 0) moe->shared_width = local_size("mlp.shared.up", Dim::width);
  }
  return layer;
}

std::set<std::string> copies_of_lower_ranks(const Model& model, int block, const TensorLayout& tensor,
                                            const Training& training, int position) {
  const Division own(model, block, tensor, training, position);
  std::set<std::string> copies;
  for (int lower = 0; lower < position; ++lower) {
    const Division other(model, block, tensor, training, lower);
    for (const std::string& name : own.names()) {
      if (other.owned(name) == own.owned(name)) copies.insert(name);
    }
  }
  return copies;
}

}  // namespace plumb::exec
