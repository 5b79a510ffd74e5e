#include "exec/stage/supported.hpp"

#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "common/base/error.hpp"
#include "common/base/input_errors.hpp"
#include "common/capability/capability.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/model/model_features.hpp"
#include "common/scenario/used_features.hpp"
#include "common/schedule/slices.hpp"

namespace plumb::exec {
namespace {

// Numbers of a layer that its modules do not take; the table of capabilities has its kinds.
struct Misfit {
  std::string what;
  std::string executed;
};
using AnyMisfit = std::optional<Misfit>;

AnyMisfit misfit(const SoftmaxAttention& attention) {
  if (attention.kv_heads >= 1 && attention.heads % attention.kv_heads == 0) return std::nullopt;
  return Misfit{"attention whose heads are no multiple of its key-value heads", "heads that are a multiple"};
}

AnyMisfit misfit(const GatedDelta& delta) {
  if (delta.key_heads > 0 && delta.value_heads % delta.key_heads == 0) return std::nullopt;
  return Misfit{"a gated delta rule whose value heads are no multiple of its key heads", "heads that are a multiple"};
}

template <class Kind>
AnyMisfit misfit(const Kind&) {
  return std::nullopt;
}

AnyMisfit misfit(const Model& model, const Layer& layer) {
  if (AnyMisfit part = std::visit([](const auto& kind) { return misfit(kind); }, layer.mixer)) return part;
  const auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer);
  if (attention != nullptr && model.positions == Positions::rope) {
    const std::int64_t rotated = attention->rotary ? attention->rotary->dim : attention->head_dim;
    if (rotated % 2 != 0 || rotated > attention->head_dim) {
      return Misfit{"rotary positions with an odd head size", "an even size of what is rotated, at most the head's"};
    }
  }
  const bool both =
      !std::holds_alternative<std::monostate>(layer.mixer) && !std::holds_alternative<std::monostate>(layer.mlp);
  if (layer.parallel && !both) {
    return Misfit{"a parallel layer without both mixer and MLP", "parallel layers with both"};
  }
  const int expected = both && !layer.parallel ? 2 : 1;
  if (layer.norms == expected) return std::nullopt;
  return Misfit{"a layer of this kind with " + std::to_string(layer.norms) + " norms",
                "2 norms of a layer with mixer and MLP, 1 of a parallel one or of one with either"};
}

std::string executed(const std::string& what) { return "plumb simulates it; executed: " + what; }

// Adds an error for each rule that the features break.
void add_refusals(InputErrors& errors, const std::string& where, const FeatureSet& set) {
  for (const Refusal& refusal : refusals(set, Purpose::hosts)) {
    errors.add(InputError(where, refusal.problem, executed(refusal.hint)));
  }
}

// Features of the whole model alone, which no single layer has.
FeatureSet features_beside_layers(const Model& model) {
  FeatureSet set = features_of(model);
  for (const Layer& layer : model.layers) set &= ~features_of(layer);
  return set;
}

}  // namespace

void require_executed(const Model& model, const Training& training) {
  InputErrors errors;
  add_refusals(errors, "model " + model.name, features_beside_layers(model));
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    const Layer& layer = model.layers[index];
    const std::string where =
        "model " + model.name + ", layer " + std::to_string(index) + " (" + kind_name(layer) + ")";
    add_refusals(errors, where, features_of(layer));
    if (const auto found = misfit(model, layer)) {
      errors.add(InputError(where, found->what + " is not executed yet", executed(found->executed)));
    }
    errors.throw_if_any();  // other layers are often of the same kind
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
  // Full recompute by layers, which the software decides, is refused with the layout.
  const FeatureSet settings = features_of(training) | features_of(training.recompute, Software{});
  require_none(refusals(settings, Purpose::hosts));
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
  const auto require = [&](const std::string& where, const FeatureSet& set) {
    const UsedFeatures used{.set = set | features_of(schedule), .schedule = schedule.name};
    for (const Refusal& refusal : refusals(used, Purpose::hosts)) {
      if (refusal.with == Feature::slices) throw InputError(where, refusal.problem, refusal.hint);
    }
  };
  require("schedule " + schedule.name, {});
  require("model " + model.name, features_beside_layers(model));
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    require("model " + model.name + ", layer " + std::to_string(index), features_of(model.layers[index]));
  }
  require_slices(schedule.slice_tokens, training.sequence, "schedule " + schedule.name);
  if (schedule.slice_tokens.empty() && training.sequence % schedule.slices != 0) {
    throw InputError("training.sequence", "expected a multiple of the " + std::to_string(schedule.slices) +
                                              " slices of " + schedule.name + ", found " +
                                              std::to_string(training.sequence));
  }
  if (schedule.microbatches % (replicas(schedule) * schedule.slices) != 0) {
    throw InputError("schedule " + schedule.name, "slices of sequences that two replicas share are not executed yet",
                     "whole sequences for each replica");
  }
}

}  // namespace plumb::exec
