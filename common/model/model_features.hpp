// Features of a model, for the table of capabilities.
#pragma once

#include "common/capability/feature.hpp"
#include "common/model/model.hpp"

namespace plumb {

[[nodiscard]] FeatureSet features_of(const Layer& layer);
// Those of all layers, of the embedding and of the head.
[[nodiscard]] FeatureSet features_of(const Model& model);

}  // namespace plumb
