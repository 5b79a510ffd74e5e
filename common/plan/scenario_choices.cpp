#include <algorithm>

#include "common/plan/plan.hpp"
#include "common/plan/scenario_blocks.hpp"
#include "common/schedule/registry.hpp"

namespace plumb {
namespace {

constexpr int most_chunks = 4096;
constexpr int most_auto_chunks = 4;

// The chunks that `auto` weighs: 2, 3 and 4 a rank, as far as there are layers for them.
std::vector<int> auto_chunks(int pipeline, int layers) {
  std::vector<int> chunks = {2};
  for (int count = 3; count <= most_auto_chunks && count * pipeline <= layers; ++count) chunks.push_back(count);
  return chunks;
}

std::vector<int> read_chunks(const std::optional<YamlValue>& value, int pipeline, int layers) {
  const auto given = value ? auto_or_values(*value) : std::nullopt;
  if (!given) return auto_chunks(pipeline, layers);
  std::vector<int> chunks;
  for (const YamlValue& item : *given) chunks.push_back(static_cast<int>(item.integer(1, most_chunks)));
  return chunks;
}

const ScheduleEntry& read_name(const YamlValue& value) {
  try {
    return find_schedule(value.text());
  } catch (const InputError& error) {
    if (error.where() != "schedule") throw;
    value.fail(error.problem(), error.hint());
  }
}

// The names at `value`: `auto` means all.
std::vector<const ScheduleEntry*> read_names(const YamlValue& value) {
  std::vector<const ScheduleEntry*> entries;
  const auto given = auto_or_values(value);
  if (given) {
    for (const YamlValue& item : *given) entries.push_back(&read_name(item));
  } else {
    for (const ScheduleEntry& entry : schedule_entries()) entries.push_back(&entry);
  }
  return entries;
}

// One element: a name, or {name: …, chunks: …}, either of them `auto` or a list.
std::vector<ScheduleChoice> read_element(const YamlValue& value, int pipeline, int layers) {
  std::optional<YamlValue> chunks;
  if (value.is_map()) {
    value.check_keys({"name", "chunks"});
    chunks = value.find("chunks");
  }
  const auto entries = read_names(value.is_map() ? value.require("name") : value);
  const bool any_chunks =
      std::any_of(entries.begin(), entries.end(), [](const ScheduleEntry* entry) { return entry->uses_chunks; });
  if (chunks && !any_chunks && read_chunks(chunks, pipeline, layers) != std::vector<int>{1}) {
    chunks->fail("schedule '" + entries.front()->name + "' has one chunk a rank",
                 "chunks belong to " + schedules_with_chunks());
  }
  std::vector<ScheduleChoice> choices;
  for (const ScheduleEntry* entry : entries) {
    const std::vector<int> counts = entry->uses_chunks ? read_chunks(chunks, pipeline, layers) : std::vector<int>{1};
    for (const int count : counts) choices.push_back({.name = entry->name, .chunks = count});
  }
  return choices;
}

const std::vector<std::string>& split_methods() {
  static const std::vector<std::string> names = {"uniform", "parameters", "dynamic"};
  return names;
}

// Megatron's layouts begin with the embedding or have the bar that ends a stage.
bool is_megatron(const std::string& text) { return text.find('|') != std::string::npos || text.starts_with('E'); }

bool is_counts(const YamlValue& value) {
  if (!value.is_list()) return false;
  const std::vector<YamlValue> items = value.items();
  return !items.empty() && std::all_of(items.begin(), items.end(),
                                       [](const YamlValue& item) { return item.is_scalar() && !item.is_text(); });
}

SplitChoice read_split(const YamlValue& value) {
  if (value.is_list()) {
    SplitChoice choice{.method = SplitMethod::counts};
    for (const YamlValue& item : value.items()) choice.counts.push_back(static_cast<int>(item.integer(0)));
    return choice;
  }
  if (value.is_text() && is_megatron(value.text())) {
    return {.method = SplitMethod::megatron, .megatron = value.text()};
  }
  return {.method = static_cast<SplitMethod>(value.choice(split_methods()))};
}

}  // namespace

std::vector<ScheduleChoice> read_schedules(const std::optional<YamlValue>& value, int pipeline, int layers) {
  if (!value) return {ScheduleChoice{}};
  if (!value->is_list()) return read_element(*value, pipeline, layers);
  std::vector<ScheduleChoice> choices;
  const auto given = auto_or_values(*value);
  for (const YamlValue& item : given.value()) {
    for (const ScheduleChoice& choice : read_element(item, pipeline, layers)) choices.push_back(choice);
  }
  return choices;
}

std::vector<SplitChoice> read_splits(const std::optional<YamlValue>& value) {
  if (!value) return {SplitChoice{}};
  if (is_counts(*value)) return {read_split(*value)};
  std::vector<SplitChoice> choices;
  const auto given = auto_or_values(*value);
  if (given) {
    for (const YamlValue& item : *given) choices.push_back(read_split(item));
  } else {
    for (std::size_t method = 0; method < split_methods().size(); ++method) {
      choices.push_back({.method = static_cast<SplitMethod>(method)});
    }
  }
  return choices;
}

}  // namespace plumb
