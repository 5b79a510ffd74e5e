#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "common/base/excerpt.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/slices.hpp"

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
    chunks.push_back(item.small_integer());
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

// The names at `value`: `auto` means all that train exactly as one device would: not the asynchronous ones. On one
// pipeline rank all of these take the same time, and 1F1B needs the least memory.
std::vector<const ScheduleEntry*> read_names(const YamlValue& value, const ScheduleBounds& bounds) {
  std::vector<const ScheduleEntry*> entries;
  const auto given = auto_or_values(value);
  if (given) {
    for (const YamlValue& item : *given) entries.push_back(&read_name(item));
  } else if (bounds.pipeline == 1 && !bounds.open) {
    entries.push_back(&find_schedule("1f1b"));
  } else {
    for (const ScheduleEntry& entry : schedule_entries()) {
      if (!entry.updates_within) entries.push_back(&entry);
    }
  }
  return entries;
}

// Tokens that are written down stay so also where they are equal: their sum is the sequence.
void write_slices(std::vector<std::int64_t> tokens, ScheduleChoice& choice) {
  choice.slices = static_cast<int>(tokens.size());
  choice.slice_tokens = std::move(tokens);
}

// Keys that only some schedules have a use for.
struct Extra {
  const char* key;
  bool ScheduleEntry::*used;
  int ScheduleChoice::*value;
};
constexpr std::array<Extra, 3> extras{
    {{"group", &ScheduleEntry::uses_group, &ScheduleChoice::group},
     {"in_flight", &ScheduleEntry::uses_times, &ScheduleChoice::in_flight},
     {"update_every", &ScheduleEntry::updates_within, &ScheduleChoice::update_every}}};

// The key's value, of which all of these schedules have a use.
std::optional<YamlValue> find_used(const YamlValue& value, const char* key, bool ScheduleEntry::*used,
                                   const std::vector<const ScheduleEntry*>& entries) {
  std::optional<YamlValue> given = value.find(key);
  for (const ScheduleEntry* entry : entries) {
    if (given && !(entry->*used)) given->fail("schedule '" + entry->name + "' has no use for " + key);
  }
  return given;
}

// `slices: 4`, or the tokens of each; `slices_by`.
void read_slices(const YamlValue& value, const std::vector<const ScheduleEntry*>& entries, ScheduleChoice& choice) {
  const std::optional<YamlValue> slices = find_used(value, "slices", &ScheduleEntry::uses_slices, entries);
  const std::optional<YamlValue> by = find_used(value, "slices_by", &ScheduleEntry::uses_slices, entries);
  if (by) choice.slices_by = static_cast<SlicesBy>(by->choice(slices_by_names()));
  if (slices && !slices->is_list()) choice.slices = slices->small_integer();
  if (!slices || !slices->is_list()) return;
  if (by && choice.slices_by == SlicesBy::work) {
    by->fail("slices are either of equal work or of the tokens that are written down",
             "slices: " + std::to_string(slices->items().size()) + ", slices_by: work");
  }
  std::vector<std::int64_t> tokens;
  for (const YamlValue& item : slices->items()) tokens.push_back(item.integer());
  write_slices(std::move(tokens), choice);
}

void read_extras(const YamlValue& value, const std::vector<const ScheduleEntry*>& entries, ScheduleChoice& choice) {
  for (const Extra& extra : extras) {
    const std::optional<YamlValue> given = find_used(value, extra.key, extra.used, entries);
    if (given) choice.*extra.value = given->small_integer();
  }
  read_slices(value, entries, choice);
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

// "4 slices by work", "slices of 1536 + 1024 + 896 + 640"; whether it is one of them.
bool reads_slices(const std::string& part, const YamlValue& place, ScheduleChoice& choice) {
  static const std::regex by_work(R"((\d{1,6}) slices? by work)");
  static const std::regex written(R"(slices of \d{1,10}(?: ?\+ ?\d{1,10})*)");
  static const std::regex number(R"(\d+)");
  std::smatch found;
  if (std::regex_match(part, found, by_work)) {
    choice.slices = std::stoi(found[1]);
    choice.slices_by = SlicesBy::work;
    if (choice.slices < 1 || choice.slices > most_chunks) {
      place.fail("'" + part + "' is not from 1 to " + std::to_string(most_chunks));
    }
    return true;
  }
  if (!std::regex_match(part, written)) return false;
  std::vector<std::int64_t> tokens;
  for (std::sregex_iterator at(part.begin(), part.end(), number); at != std::sregex_iterator(); ++at) {
    tokens.push_back(std::stoll(at->str()));
  }
  if (tokens.size() > static_cast<std::size_t>(most_chunks)) place.fail("'" + excerpt(part) + "' are too many slices");
  write_slices(std::move(tokens), choice);
  return true;
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
    if (entry.uses_slices && reads_slices(part, value, choice)) continue;
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
// have: slices, slices_by, group, update_every, overlap, in_flight.
std::vector<ScheduleChoice> read_element(const YamlValue& value, const ScheduleBounds& bounds) {
  std::optional<YamlValue> chunks;
  if (value.is_text() && value.text().find(',') != std::string::npos) return {read_described(value)};
  if (value.is_map()) {
    if (value.find("file")) return {read_schedule_choice(value, bounds)};
    chunks = value.find("chunks");
  }
  const auto entries = read_names(value.is_map() ? value.require("name") : value, bounds);
  const bool any_chunks =
      std::any_of(entries.begin(), entries.end(), [](const ScheduleEntry* entry) { return entry->uses_chunks; });
  const bool one_chunk = chunks && chunks->is_number() && chunks->integer() == 1;
  if (chunks && !any_chunks && !one_chunk) {
    chunks->fail("schedule '" + entries.front()->name + "' has one chunk a rank",
                 "chunks belong to " + schedules_with(&ScheduleEntry::uses_chunks));
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
        choice.counts.push_back(item.small_integer());
      }
    }
    return choice;
  }
  if (value.is_text() && is_megatron(value.text())) {
    return {.method = SplitMethod::megatron, .megatron = value.text()};
  }
  return {.method = static_cast<SplitMethod>(value.choice(split_methods()))};
}

void check_choice(const FieldShape& shape, const YamlValue& value) {
  InputErrors errors;
  check_fields(shape, value, errors, &scenario_block());
  errors.throw_if_any();
}

}  // namespace

std::vector<ScheduleChoice> read_schedules(const std::optional<YamlValue>& value, const ScheduleBounds& bounds) {
  if (!value) return {ScheduleChoice{}};
  check_choice(schedule_shape(), *value);
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
  check_choice(split_shape(), *value);
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
  // Two methods may come to the same cut, which then has the name of the first: not of whichever stands first in a
  // file.
  std::ranges::stable_sort(choices, {}, &SplitChoice::method);
  return choices;
}

}  // namespace plumb
