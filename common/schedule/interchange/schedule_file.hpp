// Schedules in files of their own, whoever wrote them: JSON of plumb's, a plan, or a CSV of PyTorch's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {

inline constexpr int schedule_file_version = 1;

// Keys: format ("plumb schedule"), version and schedule (schedule_json.hpp has its keys). All that a schedule is.
[[nodiscard]] std::string to_schedule_file(const Schedule& schedule);

struct ScheduleReading {
  Schedule schedule = {};
  std::string taken_for = {};                       // "PyTorch CSV, compute only", …
  std::vector<std::string> notes = {};              // guesses, and cells that were left out
  bool for_pytorch = false;                         // a CSV
  std::vector<std::vector<CellPlace>> places = {};  // in a CSV, of each action, by rank
};

// Reads text that begins with '{' as JSON of that format or a plan, else as a CSV in the alphabet asked for.
// Throws InputError with file, line and column, and the key in JSON. Says nothing on order: `validate` does.
[[nodiscard]] ScheduleReading read_schedule_text(std::string_view text, const std::string& file,
                                                 std::optional<CsvAlphabet> asked = {});

}  // namespace plumb
