#include "common/capability/capability.hpp"

#include <algorithm>
#include <utility>

#include "common/base/input_errors.hpp"

namespace plumb {
namespace {

std::size_t index(Purpose purpose) { return static_cast<std::size_t>(purpose); }

bool is_framework(Purpose purpose) { return purpose == Purpose::megatron || purpose == Purpose::torchtitan; }

// Returns true if a rule of the column `rule` holds for the column `purpose` too.
bool holds_for(Purpose rule, Purpose purpose) {
  return is_framework(rule) || is_framework(purpose) ? rule == purpose : rule <= purpose;
}

FeatureSet set_of(const std::vector<Feature>& features) {
  FeatureSet set;
  for (const Feature feature : features) set.set(index_of(feature));
  return set;
}

struct CompiledRule {
  const CapabilityRule* rule = nullptr;
  FeatureSet first = {};
  FeatureSet second = {};
};

// The rules of one column, exclusive values apart.
std::vector<CompiledRule> compiled_rules(Purpose purpose) {
  std::vector<CompiledRule> compiled;
  for (const CapabilityRule& rule : capability_rules()) {
    if (rule.level == Level::exclusive || !holds_for(rule.purpose, purpose)) continue;
    compiled.push_back({.rule = &rule, .first = set_of(rule.first), .second = set_of(rule.second)});
  }
  return compiled;
}

const std::vector<CompiledRule>& rules_for(Purpose purpose) {
  static const std::array<std::vector<CompiledRule>, all_purposes.size()> all = [] {
    std::array<std::vector<CompiledRule>, all_purposes.size()> columns;
    for (const Purpose each : all_purposes) columns.at(index(each)) = compiled_rules(each);
    return columns;
  }();
  return all.at(index(purpose));
}

bool breaks(const FeatureSet& set, const CompiledRule& rule) {
  return (set & rule.first).any() && (rule.rule->second.empty() || (set & rule.second).any());
}

bool has(const std::vector<Feature>& features, Feature feature) {
  return std::ranges::find(features, feature) != features.end();
}

bool is_about(const CapabilityRule& rule, Feature a, Feature b) {
  return (has(rule.first, a) && has(rule.second, b)) || (has(rule.first, b) && has(rule.second, a));
}

Capability answer_of(const CapabilityRule& rule) {
  return {.level = rule.level, .reason = rule.reason, .hint = rule.hint, .source = rule.source};
}

std::string phrase_of(Feature feature, const std::string& schedule) {
  std::string phrase(facts_of(feature).phrase);
  constexpr std::string_view place = "{schedule}";
  const std::size_t at = phrase.find(place);
  if (at == std::string::npos) return phrase;
  return phrase.replace(at, place.size(), schedule.empty() ? "the schedule" : schedule);
}

std::string problem_of(const CapabilityRule& rule, Feature feature, std::optional<Feature> with,
                       const std::string& schedule) {
  const std::string what = phrase_of(feature, schedule);
  const std::string other = with ? phrase_of(*with, schedule) : "";
  const std::string both = with ? what + " with " + other : what;
  std::string text;
  switch (rule.purpose) {
    case Purpose::plan:
      text = !with ? what + " is not supported yet" : what + " cannot be planned yet with " + other;
      break;
    case Purpose::hosts:
      text = both + " is not executed yet";
      break;
    case Purpose::devices:
      text = both + " on a GPU or over NCCL is not executed yet";
      break;
    case Purpose::shared_device:
      text = both + " is not executed yet where ranks share one device";
      break;
    case Purpose::megatron:
      text = "Megatron-LM does not run " + both;
      break;
    case Purpose::torchtitan:
      text = "torchtitan does not run " + both;
      break;
  }
  if (with && rule.level == Level::never) text = what + " cannot be combined with " + other;
  return rule.reason.empty() ? text : text + " (" + std::string(rule.reason) + ")";
}

void add_refusals(const CompiledRule& compiled, const UsedFeatures& used, std::vector<Refusal>& all) {
  const CapabilityRule& rule = *compiled.rule;
  const auto add = [&](Feature feature, std::optional<Feature> with) {
    all.push_back({.feature = feature,
                   .with = with,
                   .problem = problem_of(rule, feature, with, used.schedule),
                   .hint = std::string(rule.hint)});
  };
  for (const Feature feature : rule.first) {
    if (!used.set[index_of(feature)]) continue;
    if (rule.second.empty()) add(feature, std::nullopt);
    for (const Feature with : rule.second) {
      if (used.set[index_of(with)]) add(feature, with);
    }
  }
}

}  // namespace

std::string_view column_of(Purpose purpose) {
  constexpr std::array<std::string_view, all_purposes.size()> names = {"planned",       "hosts",       "devices",
                                                                       "shared device", "Megatron-LM", "torchtitan"};
  return names.at(index(purpose));
}

Capability capability(Feature feature, Purpose purpose) {
  for (const CompiledRule& rule : rules_for(purpose)) {
    if (rule.rule->second.empty() && has(rule.rule->first, feature)) return answer_of(*rule.rule);
  }
  return {};
}

Capability capability(Feature a, Feature b, Purpose purpose) {
  if (a == b) return capability(a, purpose);
  for (const CapabilityRule& rule : capability_rules()) {
    const bool applies = rule.level == Level::exclusive || holds_for(rule.purpose, purpose);
    if (applies && is_about(rule, a, b)) return answer_of(rule);
  }
  const Capability alone = capability(a, purpose);
  return alone.level != Level::yes ? alone : capability(b, purpose);
}

std::vector<Refusal> refusals(const UsedFeatures& used, Purpose purpose) {
  std::vector<Refusal> all;
  for (const CompiledRule& rule : rules_for(purpose)) {
    if (breaks(used.set, rule)) add_refusals(rule, used, all);
  }
  return all;
}

std::vector<Refusal> refusals(const FeatureSet& set, Purpose purpose) {
  const UsedFeatures used{.set = set};
  return refusals(used, purpose);
}

bool is_refused(const FeatureSet& set, Purpose purpose) {
  return std::ranges::any_of(rules_for(purpose), [&](const CompiledRule& rule) { return breaks(set, rule); });
}

FeatureSet refused_alone(Purpose purpose) {
  FeatureSet set;
  for (const CompiledRule& rule : rules_for(purpose)) {
    if (rule.rule->second.empty()) set |= rule.first;
  }
  return set;
}

InputError error_of(const Refusal& refusal) {
  const std::string_view key = facts_of(refusal.feature).key;
  return {std::string(key.substr(0, key.find('.'))), refusal.problem, refusal.hint};
}

void require_none(const std::vector<Refusal>& refusals) {
  InputErrors errors;
  for (const Refusal& refusal : refusals) errors.add(error_of(refusal));
  errors.throw_if_any();
}

}  // namespace plumb
