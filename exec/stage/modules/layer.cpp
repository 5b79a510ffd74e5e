// Blocks of a model: embedding, decoder layers, head.
#include <ATen/ATen.h>

#include <type_traits>
#include <variant>

#include "common/base/error.hpp"
#include "exec/stage/modules/lora.hpp"
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/functions.hpp"
#include "exec/stage/primitives/operations.hpp"
#include "exec/stage/tensor/vocabulary.hpp"

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

namespace {

// Where its input is gathered in pieces, that makes it.
Module product_of(const ModuleContext& context, const std::string& site, const WeightPtr& weight,
                  const WeightPtr& bias) {
  if (!reads_in_pieces(context.divided, site)) {
    return [=](const at::Tensor& x, const Pass& pass) { return linear(x, weight, bias, pass.queue, pass.part_of(x)); };
  }
  const std::string& value = site_of(context.divided->of.placed(), site).inputs.front().whole.name;
  context.readers[value].in_pieces.push_back({.weight = weight, .bias = bias});
  return [=](const at::Tensor& /*x*/, const Pass& pass) { return pass.take_product(*weight); };
}

// Out of a divided part, as `exit` says.
Module make_summed_product(const ModuleContext& context, const std::string& name, std::int64_t out, std::int64_t in,
                           const CrossingPtr& exit) {
  if (leaves_in_pieces(context.divided, name)) {
    const WeightPtr weight = weight_of(context, name, {out, in});
    return [=](const at::Tensor& x, const Pass& pass) { return scattered_product(x, weight, exit, pass.queue); };
  }
  const Module product = make_linear(context, name, out, in);
  return [=](const at::Tensor& x, const Pass& pass) { return crossed(product(x, pass), exit); };
}

}  // namespace

Module make_linear(const ModuleContext& context, const std::string& name, std::int64_t out, std::int64_t in,
                   bool bias) {
  if (on_grid(context)) return make_grid_linear(context, name, bias);
  const WeightPtr weight = weight_of(context, name, {out, in});
  const WeightPtr offset = bias ? context.weights.take(context.prefix + name + ".bias", {out}) : WeightPtr();
  const AdapterPtr adapter = adapter_of(context, name);
  if (adapter) {
    return
        [=](const at::Tensor& x, const Pass& pass) { return adapted_linear(x, weight, offset, adapter, pass.queue); };
  }
  return product_of(context, name, weight, offset);
}

Module make_leaving_linear(const ModuleContext& context, const std::string& name, std::int64_t out, std::int64_t in,
                           bool bias) {
  if (on_grid(context)) return make_grid_leaving_linear(context, name, bias);
  const CrossingPtr exit = exit_of(context.divided, name);
  if (!exit) return make_linear(context, name, out, in, bias);
  const Module product = make_summed_product(context, name, out, in, exit);
  const WeightPtr offset = bias ? context.weights.take(context.prefix + name + ".bias", {out}) : WeightPtr();
  return [=](const at::Tensor& x, const Pass& pass) {
    const at::Tensor sum = product(x, pass);
    return offset ? add_bias(sum, offset, pass.queue) : sum;
  };
}

Entry module_entry(const ModuleContext& context, const std::string& value) {
  const auto found = context.readers.find(value);
  return {.crossing = entry_of(context.divided, value),
          .readers = found == context.readers.end() ? ReadersTogether() : found->second};
}

Entry module_entry_into(const ModuleContext& context, std::string_view site) {
  if (context.divided == nullptr) return {};
  return module_entry(context, site_of(context.divided->of.placed(), site).inputs.front().whole.name);
}

namespace {

void put_made(Pass& inside, const WeightPtr& weight, at::Tensor& made) {
  inside.made->emplace(weight.get(), std::move(made));
}

}  // namespace

Pass entered(const at::Tensor& x, const Pass& pass, const Entry& entry) {
  Pass inside = pass;
  const auto& [in_pieces, in_panels] = entry.readers;
  if (in_pieces.empty() && in_panels.empty()) {
    inside.gathered = crossed(x, entry.crossing);
    inside.part = kept_part(x, entry.crossing);
    return inside;
  }
  inside.made = std::make_shared<std::map<const Weight*, at::Tensor>>();
  if (!in_panels.empty()) {
    std::vector<at::Tensor> made = products_in_panels(x, entry.crossing, in_panels, pass.queue);
    for (std::size_t i = 0; i < made.size(); ++i) put_made(inside, in_panels[i].weight->stored, made[i]);
    inside.gathered = x;
    return inside;
  }
  GatheredProducts all = products_in_pieces(x, entry.crossing, in_pieces, pass.queue);
  inside.gathered = std::move(all.gathered);
  for (std::size_t i = 0; i < in_pieces.size(); ++i) put_made(inside, in_pieces[i].weight, all.products[i]);
  return inside;
}

Module entering(const ModuleContext& context, const std::string& value, Module inner) {
  const Entry entry = module_entry(context, value);
  if (!entry.crossing || !inner) return inner;
  return [=](const at::Tensor& x, const Pass& pass) {
    const Pass inside = entered(x, pass, entry);
    return inner(inside.gathered, inside);
  };
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
  if (std::optional<Norm> of_grid = make_grid_norm(context, name, kind)) return std::move(*of_grid);
  const std::int64_t hidden = context.model.hidden;
  const WeightPtr weight = weight_of(context, name, {hidden});
  const double epsilon = norm_epsilon(context.model, kind);
  if (kind == NormKind::rmsnorm) {
    return {.of = [=](const at::Tensor& x, const Pass& pass) { return rms_norm(x, weight, pass.queue, epsilon); },
            .of_sum =
                [=](const at::Tensor& x, const at::Tensor& beside, const Pass& pass) {
                  NormOfSum made = sum_rms_norm(x, beside, weight, pass.queue, epsilon);
                  return std::pair(std::move(made.sum), std::move(made.normal));
                }};
  }
  const WeightPtr bias = context.weights.take(context.prefix + name + ".bias", {hidden});
  return {.of = [=](const at::Tensor& x, const Pass& pass) { return layer_norm(x, weight, bias, pass.queue, epsilon); },
          .of_sum =
              [=](const at::Tensor& x, const at::Tensor& beside, const Pass& pass) {
                at::Tensor sum = x + beside;
                at::Tensor normal = layer_norm(sum, weight, bias, pass.queue, epsilon);
                return std::pair(std::move(sum), std::move(normal));
              }};
}

namespace {

// With sequence parallelism each rank goes on with its own tokens.
Module make_divided_embedding(const Divided& divided, const WeightPtr& table, const WeightPtr& positions) {
  const CrossingPtr exit = exit_of(&divided, "embedding");
  const int position = divided.group->position();
  const std::int64_t first_row = divided.of.first_of_vocabulary();
  return [=](const at::Tensor& tokens, const Pass& pass) {
    const at::Tensor y = embed_part(tokens, table, first_row, exit, pass.queue);
    return positions ? add_positions(y, positions, first_own_token(position, y.size(1), tokens.size(1)), pass.queue)
                     : y;
  };
}

}  // namespace

Module make_embedding(const ModuleContext& context) {
  const Model& model = context.model;
  if (model.vision) {
    return make_patch_embedding(context, *model.vision);
  }
  if (on_grid(context)) return make_grid_embedding(context);
  const WeightPtr table = weight_of(context, "embedding", {model.vocabulary, model.hidden});
  const WeightPtr positions = model.positions == Positions::learned
                                  ? context.weights.take("embedding.positions", {model.max_positions, model.hidden})
                                  : WeightPtr();
  if (context.divided != nullptr) return make_divided_embedding(*context.divided, table, positions);
  return [=](const at::Tensor& tokens, const Pass& pass) {
    return embed(tokens, table, positions, pass.slice.first_token, pass.queue);
  };
}

Module make_layer(const ModuleContext& context, const Layer& layer) {
  const Norm mixer_norm = make_norm(context, "norm_1", layer.norm);
  const Module inner_mixer = make_mixer(context, layer.mixer);
  const Norm mlp_norm = layer.norms == 2 ? make_norm(context, "norm_2", layer.norm) : mixer_norm;
  const Module inner_mlp = make_mlp(context, layer.mlp);
  if (layer.parallel) {
    const Entry entry = module_entry(context, "norm_1");
    return [=](const at::Tensor& x, const Pass& pass) {
      const Pass inside = entered(mixer_norm.of(x, pass), pass, entry);
      const at::Tensor mixed = inner_mixer(inside.gathered, inside);
      return x + mixed + inner_mlp(inside.gathered, inside);
    };
  }
  const Module mixer = entering(context, "norm_1", inner_mixer);
  const bool routes = std::holds_alternative<MoeMlp>(layer.mlp);  // its router reads the value as it is
  const Module mlp = routes ? inner_mlp : entering(context, layer.norms == 2 ? "norm_2" : "norm_1", inner_mlp);
  return [=](const at::Tensor& x, const Pass& pass) {
    if (!mixer) return mlp ? x + mlp(mlp_norm.of(x, pass), pass) : x;
    if (!mlp) return x + mixer(mixer_norm.of(x, pass), pass);
    // No name for what the mixer makes: it goes before the MLP runs.
    const auto [sum, normal] = mlp_norm.of_sum(x, mixer(mixer_norm.of(x, pass), pass), pass);
    return sum + mlp(normal, pass);
  };
}

namespace {

Module make_logits(const ModuleContext& context) {
  const Model& model = context.model;
  const WeightPtr table =
      weight_of(context, model.tied_embeddings ? "embedding" : "head", {model.vocabulary, model.hidden});
  const WeightPtr bias = model.head_bias ? context.weights.take("head.bias", {model.vocabulary}) : WeightPtr();
  return product_of(context, "head", table, bias);
}

}  // namespace

Module make_head(const ModuleContext& context) {
  const Model& model = context.model;
  if (model.vision) {
    return make_class_head(context, *model.vision);
  }
  const Module norm = make_norm(context, "final_norm", model.final_norm).of;
  const Module product = on_grid(context) ? make_grid_linear(context, "head", model.head_bias) : make_logits(context);
  const Statistics statistics = statistics_of(context.divided, "loss");
  const std::int64_t first_column = context.divided == nullptr ? 0 : context.divided->of.first_of_vocabulary();
  // What is gathered of hidden states goes before the loss makes its own of the logits.
  const Module logits_of = entering(context, "final_norm", product);
  return [=](const at::Tensor& x, const Pass& pass) {
    const at::Tensor logits = logits_of(norm(x, pass), pass);
    if (!statistics.group) return cross_entropy(logits, pass.targets);
    return divided_cross_entropy(logits, pass.targets, first_column, statistics);
  };
}

}  // namespace plumb::exec
