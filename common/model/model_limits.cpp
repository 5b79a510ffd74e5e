#include "common/model/model_limits.hpp"

#include <variant>

#include "common/model/parameters.hpp"

namespace plumb {

namespace {

// Rotary positions turn pairs (arXiv 2104.09864): of a head an even number of entries.
void require_pairs(const Model& model, const Place& place) {
  for (const Layer& layer : model.layers) {
    const auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer);
    if (attention == nullptr || model.positions != Positions::rope) continue;
    const std::int64_t rotated = attention->rotary ? attention->rotary->dim : attention->head_dim;
    if (rotated % 2 == 0) continue;
    throw InputError(place, "rotary positions need an even head size, not " + std::to_string(rotated),
                     "an even head_dim, or other positions than rope");
  }
}

}  // namespace

// In floating point, since the sum may not fit an integer; each parameter alone does, by the limits of its extents.
void require_possible(const Model& model, const Place& place) {
  if (model.layers.empty()) throw InputError(place, "the model has no layers");
  if (model.layers.size() > static_cast<std::size_t>(limits::layers)) {
    throw InputError(place, "the model has more than " + std::to_string(limits::layers) + " layers");
  }
  require_pairs(model, place);
  double sum = 0;
  const auto count = [&](const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters) {
      double product = 1;
      for (const std::int64_t extent : parameter.shape) product *= static_cast<double>(extent);
      sum += product;
    }
  };
  count(embedding_parameters(model));
  for (std::size_t i = 0; i < model.layers.size(); ++i) count(layer_parameters(model, i));
  count(head_parameters(model));
  count(mtp_parameters(model));
  if (sum > limits::parameters) {
    throw InputError(place, "the model has more than 10^16 parameters", "check its sizes for a digit too many");
  }
}

}  // namespace plumb
