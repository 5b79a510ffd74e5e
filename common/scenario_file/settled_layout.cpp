// What one layout cannot be beside its model, sequence and training, told at the key that asks for it.
#include "common/base/error.hpp"
#include "common/base/input_errors.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/scenario/used_features.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb {

void require_divided_model(const YamlValue& file, const LayoutChoices& choices, const Model& model) {
  if (choices.layouts.size() > 1) return;
  Layout layout = choices.layouts.front();
  try {
    require_divisible(model, layout);
  } catch (const InputError& error) {
    const YamlValue place = choices.tensor_place ? *choices.tensor_place : file.require("layout");
    if (is_grid(layout.tensor)) place.fail(error.problem(), error.hint());
    while (!is_divisible(model, layout)) --layout.tensor.degree;
    place.fail(error.problem(), "a tensor degree of " + std::to_string(layout.tensor.degree));
  }
}

void require_divided_sequence(const YamlValue& file, const std::optional<YamlValue>& given,
                              const LayoutChoices& choices, std::int64_t sequence) {
  if (choices.layouts.size() > 1) return;
  try {
    require_divides_sequence(choices.layouts.front().tensor, sequence);
  } catch (const InputError& error) {
    (given ? *given : file.require("layout")).fail(error.problem(), error.hint());
  }
}

void require_vocabulary(const LayoutChoices& choices, const Scenario& scenario) {
  if (!choices.vocabulary_place) return;
  try {
    require_divided_vocabulary(scenario);
  } catch (const InputError& error) {
    choices.vocabulary_place->fail(error.problem(), error.hint());
  }
}

YamlValue place_of_key(const YamlValue& file, std::string_view key) {
  YamlValue place = file;
  while (!key.empty()) {
    const std::size_t dot = key.find('.');
    const auto next = place.is_map() ? place.find(key.substr(0, dot)) : std::nullopt;
    if (!next) break;
    place = *next;
    key = dot == std::string_view::npos ? "" : key.substr(dot + 1);
  }
  return place;
}

void require_planned_together(const YamlValue& file, const std::optional<YamlValue>& schedule,
                              const LayoutChoices& choices, const Scenario& scenario) {
  const auto place_of = [&](Feature feature) {
    const std::string_view key = facts_of(feature).key;
    if (feature == Feature::vocabulary_parallel && choices.vocabulary_place) return *choices.vocabulary_place;
    if (key.starts_with("schedule") && schedule) return *schedule;
    return place_of_key(file, key);
  };
  UsedFeatures used = settled_features(scenario);
  used.set.reset(index_of(Feature::no_host));  // require_numbers names the key and its lines
  InputErrors errors;
  for (const Refusal& refusal : refusals(scenario, used)) {
    errors.attempt([&] { place_of(refusal.feature).fail(refusal.problem, refusal.hint); });
  }
  errors.throw_if_any();
}

}  // namespace plumb
