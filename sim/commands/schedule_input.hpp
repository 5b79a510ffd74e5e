// The schedule that `plumb schedule show` and `export` are asked for: one by name and shape, or one from a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/schedule/pytorch_csv.hpp"
#include "common/schedule/schedule.hpp"

namespace CLI {
class App;
}

namespace plumb::sim {

struct ScheduleOptions {
  std::string input;  // NAME or FILE
  int ranks = 0;      // this and the next five: 0 where not given
  int microbatches = 0;
  int chunks = 0;
  int slices = 0;
  int group = 0;
  int update_every = 0;
  std::string alphabet;  // "", "today" or "2024"
  bool json = false;
};

// All but `alphabet`.
void add_schedule_options(CLI::App& command, ScheduleOptions& options);
void add_alphabet(CLI::App& command, std::string& alphabet, const std::string& what);

[[nodiscard]] std::optional<CsvAlphabet> alphabet_of(const std::string& text);

struct NamedSchedule {
  Schedule schedule = {};
  std::string title = {};  // "ZB-H1 (arXiv …)", or the file and what it was taken for
  bool from_file = false;
};

// A name of the registry is generated in the given shape; anything else that is a file is read, and what was noted on
// the way goes to stderr. Throws InputError for a file that is not valid, and for a shape beside a file.
[[nodiscard]] NamedSchedule schedule_of(const ScheduleOptions& options);

// "plumb: note: …" on stderr.
void print_notes(const std::vector<std::string>& notes);

}  // namespace plumb::sim
