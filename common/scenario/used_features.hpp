// Features that a scenario's choices use, for the table of capabilities.
#pragma once

#include "common/capability/capability.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

[[nodiscard]] FeatureSet features_of(const Machine& machine);
// Features of software that the layout makes use of.
[[nodiscard]] FeatureSet features_of(const Software& software, const Layout& layout);
// A full recompute is by stage or by layer, as the software has it.
[[nodiscard]] FeatureSet features_of(const Recompute& recompute, const Software& software);
[[nodiscard]] FeatureSet features_of(const Offload& offload);
// All but recompute and offload, which may be open.
[[nodiscard]] FeatureSet features_of(const Training& training);
[[nodiscard]] FeatureSet features_of(SplitMethod method);
// Evictions are a feature of the schedule itself, which depends on its ranks; a choice by name has none.
[[nodiscard]] FeatureSet features_of(const ScheduleChoice& choice);
[[nodiscard]] FeatureSet features_of(const Schedule& schedule);

// The column of the scenario's framework; nullopt if it names none.
[[nodiscard]] std::optional<Purpose> purpose_of(const Scenario& scenario);

// Features that all candidates of a scenario share: model, machine, training and profile.
[[nodiscard]] FeatureSet features_of_all(const Scenario& scenario);
// Features of one candidate with this schedule on the scenario's own layout, recompute and offload.
[[nodiscard]] UsedFeatures used_features(const Scenario& scenario, const ScheduleChoice& schedule);

// Features of what a scenario settles, without those of keys that are open.
[[nodiscard]] UsedFeatures settled_features(const Scenario& scenario);

// All that cannot be planned together, and then what the scenario's framework does not run.
[[nodiscard]] std::vector<Refusal> refusals(const Scenario& scenario, const UsedFeatures& used);
[[nodiscard]] bool is_refused(const Scenario& scenario, const FeatureSet& set);

}  // namespace plumb
