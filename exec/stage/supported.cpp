#include "exec/stage/supported.hpp"

#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "common/base/error.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/schedule/slices.hpp"

namespace plumb::exec {
namespace {

// Of a part of a model what is not executed, and what is in its place; nothing: all of it is executed.
struct Missing {
  std::string what;
  std::string executed;
};
using MissingPart = std::optional<Missing>;

Missing missing_mixer(const std::string& what) { return {what, "full, sliding and linear attention"}; }

MissingPart missing(const SoftmaxAttention& attention) {
  if (!attention.causal && attention.window) {
    return Missing{"bidirectional attention in a window", "bidirectional attention of all tokens of an image"};
  }
  if (attention.sinks) {
    return Missing{"attention with sinks", "full and sliding attention without sinks"};
  }
  if (attention.value_dim != attention.head_dim) {
    return Missing{"attention whose values have another size than its keys", "values as large as keys"};
  }
  if (attention.kv_heads < 1 || attention.heads % attention.kv_heads != 0) {
    return Missing{"attention whose heads are no multiple of its key-value heads", "heads that are a multiple"};
  }
  return std::nullopt;
}

MissingPart missing(const GatedDelta& delta) {
  const bool multiple = delta.key_heads > 0 && delta.value_heads % delta.key_heads == 0;
  if (multiple) return std::nullopt;
  return Missing{"a gated delta rule whose value heads are no multiple of its key heads", "heads that are a multiple"};
}

MissingPart missing(const DenseMlp& mlp) {
  const bool known = mlp.activation == Activation::swiglu || mlp.activation == Activation::gelu ||
                     mlp.activation == Activation::gelu_erf;
  if (known) return std::nullopt;
  const std::string name = mlp.activation == Activation::geglu ? "geglu" : "relu2";
  return Missing{"a dense MLP with the activation " + name,
                 "the activations swiglu, gelu and gelu_erf of a dense MLP, and swiglu of a mixture of experts"};
}

MissingPart missing(const MoeMlp& moe) {
  if (moe.activation != Activation::swiglu) {
    return Missing{"a mixture of experts with another activation than SwiGLU",
                   "the activation swiglu of a mixture of experts, and swiglu, gelu and gelu_erf of a dense MLP"};
  }
  if (!moe.router_bias && !moe.expert_bias) return std::nullopt;
  return Missing{"a mixture of experts with biases", "a mixture of experts without"};
}

MissingPart missing(const std::monostate&) { return std::nullopt; }
MissingPart missing(const LatentAttention&) { return missing_mixer("multi-head latent attention"); }
MissingPart missing(const ChannelGatedDelta&) { return missing_mixer("the gated delta rule with a gate per channel"); }
MissingPart missing(const Lightning&) { return missing_mixer("lightning attention"); }
MissingPart missing(const Mamba&) { return missing_mixer("the mixer mamba"); }
MissingPart missing(const Mamba2&) { return missing_mixer("the mixer mamba2"); }

MissingPart missing(const Model& model, const Layer& layer) {
  const auto of_kind = [](const auto& kind) { return missing(kind); };
  if (MissingPart part = std::visit(of_kind, layer.mixer)) return part;
  if (MissingPart part = std::visit(of_kind, layer.mlp)) return part;
  const auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer);
  if (attention != nullptr && !attention->causal && !model.vision) {
    return Missing{"bidirectional attention over text, which would see its targets,", "causal attention over text"};
  }
  if (attention != nullptr && model.positions == Positions::rope) {
    const std::int64_t rotated = attention->rotary ? attention->rotary->dim : attention->head_dim;
    if (rotated % 2 != 0 || rotated > attention->head_dim) {
      return Missing{"rotary positions with an odd head size", "an even size of what is rotated, at most the head's"};
    }
  }
  const bool both =
      !std::holds_alternative<std::monostate>(layer.mixer) && !std::holds_alternative<std::monostate>(layer.mlp);
  if (layer.parallel && !both) {
    return Missing{"a parallel layer without both mixer and MLP", "parallel layers with both"};
  }
  const int expected = both && !layer.parallel ? 2 : 1;
  if (layer.norms == expected) return std::nullopt;
  return Missing{"a layer of this kind with " + std::to_string(layer.norms) + " norms",
                 "2 norms of a layer with mixer and MLP, 1 of a parallel one or of one with either"};
}

MissingPart missing(const Model& model) {
  if (model.vision && (model.tied_embeddings || model.positions != Positions::learned)) {
    return Missing{"a model of images with tied embeddings or other positions than learned ones",
                   "learned positions and no tied embeddings"};
  }
  if (model.mtp_modules == 0) return std::nullopt;
  return Missing{"multi-token prediction",
                 "the model without it: mtp: 0 in its block, or num_nextn_predict_layers: 0 in its config.json"};
}

[[noreturn]] void refuse(const std::string& where, const Missing& part) {
  throw InputError(where, part.what + " is not executed yet", "plumb simulates it; executed: " + part.executed);
}

}  // namespace

void require_executed(const Model& model, const Training& training) {
  if (const auto part = missing(model)) refuse("model " + model.name, *part);
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    const Layer& layer = model.layers[index];
    if (const auto part = missing(model, layer)) {
      refuse("model " + model.name + ", layer " + std::to_string(index) + " (" + kind_name(layer) + ")", *part);
    }
  }
  if (model.vision && tokens(*model.vision) != training.sequence) {
    throw InputError("training.sequence", "expected " + std::to_string(tokens(*model.vision)) +
                                              ", the patches and the class token of an image, found " +
                                              std::to_string(training.sequence));
  }
  if (model.positions == Positions::learned && model.max_positions < training.sequence) {
    throw InputError("training.sequence", "expected at most " + std::to_string(model.max_positions) +
                                              ", the learned positions of model " + model.name + ", found " +
                                              std::to_string(training.sequence));
  }
  if (training.precision != ElementType::fp32 && training.precision != ElementType::bf16) {
    throw InputError("training.precision", "only fp32 and bf16 are executed yet");
  }
  const RecomputeMode recompute = training.recompute.mode;
  if (recompute != RecomputeMode::none && recompute != RecomputeMode::selective && recompute != RecomputeMode::full) {
    throw InputError("training.recompute", describe(training.recompute) + " is not executed yet",
                     "none, selective or full");
  }
}

void require_divided(const Model& model, const Training& training, const TensorLayout& tensor) {
  if (is_grid(tensor)) {
    require_divided_by_grid(model, tensor);
    if (const auto undivided = undivided_microbatch(tensor, training.microbatch)) {
      const std::string multiple = std::to_string(sequences_multiple(tensor));
      throw InputError("layout", *undivided, "microbatch: " + multiple + ", or a multiple of it");
    }
    return;
  }
  Layout layout;
  layout.tensor = tensor;
  require_divisible(model, layout);
  require_divides(tensor.degree, model.vocabulary, "tokens of the vocabulary");
  require_divides_sequence(tensor, training.sequence);
  for (const Layer& layer : model.layers) {
    const auto* const moe = std::get_if<MoeMlp>(&layer.mlp);
    if (moe != nullptr) require_divides(tensor.degree, moe->shared_width, "columns of a shared expert");
  }
}

void require_slices_executed(const Model& model, const Training& training, const Schedule& schedule) {
  if (schedule.slices == 1) return;
  const std::string hint = "models of text whose attention is causal; or a schedule of whole sequences";
  if (model.vision) {
    throw InputError("model " + model.name, "an image cannot be cut into slices (" + schedule.name + ")", hint);
  }
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    const auto* attention = std::get_if<SoftmaxAttention>(&model.layers[index].mixer);
    if (attention != nullptr && !attention->causal) {
      throw InputError("model " + model.name + ", layer " + std::to_string(index),
                       "bidirectional attention in a slice would need later slices (" + schedule.name + ")", hint);
    }
  }
  require_slices(schedule.slice_tokens, training.sequence, "schedule " + schedule.name);
  if (schedule.slice_tokens.empty() && training.sequence % schedule.slices != 0) {
    throw InputError("training.sequence", "expected a multiple of the " + std::to_string(schedule.slices) +
                                              " slices of " + schedule.name + ", found " +
                                              std::to_string(training.sequence));
  }
  if (schedule.update_every > 0 || schedule.microbatches % (replicas(schedule) * schedule.slices) != 0) {
    throw InputError("schedule " + schedule.name,
                     "slices together with several updates a step, or of sequences that two replicas share, are not "
                     "executed yet",
                     "one update a step, and whole sequences for each replica");
  }
}

}  // namespace plumb::exec
