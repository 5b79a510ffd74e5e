#include <algorithm>

#include "common/base/error.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb {
namespace {

// arXiv 2106.09685, section 7.1: of one weight or several at the same number of parameters, query and value did best.
const std::vector<LoraTarget> default_targets = {LoraTarget::query, LoraTarget::value};

// With an alpha of 0 the adapters would add nothing, and get no gradient.
double positive(const YamlValue& alpha) {
  const double value = alpha.number();
  if (value == 0) alpha.fail(alpha.path() + ": with 0 the adapters would never change the model", "alpha: 16");
  return value;
}

std::string names_of(const std::vector<LoraTarget>& targets) {
  std::string text;
  for (const LoraTarget target : targets) {
    text += (text.empty() ? "" : ", ") + lora_target_names()[static_cast<std::size_t>(target)];
  }
  return text;
}

template <class Range, class Value>
bool contains(const Range& range, const Value& value) {
  return std::ranges::find(range, value) != range.end();
}

// Of a name that stands for several, those that the model has.
std::vector<LoraTarget> read_target(const YamlValue& value, const std::vector<LoraTarget>& in_model) {
  const std::vector<LoraTarget> named = lora_targets_of(value.text());
  if (named.empty()) {
    const std::string near = did_you_mean(value.text(), lora_target_words());
    value.fail("there is no projection '" + value.text() + "'",
               near.empty() ? "this model has " + names_of(in_model) + "; all" : near);
  }
  std::vector<LoraTarget> found;
  for (const LoraTarget target : named) {
    if (contains(in_model, target)) found.push_back(target);
  }
  if (found.empty()) {
    value.fail("no layer of this model has the projection '" + value.text() + "'", "it has " + names_of(in_model));
  }
  return found;
}

std::vector<LoraTarget> read_targets(const YamlValue& value, const std::vector<LoraTarget>& in_model) {
  std::vector<LoraTarget> targets;
  for (const YamlValue& item : value.is_list() ? value.items() : std::vector<YamlValue>{value}) {
    for (const LoraTarget target : read_target(item, in_model)) {
      if (contains(targets, target)) {
        item.fail("'" + item.text() + "': the projection " + names_of({target}) + " stands twice");
      }
      targets.push_back(target);
    }
  }
  std::ranges::sort(targets);
  return targets;
}

}  // namespace

std::optional<Lora> read_lora(const std::optional<YamlValue>& given, const Model& model) {
  if (!given || (given->is_text() && given->text() == "none")) return std::nullopt;
  const std::vector<LoraTarget> in_model = lora_targets_in(model);
  Lora lora;
  if (const auto rank = given->find("rank")) lora.rank = rank->integer(1, model.hidden);
  lora.alpha = static_cast<double>(lora.rank);
  if (const auto alpha = given->find("alpha")) lora.alpha = positive(*alpha);
  if (const auto targets = given->find("targets")) {
    lora.targets = read_targets(*targets, in_model);
    return lora;
  }
  for (const LoraTarget target : default_targets) {
    if (contains(in_model, target)) lora.targets.push_back(target);
  }
  if (lora.targets.empty()) {
    given->fail("lora: no layer of this model has the projections query or value, which are the default",
                "targets: a list of " + names_of(in_model) + "; all");
  }
  return lora;
}

}  // namespace plumb
