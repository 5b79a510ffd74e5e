#include "common/scenario/used_features.hpp"

#include <algorithm>

#include "common/layout/layout_features.hpp"
#include "common/model/model_features.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {
namespace {

void add_if(FeatureSet& set, bool found, Feature feature) {
  if (found) set.set(index_of(feature));
}

FeatureSet only(Feature feature) { return FeatureSet().set(index_of(feature)); }

Feature named_schedule(const std::string& name) {
  return find_schedule_feature(name).value_or(Feature::schedule_of_file);
}

bool uses_times(const std::string& name) {
  return std::ranges::any_of(schedule_entries(),
                             [&](const ScheduleEntry& entry) { return entry.uses_times && entry.name == name; });
}

}  // namespace

FeatureSet features_of(const Machine& machine) {
  FeatureSet set = only(machine.device.type == DeviceType::cpu ? Feature::cpu : Feature::gpu);
  add_if(set, !has_host(machine), Feature::no_host);
  return set;
}

FeatureSet features_of(const Software& software, const Layout& layout) {
  FeatureSet set;
  add_if(set, gathers_messages(software, layout.tensor), Feature::scattered_messages);
  add_if(set, layout.data.replicate > 1 && overlaps_copies(software, layout), Feature::overlapped_copies);
  add_if(set, !software.data_overlap, Feature::serial_data);
  return set;
}

FeatureSet features_of(const Recompute& recompute, const Software& software) {
  switch (recompute.mode) {
    case RecomputeMode::none:
      return {};
    case RecomputeMode::selective:
      return only(Feature::recompute_selective);
    case RecomputeMode::first_layers:
      return only(Feature::recompute_first_layers);
    case RecomputeMode::every_nth_layer:
      return only(Feature::recompute_every_nth);
    case RecomputeMode::full:
      break;
  }
  const bool by_stage = software.recompute_unit == RecomputeUnit::stage;
  return only(by_stage ? Feature::recompute_by_stage : Feature::recompute_by_layer);
}

FeatureSet features_of(const Offload& offload) {
  FeatureSet set;
  add_if(set, offload.optimizer, Feature::offload_optimizer);
  add_if(set, offload.activations, Feature::offload_activations);
  add_if(set, offload.parameters, Feature::offload_parameters);
  add_if(set, offload.activations && offload.parameters, Feature::offload_of_both);
  add_if(set, offload.optimizer != offload.parameters, Feature::offload_of_one);
  return set;
}

FeatureSet features_of(const Training& training) {
  FeatureSet set = only(training.precision == ElementType::fp32   ? Feature::fp32
                        : training.precision == ElementType::bf16 ? Feature::bf16
                                                                  : Feature::fp16);
  add_if(set, training.lora.has_value(), Feature::lora);
  add_if(set, training.gradient_clipping > 0, Feature::clipping);
  return set;
}

FeatureSet features_of(SplitMethod method) {
  switch (method) {
    case SplitMethod::uniform:
      return only(Feature::split_uniform);
    case SplitMethod::parameters:
      return only(Feature::split_by_parameters);
    case SplitMethod::counts:
      return only(Feature::split_counts);
    case SplitMethod::megatron:
      return only(Feature::split_layout);
    case SplitMethod::dynamic:
      break;
  }
  return only(Feature::split_dynamic);
}

FeatureSet features_of(const ScheduleChoice& choice) {
  if (choice.given) return features_of(*choice.given);
  FeatureSet set = only(named_schedule(choice.name));
  const auto known = std::ranges::find(schedule_entries(), choice.name, &ScheduleEntry::name);
  if (known == schedule_entries().end()) return set;
  const ScheduleEntry& entry = *known;
  add_if(set, choice.overlap, Feature::overlapped_pairs);
  add_if(set, entry.trains_replicas, Feature::two_replicas);
  add_if(set, entry.updates_within, Feature::updates_within);
  add_if(set, entry.uses_times, Feature::made_for_times);
  add_if(set, !entry.divides_vocabulary, Feature::whole_head);
  const bool sliced = entry.uses_slices && choice.slices > 1;
  add_if(set, sliced, Feature::slices);
  add_if(set, sliced && (choice.slices_by == SlicesBy::work || !unequal(choice.slice_tokens).empty()),
         Feature::unequal_slices);
  return set;
}

FeatureSet features_of(const Schedule& schedule) {
  FeatureSet set = only(named_schedule(schedule.name));
  add_if(set, !schedule.overlapped.empty(), Feature::overlapped_pairs);
  add_if(set, replicas(schedule) > 1, Feature::two_replicas);
  add_if(set, schedule.update_every > 0, Feature::updates_within);
  add_if(set, uses_times(schedule.name), Feature::made_for_times);
  add_if(set, schedule.vocabulary_barriers == 0, Feature::whole_head);
  add_if(set, schedule.slices > 1 || !schedule.slice_tokens.empty(), Feature::slices);
  add_if(set, !unequal(schedule.slice_tokens).empty(), Feature::unequal_slices);
  add_if(set, evicts(schedule), Feature::evictions);
  return set;
}

std::optional<Purpose> purpose_of(const Scenario& scenario) {
  if (!scenario.framework) return std::nullopt;
  return purpose_of(*scenario.framework, scenario.cluster.machine.device.type != DeviceType::cpu);
}

// A framework is asked for bpipe as if it always evicted, which only the schedule of four ranks or more does.
static FeatureSet with_evictions(FeatureSet set) {
  add_if(set, set[index_of(Feature::bpipe)], Feature::evictions);
  return set;
}

std::vector<Refusal> refusals(const Scenario& scenario, const UsedFeatures& used) {
  std::vector<Refusal> all = refusals(used, Purpose::plan);
  const std::optional<Purpose> purpose = purpose_of(scenario);
  if (!all.empty() || !purpose) return all;
  UsedFeatures for_framework = used;
  for_framework.set = with_evictions(used.set);
  return refusals(for_framework, *purpose);
}

bool is_refused(const Scenario& scenario, const FeatureSet& set) {
  if (is_refused(set, Purpose::plan)) return true;
  const std::optional<Purpose> purpose = purpose_of(scenario);
  return purpose && is_refused(with_evictions(set), *purpose);
}

FeatureSet features_of_all(const Scenario& scenario) {
  FeatureSet set = features_of(scenario.model) | features_of(scenario.cluster.machine) | features_of(scenario.training);
  add_if(set, scenario.profile.has_value(), Feature::profile);
  return set;
}

UsedFeatures used_features(const Scenario& scenario, const ScheduleChoice& schedule) {
  return {.set = features_of_all(scenario) | features_of(scenario.layout) |
                 features_of(scenario.software, scenario.layout) |
                 features_of(scenario.training.recompute, scenario.software) | features_of(scenario.training.offload) |
                 features_of(schedule),
          .schedule = schedule.name};
}

UsedFeatures settled_features(const Scenario& scenario) {
  UsedFeatures used{.set = features_of_all(scenario)};
  if (layouts_of(scenario).size() == 1) {
    used.set |= features_of(scenario.layout) | features_of(scenario.software, scenario.layout);
  }
  if (scenario.recomputes.size() < 2) used.set |= features_of(scenario.training.recompute, scenario.software);
  if (scenario.offloads.size() < 2) used.set |= features_of(scenario.training.offload);
  if (scenario.schedules.size() == 1) {
    used.set |= features_of(scenario.schedules.front());
    used.schedule = scenario.schedules.front().name;
  }
  return used;
}

}  // namespace plumb
