#include "common/schedule/interchange/schedule_json.hpp"

#include <algorithm>
#include <array>

#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {
namespace {

constexpr int most_ranks = 1 << 20;

// Indexed by WeightVersions.
constexpr std::array<std::string_view, 3> version_names{"single", "stashed", "delayed"};

std::vector<int> placement_from_json(const JsonValue& value, int ranks) {
  std::vector<int> rank_of_stage;
  for (std::size_t stage = 0; stage < value.size(); ++stage) {
    rank_of_stage.push_back(value[stage].small_integer(0, ranks - 1));
  }
  if (rank_of_stage.empty()) value.fail("is empty, expected at least one stage");
  return rank_of_stage;
}

std::vector<Action> actions_from_json(const JsonValue& value) {
  try {
    return parse_actions(value.text());
  } catch (const InputError& error) {
    value.fail(error.where() + ": " + error.problem(), error.hint());
  }
}

std::vector<std::int64_t> slice_tokens_from_json(const JsonValue& value, int slices) {
  std::vector<std::int64_t> tokens;
  if (value.size() != static_cast<std::size_t>(slices)) {
    value.fail("has " + std::to_string(value.size()) + " entries for " + std::to_string(slices) + " slices");
  }
  for (std::size_t slice = 0; slice < value.size(); ++slice)
    tokens.push_back(value[slice].integer(1, longest_sequence));
  return unequal(std::move(tokens));
}

OverlappedPair pair_from_json(const JsonValue& value) {
  const std::vector<Action> pair = actions_from_json(value);
  if (pair.size() != 2) value.fail("has " + std::to_string(pair.size()) + " actions, expected two");
  return {pair[0], pair[1]};
}

WeightVersions versions_from_json(const JsonValue& value) {
  const std::string name = value.text();
  const auto found = std::ranges::find(version_names, name);
  if (found != version_names.end()) return static_cast<WeightVersions>(found - version_names.begin());
  value.fail("has the unknown value '" + excerpt(name) + "'",
             did_you_mean(name, {version_names.begin(), version_names.end()}));
}

void read_lists(const JsonValue& value, Schedule& schedule) {
  const JsonValue actions = value.at("actions");
  for (std::size_t rank = 0; rank < actions.size(); ++rank) {
    schedule.actions.push_back(actions_from_json(actions[rank]));
  }
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.ranks)) {
    actions.fail("has " + std::to_string(schedule.actions.size()) + " lists for " + std::to_string(schedule.ranks) +
                 " ranks");
  }
  // Every microbatch has an F on every stage; checks would take memory for pairs that no list can hold.
  std::size_t count = 0;
  for (const auto& list : schedule.actions) count += list.size();
  if (static_cast<double>(schedule.microbatches) * static_cast<double>(schedule.rank_of_stage.size()) >
      static_cast<double>(count)) {
    value.fail("has " + std::to_string(count) + " actions, too few for " + std::to_string(schedule.microbatches) +
               " microbatches on " + std::to_string(schedule.rank_of_stage.size()) + " stages");
  }
}

void require_chunks(const JsonValue& value, const Schedule& schedule) {
  const int most = most_chunks_of_rank(schedule);
  if (schedule.chunks != most) {
    value.at("chunks").fail("is " + std::to_string(schedule.chunks) + ", but the rank with most stages has " +
                            std::to_string(most));
  }
}

}  // namespace

Json to_json(const Schedule& schedule) {
  Json actions = Json::array();
  for (const auto& list : schedule.actions) actions.push_back(to_text(list));
  Json json{{"name", schedule.name},
            {"ranks", schedule.ranks},
            {"microbatches", schedule.microbatches},
            {"chunks", schedule.chunks},
            {"rank_of_stage", schedule.rank_of_stage}};
  if (schedule.slices > 1) json["slices"] = schedule.slices;
  if (!schedule.slice_tokens.empty()) json["slice_tokens"] = schedule.slice_tokens;
  if (replicas(schedule) == 2) json["second_rank_of_stage"] = schedule.second_rank_of_stage;
  if (!schedule.overlapped.empty()) {
    Json pairs = Json::array();
    for (const OverlappedPair& pair : schedule.overlapped) pairs.push_back(to_text({pair.first, pair.second}));
    json["overlapped"] = std::move(pairs);
  }
  if (schedule.versions != WeightVersions::single) {
    json["versions"] = version_names[static_cast<std::size_t>(schedule.versions)];
    json["update_every"] = schedule.update_every;
  }
  if (schedule.vocabulary_barriers > 0) json["vocabulary_barriers"] = schedule.vocabulary_barriers;
  json["actions"] = std::move(actions);
  return json;
}

Schedule schedule_from_json(const JsonValue& value) {
  value.require_only({"name", "ranks", "microbatches", "chunks", "rank_of_stage", "slices", "slice_tokens",
                      "second_rank_of_stage", "overlapped", "versions", "update_every", "vocabulary_barriers",
                      "actions"});
  Schedule schedule{.name = value.at("name").text(),
                    .ranks = value.at("ranks").small_integer(1, most_ranks),
                    .microbatches = value.at("microbatches").small_integer(1),
                    .chunks = value.at("chunks").small_integer(1, most_ranks),
                    .slices = 1,
                    .rank_of_stage = {},
                    .actions = {}};
  schedule.rank_of_stage = placement_from_json(value.at("rank_of_stage"), schedule.ranks);
  if (const auto slices = value.find("slices")) schedule.slices = slices->small_integer(1);
  if (const auto tokens = value.find("slice_tokens"))
    schedule.slice_tokens = slice_tokens_from_json(*tokens, schedule.slices);
  if (const auto second = value.find("second_rank_of_stage")) {
    schedule.second_rank_of_stage = placement_from_json(*second, schedule.ranks);
  }
  if (const auto pairs = value.find("overlapped")) {
    for (std::size_t i = 0; i < pairs->size(); ++i) schedule.overlapped.push_back(pair_from_json((*pairs)[i]));
    std::ranges::sort(schedule.overlapped);
  }
  if (const auto versions = value.find("versions")) schedule.versions = versions_from_json(*versions);
  if (const auto every = value.find("update_every")) schedule.update_every = every->small_integer(1);
  if (const auto barriers = value.find("vocabulary_barriers")) {
    schedule.vocabulary_barriers = barriers->small_integer(1, 2);
    if (schedule.rank_of_stage.size() < 3 * static_cast<std::size_t>(schedule.ranks)) {
      value.at("rank_of_stage").fail("has no two parts of the vocabulary on each rank behind the other stages");
    }
  }
  read_lists(value, schedule);
  try {
    require_well_formed(schedule);
  } catch (const InputError& error) {
    value.fail(error.problem(), error.hint());
  }
  require_chunks(value, schedule);
  return schedule;
}

}  // namespace plumb
