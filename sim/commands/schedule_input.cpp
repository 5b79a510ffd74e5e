#include "sim/commands/schedule_input.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/schedule_file.hpp"
#include "common/schedule/validate/validate.hpp"

namespace plumb::sim {
namespace {

using Shape = std::pair<const char*, int ShapeOptions::*>;
constexpr std::array<Shape, 7> shape_options{{{"--ranks", &ShapeOptions::ranks},
                                              {"--microbatches", &ShapeOptions::microbatches},
                                              {"--vocabulary", &ShapeOptions::vocabulary},
                                              {"--chunks", &ShapeOptions::chunks},
                                              {"--slices", &ShapeOptions::slices},
                                              {"--group", &ShapeOptions::group},
                                              {"--update-every", &ShapeOptions::update_every}}};
// Behind them those that a description says.
constexpr std::size_t undescribed = 3;

// "interleaved-1f1b, 4 chunks" is read as a scenario reads it, and says all but ranks, microbatches and what stands in
// the layout.
ScheduleOptions with_description(ScheduleOptions options) {
  if (options.input.find(',') == std::string::npos) return options;
  const YamlValue value = YamlValue::parse(options.input, "NAME");
  if (!value.is_text()) return options;
  const ScheduleChoice choice = read_schedules(value, {.open = true}).front();
  for (const auto& [name, given] : std::span(shape_options).subspan(undescribed)) {
    if (options.*given == 0) continue;
    throw InputError(name, fmt::format("is given twice: '{}' has it, too", options.input),
                     fmt::format("{} alone, or that without {}", choice.name, name));
  }
  if (!choice.slice_tokens.empty() || choice.in_flight > 0) {
    throw InputError("NAME", fmt::format("'{}' needs the sizes of a scenario", options.input),
                     fmt::format("plumb plan FILE --schedule '{}'", options.input));
  }
  options.input = choice.name;
  options.chunks = choice.chunks;
  options.slices = choice.slices;
  options.group = choice.group;
  options.update_every = choice.update_every;
  options.overlap = options.overlap || choice.overlap;
  return options;
}

NamedSchedule generated(const ScheduleOptions& given, const ShareTimes& times) {
  const ScheduleOptions options = with_description(given);
  const ScheduleEntry& entry = find_schedule(options.input);
  for (const auto& [name, value] : {shape_options[0], shape_options[1]}) {
    if (options.*value == 0)
      throw InputError(name, "is required", "a schedule by name needs --ranks and --microbatches");
  }
  return {.schedule = generate(entry, shape_for(entry, options), times), .title = entry.title, .source = entry.source};
}

NamedSchedule from_file(const ScheduleOptions& options) {
  for (const auto& [name, value] : shape_options) {
    if (options.*value != 0) {
      throw InputError(name, fmt::format("belongs to a schedule by name, but {} is a file", options.input));
    }
  }
  if (options.overlap) {
    throw InputError("--overlap", fmt::format("belongs to a schedule by name, but {} is a file", options.input));
  }
  ScheduleReading reading = read_schedule_text(read_file(options.input), options.input, alphabet_of(options.alphabet));
  print_notes(reading.notes);
  try {
    require_valid(reading.schedule);
  } catch (const InputError& error) {
    throw InputError(options.input, error.problem(), "plumb schedule check " + options.input + " lists all problems");
  }
  return {
      .schedule = std::move(reading.schedule), .title = options.input, .source = reading.taken_for, .from_file = true};
}

}  // namespace

void add_schedule_options(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option("NAME|FILE", options.input,
                  "A name of plumb list schedules, or a file: CSV of torch.distributed.pipelining, JSON, a plan.")
      ->required();
  add_shape(command, options, false);
  command.add_flag("--json", options.json, "Prints one JSON object.");
}

void add_alphabet(CLI::App& command, std::string& alphabet, const std::string& what) {
  command
      .add_option("--alphabet", alphabet,
                  what + " today: B full backward, I input gradient; 2024: BW full backward, B input gradient.")
      ->check(CLI::IsMember({"today", "2024"}));
}

std::optional<CsvAlphabet> alphabet_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text == "2024" ? CsvAlphabet::of_2024 : CsvAlphabet::today;
}

bool is_registered(const std::string& name) {
  return std::ranges::any_of(schedule_entries(), [&](const ScheduleEntry& entry) { return entry.name == name; });
}

NamedSchedule schedule_of(const ScheduleOptions& options, const ShareTimes& times) {
  std::error_code missing;
  const bool is_file = options.input == standard_stream || std::filesystem::is_regular_file(options.input, missing) ||
                       options.input.find_first_of("./") != std::string::npos;
  return is_registered(options.input) || !is_file ? generated(options, times) : from_file(options);
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_note(note);
}

}  // namespace plumb::sim
