#include "common/schedule/pytorch_csv.hpp"

#include <algorithm>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

constexpr std::string_view blanks = " \t\r\"";

Action parse_cell(std::string_view cell, const Place& place) {
  if (cell.find("OVERLAP") != std::string_view::npos) {
    throw InputError(place, "overlapped actions like '" + std::string(cell) + "' are not built yet");
  }
  if (cell.find("BW") != std::string_view::npos) {
    throw InputError(place,
                     "'" + std::string(cell) + "' is of PyTorch's letters of 2024, where B was the input gradient",
                     "write I for the input gradient, W for the weight gradient and B for both");
  }
  try {
    return parse_action(cell);
  } catch (const InputError& error) {
    throw InputError(place, error.problem(), error.hint());
  }
}

std::vector<Action> parse_row(std::string_view row, Place place) {
  std::vector<Action> actions;
  for (std::size_t begin = 0; begin <= row.size();) {
    const std::size_t end = std::min(row.find(',', begin), row.size());
    const std::string_view cell = row.substr(begin, end - begin);
    const std::size_t first = cell.find_first_not_of(blanks);
    if (first != std::string_view::npos) {
      place.column = static_cast<int>(begin + first) + 1;
      actions.push_back(parse_cell(cell.substr(first, cell.find_last_not_of(blanks) - first + 1), place));
    }
    begin = end + 1;
  }
  return actions;
}

// Stages, microbatches and placement as the actions tell them.
void infer_shape(Schedule& schedule, const std::string& file) {
  std::int64_t stages = 0;
  std::int64_t microbatches = 0;
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      stages = std::max<std::int64_t>(stages, std::int64_t{action.stage} + 1);
      microbatches = std::max<std::int64_t>(microbatches, std::int64_t{action.microbatch} + 1);
    }
  }
  if (stages == 0 || microbatches == 0) throw InputError(file, "has no actions of a microbatch");
  if (stages > largest_schedule / microbatches) {
    throw InputError(file, "names stage " + std::to_string(stages - 1) + " and microbatch " +
                               std::to_string(microbatches - 1) + ", more than a schedule may have");
  }
  schedule.microbatches = static_cast<int>(microbatches);
  schedule.rank_of_stage.assign(static_cast<std::size_t>(stages), -1);
  for (std::size_t rank = schedule.actions.size(); rank-- > 0;) {
    for (const Action& action : schedule.actions[rank]) {
      if (is_compute(action.kind))
        schedule.rank_of_stage[static_cast<std::size_t>(action.stage)] = static_cast<int>(rank);
    }
  }
  const auto missing = std::find(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), -1);
  if (missing != schedule.rank_of_stage.end()) {
    throw InputError(file, "no rank computes stage " + std::to_string(missing - schedule.rank_of_stage.begin()) +
                               " of " + std::to_string(stages));
  }
  schedule.chunks = static_cast<int>((stages + schedule.ranks - 1) / schedule.ranks);
}

}  // namespace

std::string to_pytorch_csv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.actions) {
    bool first = true;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::recompute) continue;
      if (!first) text += ',';
      text += to_string(action);
      first = false;
    }
    text += '\n';
  }
  return text;
}

Schedule read_pytorch_csv(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  Schedule schedule{.name = path.stem().string(), .rank_of_stage = {}, .actions = {}};
  int line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    schedule.actions.push_back(
        parse_row(std::string_view(text).substr(begin, end - begin), {path.string(), ++line, 0}));
    begin = end + 1;
  }
  while (!schedule.actions.empty() && schedule.actions.back().empty()) schedule.actions.pop_back();
  schedule.ranks = static_cast<int>(schedule.actions.size());
  infer_shape(schedule, path.string());
  return schedule;
}

}  // namespace plumb
