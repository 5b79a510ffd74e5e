// `for` of a scenario: keeps the candidates that the framework runs, and fails at the key of what it names beside them.
#include <algorithm>

#include "common/base/input_errors.hpp"
#include "common/layout/layout_features.hpp"
#include "common/scenario/used_features.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb {
namespace {

// Returns true if a value, or one inside it, is `auto`.
bool is_open(const YamlValue& value) {
  if (value.is_list()) return std::ranges::any_of(value.items(), is_open);
  if (!value.is_map()) return is_auto(value);
  return std::ranges::any_of(value.keys(), [&](const std::string& key) { return is_auto(value.require(key)); });
}

class FrameworkFilter {
 public:
  FrameworkFilter(const YamlValue& file, const ChosenKeys& chosen, Scenario& scenario)
      : file_(file), chosen_(chosen), scenario_(scenario), purpose_(*purpose_of(scenario)) {}

  // Drops the values that the framework does not run beside `common`. `of` tells a value's features.
  template <class Value, class FeaturesOf>
  void keep(std::vector<Value>& values, const FeatureSet& common, const FeaturesOf& of) {
    std::vector<Value> kept;
    std::vector<Refusal> first;
    for (const Value& value : values) {
      const UsedFeatures used{.set = common | of(value)};
      const std::vector<Refusal> found = refusals(used, purpose_);
      if (found.empty()) kept.push_back(value);
      if (!found.empty() && first.empty()) first = found;
      for (const Refusal& refusal : found) note(refusal);
    }
    if (kept.empty()) fail(first);
    values = std::move(kept);
  }

  // Fails for features that have no other candidate.
  void require(const FeatureSet& set) const {
    const std::vector<Refusal> found = refusals(set, purpose_);
    if (!found.empty()) fail(found);
  }

 private:
  // Fails at a value that names the feature; what `auto` or the usual value stands for is left out.
  void note(const Refusal& refusal) {
    const std::string_view key = facts_of(refusal.feature).key;
    const auto place = chosen_.find(file_, key);
    if (!refusal.with && place && !is_open(*place)) place->fail(refusal.problem, refusal.hint);
    std::string text(facts_of(refusal.feature).name);
    if (refusal.with) text += " with " + std::string(facts_of(*refusal.with).name);
    std::vector<std::string>& all = scenario_.left_out;
    if (std::ranges::find(all, text) == all.end()) all.push_back(std::move(text));
  }

  [[noreturn]] void fail(const std::vector<Refusal>& found) const {
    InputErrors errors;
    for (const Refusal& refusal : found) {
      const std::string_view key = facts_of(refusal.feature).key;
      const auto place = chosen_.find(file_, key);
      errors.attempt([&] { place.value_or(place_of_key(file_, key)).fail(refusal.problem, refusal.hint); });
    }
    errors.throw_if_any();
    throw InputError(file_.place(), "the framework runs none of the candidates");
  }

  const YamlValue& file_;
  const ChosenKeys& chosen_;
  Scenario& scenario_;
  Purpose purpose_;
};

FeatureSet fixed_features(const Scenario& scenario) {
  FeatureSet set = features_of_all(scenario);
  return set.reset(index_of(Feature::no_host));
}

}  // namespace

std::optional<YamlValue> ChosenKeys::find(const YamlValue& file, std::string_view key) const {
  if (key == "schedule") return schedule;
  if (key == "split") return split;
  YamlValue place = file;
  while (true) {
    const std::size_t dot = key.find('.');
    auto next = place.is_map() ? place.find(key.substr(0, dot)) : std::nullopt;
    if (!next || dot == std::string_view::npos) return next;
    place = *next;
    key = key.substr(dot + 1);
  }
}

std::optional<Framework> read_framework(const std::optional<YamlValue>& value) {
  if (!value) return std::nullopt;
  return static_cast<Framework>(value->choice(framework_names()));
}

void keep_layouts_of_framework(const YamlValue& file, const ChosenKeys& chosen, Scenario& scenario) {
  if (!scenario.framework) return;
  FrameworkFilter filter(file, chosen, scenario);
  const FeatureSet fixed = fixed_features(scenario);
  filter.require(fixed);
  const auto of_layout = [&](const Layout& layout) {
    return features_of(layout) | features_of(scenario.software, layout);
  };
  filter.keep(scenario.layouts, fixed, of_layout);
  scenario.layout = scenario.layouts.front();
  const FeatureSet settled = scenario.layouts.size() == 1 ? fixed | of_layout(scenario.layout) : fixed;
  std::vector<Recompute> recomputes = recomputes_of(scenario);
  filter.keep(recomputes, settled, [&](const Recompute& one) { return features_of(one, scenario.software); });
  scenario.training.recompute = recomputes.front();
  if (!scenario.recomputes.empty()) scenario.recomputes = recomputes;
  std::vector<Offload> offloads = offloads_of(scenario);
  filter.keep(offloads, settled, [](const Offload& one) { return features_of(one); });
  scenario.training.offload = offloads.front();
  if (!scenario.offloads.empty()) scenario.offloads = offloads;
  const bool by_stage = !refused_alone(*purpose_of(scenario))[index_of(Feature::data_by_stage)];
  if (by_stage || !scenario.stage_data_pipelines) return;
  scenario.stage_data_pipelines.reset();
  scenario.left_out.emplace_back(facts_of(Feature::data_by_stage).name);
}

void keep_schedules_of_framework(const YamlValue& file, const ChosenKeys& chosen, Scenario& scenario) {
  if (!scenario.framework) return;
  FrameworkFilter filter(file, chosen, scenario);
  FeatureSet settled = fixed_features(scenario);
  if (scenario.layouts.size() == 1) settled |= features_of(scenario.layout);
  filter.keep(scenario.schedules, settled, [](const ScheduleChoice& one) { return features_of(one); });
  filter.keep(scenario.splits, settled, [](const SplitChoice& one) { return features_of(one.method); });
}

}  // namespace plumb
