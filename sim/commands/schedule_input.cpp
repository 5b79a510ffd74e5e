#include "sim/commands/schedule_input.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/schedule/registry.hpp"
#include "common/schedule/schedule_file.hpp"
#include "common/schedule/validate.hpp"

namespace plumb::sim {
namespace {

using Shape = std::pair<const char*, int ScheduleOptions::*>;
constexpr std::array<Shape, 6> shape_options{{{"--ranks", &ScheduleOptions::ranks},
                                              {"--microbatches", &ScheduleOptions::microbatches},
                                              {"--chunks", &ScheduleOptions::chunks},
                                              {"--slices", &ScheduleOptions::slices},
                                              {"--group", &ScheduleOptions::group},
                                              {"--update-every", &ScheduleOptions::update_every}}};

bool is_registered(const std::string& name) {
  return std::ranges::any_of(schedule_entries(), [&](const ScheduleEntry& entry) { return entry.name == name; });
}

NamedSchedule generated(const ScheduleOptions& options) {
  const ScheduleEntry& entry = find_schedule(options.input);
  for (const auto& [name, value] : {shape_options[0], shape_options[1]}) {
    if (options.*value == 0)
      throw InputError(name, "is required", "a schedule by name needs --ranks and --microbatches");
  }
  const int chunks = options.chunks > 0 ? options.chunks : (entry.uses_chunks ? 2 : 1);
  return {.schedule =
              entry.generate({.ranks = options.ranks,
                              .microbatches = options.microbatches,
                              .chunks = chunks,
                              .slices = options.slices > 0 ? options.slices : (entry.uses_slices ? default_slices : 1),
                              .group = options.group,
                              .update_every = options.update_every}),
          .title = fmt::format("{} ({})", entry.title, entry.source)};
}

NamedSchedule from_file(const ScheduleOptions& options) {
  for (const auto& [name, value] : shape_options) {
    if (options.*value != 0) {
      throw InputError(name, fmt::format("belongs to a schedule by name, but {} is a file", options.input));
    }
  }
  ScheduleReading reading = read_schedule_text(read_file(options.input), options.input, alphabet_of(options.alphabet));
  print_notes(reading.notes);
  try {
    require_valid(reading.schedule);
  } catch (const InputError& error) {
    throw InputError(options.input, error.problem(), "plumb schedule check " + options.input + " lists all problems");
  }
  return {.schedule = std::move(reading.schedule),
          .title = fmt::format("{} ({})", options.input, reading.taken_for),
          .from_file = true};
}

}  // namespace

void add_schedule_options(CLI::App& command, ScheduleOptions& options) {
  constexpr int most = 1 << 20;
  command
      .add_option("NAME|FILE", options.input,
                  "One of plumb schedule list, or a file: CSV of torch.distributed.pipelining, JSON, a plan.")
      ->required();
  command.add_option("--ranks", options.ranks, "Pipeline ranks; with a NAME.")->check(CLI::Range(1, most));
  command.add_option("--microbatches", options.microbatches, "Per step; with a NAME.")->check(CLI::Range(1, most));
  command.add_option("--chunks", options.chunks, "Stages per rank.")->check(CLI::Range(1, most));
  command.add_option("--slices", options.slices, "Parts of each sequence (seq-1f1b).")->check(CLI::Range(1, most));
  command
      .add_option("--group", options.group,
                  "Microbatches that a chunk runs before the next one (interleaved schedules).")
      ->check(CLI::Range(1, most));
  command
      .add_option("--update-every", options.update_every, "Microbatches per optimizer step (asynchronous schedules).")
      ->check(CLI::Range(1, most));
  command.add_flag("--json", options.json, "Writes one JSON object to standard output.");
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

NamedSchedule schedule_of(const ScheduleOptions& options) {
  std::error_code missing;
  const bool is_file = std::filesystem::is_regular_file(options.input, missing) ||
                       options.input.find_first_of("./") != std::string::npos;
  return is_registered(options.input) || !is_file ? generated(options) : from_file(options);
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::cerr << "plumb: note: " << note << '\n';
}

}  // namespace plumb::sim
