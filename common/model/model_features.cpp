#include "common/model/model_features.hpp"

#include <variant>

namespace plumb {
namespace {

// Adds the features of one kind of mixer or MLP.
class KindFeatures {
 public:
  explicit KindFeatures(FeatureSet& set) : set_(set) {}

  void operator()(const std::monostate&) const {}
  void operator()(const SoftmaxAttention& attention) const {
    add(attention.window ? Feature::sliding_attention : Feature::full_attention);
    if (!attention.causal) add(Feature::bidirectional_attention);
    if (!attention.causal && attention.window) add(Feature::bidirectional_window);
    if (attention.sinks) add(Feature::attention_sinks);
    if (attention.value_dim != attention.head_dim) add(Feature::other_value_size);
  }
  void operator()(const LatentAttention&) const { add(Feature::latent_attention); }
  void operator()(const GatedDelta&) const { add(Feature::gated_delta); }
  void operator()(const ChannelGatedDelta&) const { add(Feature::channel_gated_delta); }
  void operator()(const Lightning&) const { add(Feature::lightning); }
  void operator()(const Mamba&) const { add(Feature::mamba); }
  void operator()(const Mamba2&) const { add(Feature::mamba2); }
  void operator()(const DenseMlp& mlp) const {
    add(Feature::dense_mlp);
    if (mlp.activation == Activation::geglu) add(Feature::geglu);
    if (mlp.activation == Activation::relu2) add(Feature::relu2);
  }
  void operator()(const MoeMlp& moe) const {
    add(Feature::experts);
    if (moe.activation != Activation::swiglu) add(Feature::other_expert_activation);
    if (moe.router_bias || moe.expert_bias) add(Feature::expert_biases);
  }

 private:
  void add(Feature feature) const { set_.set(index_of(feature)); }
  FeatureSet& set_;
};

}  // namespace

FeatureSet features_of(const Layer& layer) {
  FeatureSet set;
  std::visit(KindFeatures(set), layer.mixer);
  std::visit(KindFeatures(set), layer.mlp);
  if (layer.parallel && std::holds_alternative<MoeMlp>(layer.mlp)) set.set(index_of(Feature::parallel_experts));
  return set;
}

FeatureSet features_of(const Model& model) {
  FeatureSet set;
  for (const Layer& layer : model.layers) set |= features_of(layer);
  const auto add_if = [&](bool found, Feature feature) {
    if (found) set.set(index_of(feature));
  };
  add_if(model.tied_embeddings, Feature::tied_embeddings);
  add_if(model.mtp_modules > 0, Feature::mtp);
  add_if(model.vision.has_value(), Feature::images);
  add_if(model.vision && model.positions != Positions::learned, Feature::image_positions);
  add_if(!model.vision && set[index_of(Feature::bidirectional_attention)], Feature::bidirectional_text);
  return set;
}

}  // namespace plumb
