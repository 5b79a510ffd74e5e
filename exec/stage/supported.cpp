#include "exec/stage/supported.hpp"

#include <string>
#include <type_traits>
#include <variant>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

// Empty: it is executed. Otherwise what about it is not.
std::string missing(const SoftmaxAttention& attention) {
  if (!attention.causal && attention.window) {
    return "bidirectional attention in a window";
  }
  if (attention.sinks) {
    return "attention with sinks";
  }
  if (attention.value_dim != attention.head_dim) {
    return "attention whose values have another size than its keys";
  }
  if (attention.kv_heads < 1 || attention.heads % attention.kv_heads != 0) {
    return "attention whose heads are no multiple of its key-value heads";
  }
  return "";
}

std::string missing(const GatedDelta& delta) {
  const bool multiple = delta.key_heads > 0 && delta.value_heads % delta.key_heads == 0;
  return multiple ? "" : "a gated delta rule whose value heads are no multiple of its key heads";
}

std::string missing(const DenseMlp& mlp) {
  const bool known = mlp.activation == Activation::swiglu || mlp.activation == Activation::gelu ||
                     mlp.activation == Activation::gelu_erf;
  return known ? "" : "a dense MLP with another activation than SwiGLU or GELU";
}

std::string missing(const MoeMlp& moe) {
  if (moe.activation != Activation::swiglu) {
    return "a mixture of experts with another activation than SwiGLU";
  }
  return moe.router_bias || moe.expert_bias ? "a mixture of experts with biases" : "";
}

std::string missing(const std::monostate&) { return ""; }
std::string missing(const LatentAttention&) { return "multi-head latent attention"; }
std::string missing(const ChannelGatedDelta&) { return "the gated delta rule with a gate per channel"; }
std::string missing(const Lightning&) { return "lightning attention"; }
std::string missing(const Mamba&) { return "the mixer mamba"; }
std::string missing(const Mamba2&) { return "the mixer mamba2"; }

std::string missing(const Model& model, const Layer& layer) {
  const auto of_kind = [](const auto& kind) { return missing(kind); };
  if (std::string what = std::visit(of_kind, layer.mixer); !what.empty()) {
    return what;
  }
  if (std::string what = std::visit(of_kind, layer.mlp); !what.empty()) {
    return what;
  }
  const auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer);
  if (attention != nullptr && !attention->causal && !model.vision) {
    return "bidirectional attention over text, which would see its targets,";
  }
  if (attention != nullptr && model.positions == Positions::rope) {
    const std::int64_t rotated = attention->rotary ? attention->rotary->dim : attention->head_dim;
    if (rotated % 2 != 0 || rotated > attention->head_dim) {
      return "rotary positions with an odd head size";
    }
  }
  const bool both =
      !std::holds_alternative<std::monostate>(layer.mixer) && !std::holds_alternative<std::monostate>(layer.mlp);
  if (layer.parallel && !both) {
    return "a parallel layer without both mixer and MLP";
  }
  const int expected = both && !layer.parallel ? 2 : 1;
  return layer.norms == expected ? "" : "a layer of this kind with " + std::to_string(layer.norms) + " norms";
}

std::string missing(const Model& model) {
  if (model.vision && (model.tied_embeddings || model.positions != Positions::learned)) {
    return "a model of images with tied embeddings or other positions than learned ones";
  }
  return model.mtp_modules > 0 ? "multi-token prediction" : "";
}

}  // namespace

void require_executed(const Model& model, const Training& training) {
  const std::string hint = "plumb simulates it; executed are full, sliding and linear attention with dense or moe";
  if (const std::string what = missing(model); !what.empty()) {
    const bool mtp = !model.vision && model.mtp_modules > 0;
    throw InputError("model " + model.name, what + " is not executed yet",
                     mtp ? "plumb simulates it; to run the model without it: mtp: 0 in its block, or "
                           "num_nextn_predict_layers: 0 in its config.json"
                         : hint);
  }
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    const Layer& layer = model.layers[index];
    if (const std::string what = missing(model, layer); !what.empty()) {
      throw InputError("model " + model.name + ", layer " + std::to_string(index) + " (" + kind_name(layer) + ")",
                       what + " is not executed yet", hint);
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
  if (recompute != RecomputeMode::none && recompute != RecomputeMode::full) {
    throw InputError("training.recompute", "this mode is not executed yet", "none or full");
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
  if (training.sequence % schedule.slices != 0) {
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
