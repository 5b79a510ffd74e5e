// Blocks of a model: embedding, decoder layers, head.
#include <ATen/ATen.h>

#include <type_traits>
#include <variant>

#include "common/base/error.hpp"
#include "exec/stage/modules/lora.hpp"
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"

namespace plumb::exec {
namespace {

// Kinds that exec/stage/supported.hpp refuses before anything is made.
template <class Kind>
Module unsupported(const ModuleContext& context, const Kind&) {
  throw RunError("layer " + std::to_string(context.layer), "its kind has no module");
}

Module make_mixer(const ModuleContext& context, const Mixer& mixer) {
  return std::visit(
      [&](const auto& kind) -> Module {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, std::monostate>) {
          return {};
        } else if constexpr (std::is_same_v<Kind, SoftmaxAttention>) {
          return make_softmax_attention(context, kind);
        } else if constexpr (std::is_same_v<Kind, GatedDelta>) {
          return make_gated_delta(context, kind);
        } else {
          return unsupported(context, kind);
        }
      },
      mixer);
}

Module make_mlp(const ModuleContext& context, const Mlp& mlp) {
  if (const auto* dense = std::get_if<DenseMlp>(&mlp)) {
    return make_dense_mlp(context, *dense);
  }
  if (const auto* moe = std::get_if<MoeMlp>(&mlp)) {
    return make_moe_mlp(context, *moe);
  }
  return {};
}

}  // namespace

WeightPtr weight_of(const ModuleContext& context, const std::string& name, at::IntArrayRef shape) {
  return context.weights.take(context.prefix + name + ".weight", shape);
}

Module make_linear(const ModuleContext& context, const std::string& name, std::int64_t out, std::int64_t in,
                   bool bias) {
  const WeightPtr weight = weight_of(context, name, {out, in});
  const WeightPtr offset = bias ? context.weights.take(context.prefix + name + ".bias", {out}) : WeightPtr();
  const AdapterPtr adapter = adapter_of(context, name);
  if (adapter) {
    return
        [=](const at::Tensor& x, const Pass& pass) { return adapted_linear(x, weight, offset, adapter, pass.queue); };
  }
  return [=](const at::Tensor& x, const Pass& pass) { return linear(x, weight, offset, pass.queue); };
}

ExpertModule make_expert_linear(const ModuleContext& context, const std::string& name, at::IntArrayRef shape) {
  const WeightPtr weight = weight_of(context, name, shape);
  const AdapterPtr adapter = adapter_of(context, name);
  return [=](const at::Tensor& x, const ExpertRowsPtr& rows, const Pass& pass) {
    return adapter ? adapted_expert_linear(x, weight, adapter, rows, pass.queue)
                   : expert_linear(x, weight, rows, pass.queue);
  };
}

Norm make_norm(const ModuleContext& context, const std::string& name, NormKind kind) {
  const std::int64_t hidden = context.model.hidden;
  const WeightPtr weight = weight_of(context, name, {hidden});
  if (kind == NormKind::rmsnorm) {
    return {.of = [=](const at::Tensor& x, const Pass& pass) { return rms_norm(x, weight, pass.queue); },
            .of_sum =
                [=](const at::Tensor& x, const at::Tensor& beside, const Pass& pass) {
                  NormOfSum made = sum_rms_norm(x, beside, weight, pass.queue);
                  return std::pair(std::move(made.sum), std::move(made.normal));
                }};
  }
  const WeightPtr bias = context.weights.take(context.prefix + name + ".bias", {hidden});
  return {.of = [=](const at::Tensor& x, const Pass& pass) { return layer_norm(x, weight, bias, pass.queue); },
          .of_sum =
              [=](const at::Tensor& x, const at::Tensor& beside, const Pass& pass) {
                at::Tensor sum = x + beside;
                at::Tensor normal = layer_norm(sum, weight, bias, pass.queue);
                return std::pair(std::move(sum), std::move(normal));
              }};
}

Module make_embedding(const ModuleContext& context) {
  const Model& model = context.model;
  if (model.vision) {
    return make_patch_embedding(context, *model.vision);
  }
  const WeightPtr table = weight_of(context, "embedding", {model.vocabulary, model.hidden});
  const WeightPtr positions = model.positions == Positions::learned
                                  ? context.weights.take("embedding.positions", {model.max_positions, model.hidden})
                                  : WeightPtr();
  return [=](const at::Tensor& tokens, const Pass& pass) {
    return embed(tokens, table, positions, pass.slice.first_token, pass.queue);
  };
}

Module make_layer(const ModuleContext& context, const Layer& layer) {
  const Norm mixer_norm = make_norm(context, "norm_1", layer.norm);
  const Module mixer = make_mixer(context, layer.mixer);
  const Norm mlp_norm = layer.norms == 2 ? make_norm(context, "norm_2", layer.norm) : mixer_norm;
  const Module mlp = make_mlp(context, layer.mlp);
  if (layer.parallel) {
    return [=](const at::Tensor& x, const Pass& pass) {
      const at::Tensor normal = mixer_norm.of(x, pass);
      return x + mixer(normal, pass) + mlp(normal, pass);
    };
  }
  return [=](const at::Tensor& x, const Pass& pass) {
    if (!mixer) return mlp ? x + mlp(mlp_norm.of(x, pass), pass) : x;
    if (!mlp) return x + mixer(mixer_norm.of(x, pass), pass);
    // No name for what the mixer makes: it goes before the MLP runs.
    const auto [sum, normal] = mlp_norm.of_sum(x, mixer(mixer_norm.of(x, pass), pass), pass);
    return sum + mlp(normal, pass);
  };
}

Module make_head(const ModuleContext& context) {
  const Model& model = context.model;
  if (model.vision) {
    return make_class_head(context, *model.vision);
  }
  const Module norm = make_norm(context, "final_norm", model.final_norm).of;
  const WeightPtr table =
      weight_of(context, model.tied_embeddings ? "embedding" : "head", {model.vocabulary, model.hidden});
  const WeightPtr bias = model.head_bias ? context.weights.take("head.bias", {model.vocabulary}) : WeightPtr();
  const auto logits = [=](const at::Tensor& x, const Pass& pass) { return linear(x, table, bias, pass.queue); };
  return
      [=](const at::Tensor& x, const Pass& pass) { return cross_entropy(logits(norm(x, pass), pass), pass.targets); };
}

}  // namespace plumb::exec
