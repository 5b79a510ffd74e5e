// The schedule that `plumb schedule show` and `export` are asked for: one by name and shape, or one from a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/schedule.hpp"
#include "sim/commands/schedule_options.hpp"

namespace CLI {
class App;
}

namespace plumb::sim {

struct ScheduleOptions : ShapeOptions {
  std::string input;     // NAME or FILE
  std::string alphabet;  // "", "today" or "2024"
  bool json = false;
};

// All but `alphabet`.
void add_schedule_options(CLI::App& command, ScheduleOptions& options);
inline constexpr const char* read_alphabet =
    "Alphabet of the CSV; default: the one that the file proves, else today's.";
void add_alphabet(CLI::App& command, std::string& alphabet, const std::string& what);

[[nodiscard]] std::optional<CsvAlphabet> alphabet_of(const std::string& text);

struct NamedSchedule {
  Schedule schedule = {};
  std::string title = {};   // "ZB-H1", or the file
  std::string source = {};  // its paper, or what the file was taken for
  bool from_file = false;
};

// True if the registry has exactly this name.
[[nodiscard]] bool is_registered(const std::string& name);

// A name of the registry is generated in the given shape; anything else that is a file is read, and what was noted on
// the way goes to stderr. Throws InputError for a file that is not valid, and for a shape beside a file.
// One that is made for times is made for `times`.
[[nodiscard]] NamedSchedule schedule_of(const ScheduleOptions& options, const ShareTimes& times = {1, 1, 1});

// "plumb: note: …" on stderr.
void print_notes(const std::vector<std::string>& notes);

}  // namespace plumb::sim
