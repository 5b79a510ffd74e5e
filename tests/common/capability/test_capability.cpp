// The table of capabilities has an answer for each feature and pair, and its names are those of scenarios.
#include "common/capability/capability.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

std::vector<Feature> all_features() {
  std::vector<Feature> all;
  for (std::size_t i = 0; i < feature_count; ++i) all.push_back(static_cast<Feature>(i));
  return all;
}

bool has(Feature a, Feature b, Purpose purpose) {
  const Level level = a == b ? capability(a, purpose).level : capability(a, b, purpose).level;
  return level == Level::yes;
}

}  // namespace

TEST_CASE("each feature has a phrase, and a name of its own in its group") {
  std::set<std::pair<FeatureGroup, std::string_view>> names;
  for (const Feature feature : all_features()) {
    const FeatureFacts& facts = facts_of(feature);
    CAPTURE(facts.name);
    CHECK(facts.feature == feature);
    CHECK_FALSE(facts.phrase.empty());
    CHECK_FALSE(facts.key.empty());
    CHECK(names.emplace(facts.group, facts.name).second);
  }
}

TEST_CASE("features of schedules are the registered schedules") {
  std::size_t found = 0;
  for (const ScheduleEntry& entry : schedule_entries()) {
    CAPTURE(entry.name);
    REQUIRE(find_schedule_feature(entry.name));
    CHECK(facts_of(*find_schedule_feature(entry.name)).name == entry.name);
    ++found;
  }
  const auto is_schedule = [](Feature feature) { return facts_of(feature).group == FeatureGroup::schedule; };
  CHECK(std::ranges::count_if(all_features(), is_schedule) ==
        static_cast<std::ptrdiff_t>(found) + 1);  // and that of a file
  CHECK_FALSE(find_schedule_feature("none"));
}

TEST_CASE("each pair has one answer in each column, and what a column lacks those behind it lack") {
  for (const Feature a : all_features()) {
    for (const Feature b : all_features()) {
      CAPTURE(facts_of(a).name, facts_of(b).name);
      for (const Purpose purpose : all_purposes) {
        CHECK(has(a, b, purpose) == has(b, a, purpose));
        CHECK((!has(a, b, purpose) || (has(a, a, purpose) && has(b, b, purpose))));
      }
      CHECK((has(a, b, Purpose::plan) || !has(a, b, Purpose::hosts)));
      CHECK((has(a, b, Purpose::hosts) || !has(a, b, Purpose::devices)));
      CHECK((has(a, b, Purpose::devices) || !has(a, b, Purpose::shared_device)));
    }
  }
}

TEST_CASE("a set of features is refused where one of its pairs is") {
  for (const Feature a : all_features()) {
    for (const Feature b : all_features()) {
      if (capability(a, b, Purpose::plan).level == Level::exclusive) continue;
      CAPTURE(facts_of(a).name, facts_of(b).name);
      const FeatureSet set = FeatureSet().set(index_of(a)).set(index_of(b));
      for (const Purpose purpose : all_purposes) {
        CHECK(is_refused(set, purpose) == !has(a, b, purpose));
        CHECK(refusals(set, purpose).empty() == has(a, b, purpose));
      }
    }
  }
}

TEST_CASE("each rule has a hint, a framework's rule its source, and none repeats another") {
  std::set<std::tuple<Purpose, Feature, Feature>> known;
  for (const CapabilityRule& rule : capability_rules()) {
    if (rule.level == Level::exclusive) continue;
    CAPTURE(facts_of(rule.first.front()).name);
    CHECK_FALSE(rule.hint.empty());
    CHECK((rule.purpose < Purpose::megatron || !rule.source.empty()));
    for (const Feature first : rule.first) {
      for (const Feature second : rule.second.empty() ? std::vector{first} : rule.second) {
        CHECK(known.emplace(rule.purpose, first, second).second);
        CHECK(known.count({rule.purpose, second, first}) == (first == second ? 1U : 0U));
      }
    }
  }
}

TEST_CASE("a refusal names both features, the schedule and the reason") {
  UsedFeatures used{.set = FeatureSet().set(index_of(Feature::zero1)).set(index_of(Feature::two_replicas)),
                    .schedule = "dualpipe"};
  const std::vector<Refusal> found = refusals(used, Purpose::plan);
  REQUIRE(found.size() == 1);
  CHECK(found[0].problem == "sharding zero1 cannot be planned yet with a schedule that trains two replicas: dualpipe");
  CHECK(found[0].hint == "schedule: zb-h1, or sharding: none");
  CHECK(found[0].feature == Feature::zero1);
  CHECK_THROWS_WITH(require_none(found), ContainsSubstring("layout: sharding zero1"));
  used.set.set(index_of(Feature::clipping)).set(index_of(Feature::updates_within));
  CHECK_THROWS_WITH(require_none(refusals(used, Purpose::plan)),
                    ContainsSubstring("sharding zero1 cannot be planned yet with a schedule that trains two") &&
                        ContainsSubstring("training: gradient clipping cannot be planned yet") &&
                        ContainsSubstring("(gradients are clipped once a step)"));
}

TEST_CASE("the hint of a vocabulary over the pipeline names the schedules that divide it") {
  const Capability answer = capability(Feature::vocabulary_parallel, Feature::whole_head, Purpose::plan);
  CHECK(answer.hint == "schedule: one of " + schedules_with(&ScheduleEntry::divides_vocabulary));
}
