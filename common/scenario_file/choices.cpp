#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "common/base/excerpt.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb {
namespace {

constexpr int most_auto_chunks = 4;

// The chunks that `auto` weighs: 2, 3 and 4 a rank, as far as there are layers for them.
std::vector<int> auto_chunks(int pipeline, int layers) {
  std::vector<int> chunks = {2};
  for (int count = 3; count <= most_auto_chunks && count * pipeline <= layers; ++count) chunks.push_back(count);
  return chunks;
}

void require_chunks(const YamlValue& place, const ScheduleEntry& entry, int chunks) {
  const bool can = !entry.uses_chunks        ? chunks == 1
                   : entry.fixed_chunks == 0 ? chunks % entry.chunk_multiple == 0
                                             : chunks == entry.fixed_chunks;
  if (can) return;
  place.fail("schedule '" + entry.name + "' cannot have " + std::to_string(chunks) + " chunks a rank",
             entry.fixed_chunks > 0 ? "it has " + std::to_string(entry.fixed_chunks)
                                    : "a multiple of " + std::to_string(entry.chunk_multiple));
}

std::vector<int> read_chunks(const std::optional<YamlValue>& value, const ScheduleEntry& entry, int pipeline,
                             int layers) {
  if (!entry.uses_chunks) return {1};
  const auto given = value ? auto_or_values(*value) : std::nullopt;
  if (!given) {
    if (entry.fixed_chunks > 0) return {entry.fixed_chunks};
    if (entry.uses_times) return {1, 2};  // with one chunk a rank it is a schedule of its own as well
    std::vector<int> chunks = auto_chunks(pipeline, layers);
    std::erase_if(chunks, [&](int count) { return count % entry.chunk_multiple != 0; });
    return chunks;
  }
  std::vector<int> chunks;
  for (const YamlValue& item : *given) {
    chunks.push_back(static_cast<int>(item.integer(1, most_chunks)));
    require_chunks(item, entry, chunks.back());
  }
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

// The names at `value`: `auto` means all that train exactly as one device would: not the asynchronous ones.
std::vector<const ScheduleEntry*> read_names(const YamlValue& value) {
  std::vector<const ScheduleEntry*> entries;
  const auto given = auto_or_values(value);
  if (given) {
    for (const YamlValue& item : *given) entries.push_back(&read_name(item));
  } else {
    for (const ScheduleEntry& entry : schedule_entries()) {
      if (!entry.updates_within) entries.push_back(&entry);
    }
  }
  return entries;
}

// Keys that only some schedules have a use for.
struct Extra {
  const char* key;
  bool ScheduleEntry::*used;
  int ScheduleChoice::*value;
};
constexpr std::array<Extra, 4> extras{
    {{"slices", &ScheduleEntry::uses_slices, &ScheduleChoice::slices},
     {"group", &ScheduleEntry::uses_group, &ScheduleChoice::group},
     {"in_flight", &ScheduleEntry::uses_times, &ScheduleChoice::in_flight},
     {"update_every", &ScheduleEntry::updates_within, &ScheduleChoice::update_every}}};

void read_extras(const YamlValue& value, const std::vector<const ScheduleEntry*>& entries, ScheduleChoice& choice) {
  for (const Extra& extra : extras) {
    const std::optional<YamlValue> given = value.find(extra.key);
    if (!given) continue;
    for (const ScheduleEntry* entry : entries) {
      if (!(entry->*extra.used)) {
        given->fail("schedule '" + entry->name + "' has no use for " + extra.key);
      }
    }
    choice.*extra.value = static_cast<int>(given->integer(1, most_chunks));
  }
  if (const std::optional<YamlValue> overlap = value.find("overlap")) {
    choice.overlap = overlap->boolean();
    for (const ScheduleEntry* entry : entries) {
      if (choice.overlap && !entry->uses_overlap) {
        overlap->fail("schedule '" + entry->name + "' has no form with and without overlapped pairs",
                      "interleaved-1f1b has");
      }
    }
  }
}

// "interleaved-1f1b, 4 chunks", as plans and tables write a choice (`describe` of sim/commands/describe.hpp).
ScheduleChoice read_described(const YamlValue& value) {
  const std::string text = value.text();
  const auto part_at = [&](std::size_t begin) { return text.substr(begin, text.find(',', begin) - begin); };
  ScheduleChoice choice;
  choice.name = part_at(0);
  try {
    choice.name = find_schedule(choice.name).name;
  } catch (const InputError& error) {
    value.fail(error.problem(), error.hint());
  }
  const ScheduleEntry& entry = find_schedule(choice.name);
  if (entry.fixed_chunks > 0) choice.chunks = entry.fixed_chunks;
  struct Part {
    const char* form;
    bool used;
    int ScheduleChoice::*number;
  };
  const std::array<Part, 5> parts{
      {{R"((\d{1,6}) chunks?)", entry.uses_chunks, &ScheduleChoice::chunks},
       {R"((\d{1,6}) slices?)", entry.uses_slices, &ScheduleChoice::slices},
       {R"(groups of (\d{1,6}))", entry.uses_group, &ScheduleChoice::group},
       {R"(an update every (\d{1,6}))", entry.updates_within, &ScheduleChoice::update_every},
       {R"((\d{1,6}) in flight)", entry.uses_times, &ScheduleChoice::in_flight}}};
  for (std::size_t comma = text.find(','); comma != std::string::npos; comma = text.find(',', comma + 1)) {
    const std::string part = part_at(text.find_first_not_of(' ', comma + 1));
    if (part == "overlapped" && entry.uses_overlap) {
      choice.overlap = true;
      continue;
    }
    std::smatch found;
    const auto known = std::ranges::find_if(
        parts, [&](const Part& one) { return one.used && std::regex_match(part, found, std::regex(one.form)); });
    if (known == parts.end()) {
      value.fail("schedule '" + entry.name + "' has no use for '" + excerpt(part) + "'",
                 "schedule: " + entry.name + ", or {name: " + entry.name + ", …}");
    }
    choice.*(known->number) = std::stoi(found[1]);
    if (choice.*(known->number) < 1 || choice.*(known->number) > most_chunks) {
      value.fail("'" + part + "' is not from 1 to " + std::to_string(most_chunks));
    }
  }
  require_chunks(value, entry, choice.chunks);
  return choice;
}

// One element: {file: …}, a name, or {name: …, chunks: …}, either of them `auto` or a list; beside them what only some
// have: slices, group, update_every, overlap, in_flight.
std::vector<ScheduleChoice> read_element(const YamlValue& value, const ScheduleBounds& bounds) {
  std::optional<YamlValue> chunks;
  if (value.is_text() && value.text().find(',') != std::string::npos) return {read_described(value)};
  if (value.is_map()) {
    if (value.find("file")) return {read_schedule_choice(value, bounds)};
    value.check_keys({"name", "chunks", "slices", "group", "update_every", "overlap", "in_flight"});
    chunks = value.find("chunks");
  }
  const auto entries = read_names(value.is_map() ? value.require("name") : value);
  const bool any_chunks =
      std::any_of(entries.begin(), entries.end(), [](const ScheduleEntry* entry) { return entry->uses_chunks; });
  const bool one_chunk = chunks && chunks->is_scalar() && !chunks->is_text() && chunks->integer(1, most_chunks) == 1;
  if (chunks && !any_chunks && !one_chunk) {
    chunks->fail("schedule '" + entries.front()->name + "' has one chunk a rank",
                 "chunks belong to " + schedules_with_chunks());
  }
  ScheduleChoice given;
  given.slices = 0;
  if (value.is_map()) read_extras(value, entries, given);
  std::vector<ScheduleChoice> choices;
  for (const ScheduleEntry* entry : entries) {
    ScheduleChoice choice = given;
    choice.name = entry->name;
    if (choice.slices == 0) choice.slices = entry->uses_slices ? default_slices : 1;
    for (const int count : read_chunks(chunks, *entry, bounds.pipeline, bounds.layers)) {
      choice.chunks = count;
      choices.push_back(choice);
    }
  }
  return choices;
}

const std::vector<std::string>& split_methods() {
  static const std::vector<std::string> names =
      names_of({SplitMethod::uniform, SplitMethod::parameters, SplitMethod::dynamic});
  return names;
}

// Megatron's layouts begin with the embedding or have the bar that ends a stage.
bool is_megatron(const std::string& text) { return text.find('|') != std::string::npos || text.starts_with('E'); }

// "3 × 4", as tables write four stages of 3 layers; also with x or *.
struct EqualStages {
  int layers = 0;
  int stages = 0;
};
std::optional<EqualStages> equal_stages(const std::string& text) {
  static const std::regex form(R"(\s*(\d{1,6})\s*(?:×|x|\*)\s*(\d{1,6})\s*)");
  std::smatch parts;
  if (!std::regex_match(text, parts, form)) return std::nullopt;
  return EqualStages{.layers = std::stoi(parts[1]), .stages = std::stoi(parts[2])};
}

bool is_counts(const YamlValue& value) {
  if (!value.is_list()) return false;
  const std::vector<YamlValue> items = value.items();
  return !items.empty() && std::all_of(items.begin(), items.end(), [](const YamlValue& item) {
    return item.is_scalar() && (!item.is_text() || equal_stages(item.text()));
  });
}

SplitChoice read_split(const YamlValue& value) {
  if (value.is_list()) {
    SplitChoice choice{.method = SplitMethod::counts};
    for (const YamlValue& item : value.items()) {
      if (const auto equal = item.is_text() ? equal_stages(item.text()) : std::nullopt) {
        choice.counts.insert(choice.counts.end(), static_cast<std::size_t>(equal->stages), equal->layers);
      } else {
        choice.counts.push_back(static_cast<int>(item.integer(0)));
      }
    }
    return choice;
  }
  if (value.is_text() && is_megatron(value.text())) {
    return {.method = SplitMethod::megatron, .megatron = value.text()};
  }
  return {.method = static_cast<SplitMethod>(value.choice(split_methods()))};
}

}  // namespace

std::vector<ScheduleChoice> read_schedules(const std::optional<YamlValue>& value, const ScheduleBounds& bounds) {
  if (!value) return {ScheduleChoice{}};
  if (!value->is_list()) return read_element(*value, bounds);
  std::vector<ScheduleChoice> choices;
  const auto given = auto_or_values(*value);
  for (const YamlValue& item : given.value()) {
    for (const ScheduleChoice& choice : read_element(item, bounds)) choices.push_back(choice);
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
