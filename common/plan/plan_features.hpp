// Features that a plan uses, and whether all of them can be planned together.
#pragma once

#include "common/capability/capability.hpp"
#include "common/plan/plan.hpp"

namespace plumb {

// Features of its model, machine, training and costs, which plans of one scenario share.
[[nodiscard]] FeatureSet shared_features(const Plan& plan, bool has_profile);
// `shared`: as above.
[[nodiscard]] UsedFeatures used_features(const Plan& plan, const FeatureSet& shared);
// `has_profile`: its costs are measured.
[[nodiscard]] UsedFeatures used_features(const Plan& plan, bool has_profile);

// Throws InputError (where = the block) for all that cannot be planned together, and for a vocabulary or barriers that
// do not fit the layout.
void require_planned(const Plan& plan, const FeatureSet& shared);

}  // namespace plumb
