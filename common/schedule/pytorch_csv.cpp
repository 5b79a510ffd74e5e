#include "common/schedule/pytorch_csv.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/validate.hpp"

namespace plumb {
namespace {

constexpr int not_yet = -1;

// The step in which every action runs when each takes one and ranks wait for their inputs.
class UnitSteps {
 public:
  explicit UnitSteps(const Schedule& schedule) : schedule_(schedule), index_(index_actions(schedule)) {
    step_.assign(static_cast<std::size_t>(index_.first_of_rank.back()), not_yet);
  }

  // By position through all lists. The schedule must be valid: then some rank can always go on.
  std::vector<int> run() {
    std::vector<std::int32_t> next(index_.first_of_rank.begin(), index_.first_of_rank.end() - 1);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        for (; next[rank] < index_.first_of_rank[rank + 1] && place(rank, next[rank]); ++next[rank]) moved = true;
      }
    }
    return std::move(step_);
  }

 private:
  bool place(std::size_t rank, std::int32_t position) {
    const std::int32_t begin = index_.first_of_rank[rank];
    int step = position == begin ? 0 : step_[static_cast<std::size_t>(position) - 1] + 1;
    const std::int32_t input = input_of(schedule_.actions[rank][static_cast<std::size_t>(position - begin)]);
    if (input != nowhere) {
      if (step_[static_cast<std::size_t>(input)] == not_yet) return false;
      step = std::max(step, step_[static_cast<std::size_t>(input)] + 1);
    }
    step_[static_cast<std::size_t>(position)] = step;
    return true;
  }

  // What of a neighbouring stage the action needs.
  std::int32_t input_of(const Action& action) const {
    switch (action.kind) {
      case ActionKind::forward:
        return action.stage == 0 ? nowhere
                                 : index_.find(ActionKind::forward, producer_stage(action), action.microbatch);
      case ActionKind::backward:
      case ActionKind::input_gradient:
        return action.stage + 1 == stages(schedule_) ? nowhere
                                                     : index_.find_gradient(producer_stage(action), action.microbatch);
      default:
        return nowhere;
    }
  }

  const Schedule& schedule_;
  const ActionIndex index_;
  std::vector<int> step_;
};

// One action and where its cell begins.
struct Cell {
  Action action;
  Place place;
};

[[noreturn]] void refuse_cell(const Place& place, std::string_view cell, const std::string& problem) {
  std::string hint = "a cell is stage, F, B, I or W, and microbatch, such as 0F3; blank where the rank is idle";
  if (cell.find("BW") != std::string_view::npos) hint = "files of 2024 wrote B for I and BW for B: rename them";
  throw InputError(place, fmt::format("'{}': {}", cell, problem), hint);
}

Action parse_cell(std::string_view cell, const Place& place) {
  if (cell.front() == '(' || cell.find("OVERLAP") != std::string_view::npos) {
    refuse_cell(place, cell, "overlapped forwards and backwards are planned and not built yet");
  }
  try {
    const Action action = parse_action(cell);
    if (is_compute(action.kind) && action.kind != ActionKind::recompute) return action;
  } catch (const InputError& error) {
    refuse_cell(place, cell, error.problem().substr(error.problem().find("': ") + 3));
  }
  refuse_cell(place, cell, "only compute actions may stand here; transfers are added when it is lowered");
}

std::string_view trimmed(std::string_view cell) {
  const std::size_t first = cell.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return cell.substr(first, cell.find_last_not_of(" \t\r") - first + 1);
}

std::vector<Cell> parse_row(std::string_view row, const std::string& file, int line) {
  std::vector<Cell> cells;
  for (std::size_t start = 0; start <= row.size();) {
    const std::size_t end = std::min(row.find(',', start), row.size());
    const std::string_view cell = trimmed(row.substr(start, end - start));
    if (!cell.empty()) {
      const Place place{file, line, static_cast<int>(cell.data() - row.data()) + 1};
      cells.push_back({parse_cell(cell, place), place});
    }
    start = end + 1;
  }
  return cells;
}

std::vector<std::vector<Cell>> parse_rows(std::string_view text, const std::string& file) {
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos) {
    text.remove_suffix(1);
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  if (text.empty()) throw InputError(Place{file, 0, 0}, "it is empty", "expected a row of actions per rank");
  std::vector<std::vector<Cell>> rows;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const int line = static_cast<int>(rows.size()) + 1;
    rows.push_back(parse_row(text.substr(start, end - start), file, line));
    if (rows.back().empty()) throw InputError(Place{file, line, 0}, "this rank has nothing to do");
    start = end + 1;
  }
  return rows;
}

// Every stage stands on exactly one row, and there are as many on each.
std::vector<int> place_stages(const std::vector<std::vector<Cell>>& rows, const std::string& file) {
  std::size_t cells = 0;
  for (const auto& row : rows) cells += row.size();
  std::vector<int> rank_of_stage;
  std::vector<int> count(rows.size(), 0);
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    for (const Cell& cell : rows[rank]) {
      const auto stage = static_cast<std::size_t>(cell.action.stage);
      // More than there are cells: some would stand nowhere.
      if (stage >= cells || static_cast<std::size_t>(cell.action.microbatch) >= cells) {
        refuse_cell(cell.place, to_string(cell.action), fmt::format("the file has only {} actions", cells));
      }
      if (stage >= rank_of_stage.size()) rank_of_stage.resize(stage + 1, nowhere);
      int& holder = rank_of_stage[stage];
      if (holder == nowhere) {
        holder = static_cast<int>(rank);
        ++count[rank];
      }
      if (holder == static_cast<int>(rank)) continue;
      refuse_cell(cell.place, to_string(cell.action),
                  fmt::format("stage {} stands on row {} already", stage, holder + 1));
    }
  }
  for (std::size_t stage = 0; stage < rank_of_stage.size(); ++stage) {
    if (rank_of_stage[stage] == nowhere)
      throw InputError(Place{file, 0, 0}, fmt::format("stage {} stands nowhere", stage));
  }
  for (std::size_t rank = 1; rank < rows.size(); ++rank) {
    if (count[rank] == count[0]) continue;
    throw InputError(Place{file, static_cast<int>(rank) + 1, 0},
                     fmt::format("stages on this row: {}, on the first: {}", count[rank], count[0]));
  }
  return rank_of_stage;
}

}  // namespace

std::string to_pytorch_csv(const Schedule& schedule) {
  require_valid(schedule);
  if (is_lowered(schedule)) {
    throw InputError("schedule " + schedule.name, "it is lowered, but PyTorch adds the transfers itself");
  }
  const std::vector<int> step_of = UnitSteps(schedule).run();
  std::string text;
  std::size_t position = 0;
  for (const auto& list : schedule.actions) {
    int step = 0;
    for (const Action& action : list) {
      if (action.kind == ActionKind::recompute) {
        throw InputError("schedule " + schedule.name, to_string(action) + ": PyTorch has no action for recompute",
                         "export it without; in PyTorch the model checkpoints its activations");
      }
      for (; step < step_of[position]; ++step) text += ',';
      append_text(text, action);
      ++position;
    }
    text += '\n';
  }
  return text;
}

Schedule parse_pytorch_csv(std::string_view text, const std::string& file) {
  const std::vector<std::vector<Cell>> rows = parse_rows(text, file);
  Schedule schedule;
  schedule.name = "pytorch-csv";
  schedule.ranks = static_cast<int>(rows.size());
  schedule.rank_of_stage = place_stages(rows, file);
  schedule.chunks = stages(schedule) / schedule.ranks;
  for (const auto& row : rows) {
    auto& list = schedule.actions.emplace_back();
    for (const Cell& cell : row) {
      list.push_back(cell.action);
      schedule.microbatches = std::max(schedule.microbatches, cell.action.microbatch + 1);
    }
  }
  require_well_formed(schedule);
  return schedule;
}

}  // namespace plumb
