// Features of a layout, for the table of capabilities.
#pragma once

#include <optional>

#include "common/capability/feature.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

[[nodiscard]] Feature feature_of(TensorKind kind);
// nullopt if states are whole.
[[nodiscard]] std::optional<Feature> feature_of(Sharding sharding);

[[nodiscard]] FeatureSet features_of(const TensorLayout& tensor);
// An axis of one rank has no feature: a sharding among one rank is none.
[[nodiscard]] FeatureSet features_of(const Layout& layout);

}  // namespace plumb
