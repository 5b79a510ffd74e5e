#include "common/plan/plan_features.hpp"

#include "common/layout/layout_features.hpp"
#include "common/model/model_features.hpp"
#include "common/scenario/used_features.hpp"
#include "common/scenario/vocabulary_fit.hpp"

namespace plumb {

FeatureSet shared_features(const Plan& plan, bool has_profile) {
  FeatureSet set = features_of(plan.model) | features_of(plan.cluster.machine) | features_of(plan.training);
  return set.set(index_of(Feature::profile), has_profile);
}

UsedFeatures used_features(const Plan& plan, const FeatureSet& shared) {
  UsedFeatures used{.set = shared | features_of(plan.training.recompute, plan.software) |
                           features_of(plan.training.offload) | features_of(plan.layout) |
                           features_of(plan.software, plan.layout) | features_of(plan.schedule),
                    .schedule = plan.schedule.name};
  used.set.set(index_of(Feature::tied_over_ranks), tied_over_ranks(plan));
  return used;
}

UsedFeatures used_features(const Plan& plan, bool has_profile) {
  return used_features(plan, shared_features(plan, has_profile));
}

void require_planned(const Plan& plan, const FeatureSet& shared) {
  if (const auto misfit = barrier_misfit(plan.schedule, plan.layout)) throw InputError(*misfit);
  const UsedFeatures used = used_features(plan, shared);
  if (is_refused(used.set, Purpose::plan)) require_none(refusals(used, Purpose::plan));
  if (const auto misfit = vocabulary_misfit(plan.model, plan.layout)) throw InputError(*misfit);
}

}  // namespace plumb
