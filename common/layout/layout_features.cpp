#include "common/layout/layout_features.hpp"

#include <algorithm>
#include <vector>

#include "common/layout/sharding.hpp"
#include "common/layout/tensor_grid.hpp"

namespace plumb {
namespace {

class Set {
 public:
  void add_if(bool found, Feature feature) {
    if (found) set_.set(index_of(feature));
  }
  [[nodiscard]] const FeatureSet& all() const { return set_; }
  void add(const FeatureSet& more) { set_ |= more; }

 private:
  FeatureSet set_;
};

// Returns the order of the axes above one; nullopt if fewer than two are.
std::optional<Feature> order_feature(const Layout& layout) {
  std::vector<MeshAxis> axes;
  for (const MeshAxis axis : layout.order) {
    if (degree(layout, axis) > 1) axes.push_back(axis);
  }
  if (axes.size() < 2) return std::nullopt;
  const auto tensor = std::ranges::find(axes, MeshAxis::tensor);
  if (tensor != axes.end() && tensor != axes.begin()) return Feature::other_order;
  const auto pipeline = std::ranges::find(axes, MeshAxis::pipeline);
  const auto data = std::ranges::find(axes, MeshAxis::data);
  if (pipeline == axes.end() || data == axes.end()) return std::nullopt;
  return data < pipeline ? Feature::data_before_pipeline : Feature::pipeline_before_data;
}

void add_sharding(const Layout& layout, Set& set) {
  const DataLayout& data = layout.data;
  const bool shares = state_shards(layout) > 1;
  if (const auto sharding = feature_of(data.sharding); shares && sharding) set.add_if(true, *sharding);
  set.add_if(!shards_weights(layout), Feature::whole_weights);
  set.add_if(shards_weights(layout) && !gathers_in_actions(layout), Feature::gathered_once);
  set.add_if(shares && may_reduce_each_microbatch(data.sharding) && !reduces_in_actions(layout), Feature::reduced_once);
  set.add_if(data.prefetch > 1, Feature::prefetch);
  set.add_if(data.layers_per_unit > 1, Feature::layers_per_unit);
  set.add_if(data.quantized_weights, Feature::quantized_weights);
  set.add_if(data.secondary_shard > 0, Feature::secondary_shard);
  set.add_if(data.quantized_gradients > 0, Feature::quantized_gradients);
}

}  // namespace

Feature feature_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::two_d:
      return Feature::tensor_2d;
    case TensorKind::two_and_half_d:
      return Feature::tensor_2_5d;
    case TensorKind::three_d:
      return Feature::tensor_3d;
    case TensorKind::one_d:
      break;
  }
  return Feature::tensor_1d;
}

std::optional<Feature> feature_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::zero1:
      return Feature::zero1;
    case Sharding::zero2:
      return Feature::zero2;
    case Sharding::zero3:
      return Feature::zero3;
    case Sharding::fsdp:
      return Feature::fsdp;
    case Sharding::hsdp:
      return Feature::hsdp;
    case Sharding::none:
      break;
  }
  return std::nullopt;
}

FeatureSet features_of(const TensorLayout& tensor) {
  Set set;
  if (tensor.degree == 1) return set.all();
  set.add_if(true, feature_of(tensor.kind));
  set.add_if(tensor.sequence_parallel, Feature::sequence_parallel);
  set.add_if(tensor.asynchronous, is_grid(tensor) ? Feature::panels : Feature::asynchronous_tokens);
  return set.all();
}

FeatureSet features_of(const Layout& layout) {
  Set set;
  set.add(features_of(layout.tensor));
  set.add_if(layout.pipeline > 1, Feature::pipeline);
  set.add_if(layout.data.degree > 1, Feature::data_parallel);
  set.add_if(layout.context > 1, Feature::context);
  set.add_if(layout.expert > 1, Feature::expert);
  set.add_if(has_stage_data(layout), Feature::data_by_stage);
  set.add_if(layout.vocabulary_barriers > 0, Feature::vocabulary_parallel);
  if (const auto order = order_feature(layout)) set.add_if(true, *order);
  add_sharding(layout, set);
  return set.all();
}

}  // namespace plumb
