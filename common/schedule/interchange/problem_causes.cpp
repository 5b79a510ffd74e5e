#include "common/schedule/interchange/problem_causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace plumb {
namespace {

using Kind = ScheduleProblem::Kind;

Place place_of(const CellPlace& cell, const std::string& file) { return {file, cell.line, cell.column}; }

// Returns the place of the last such action in a rank's row; a place without a line if the row lacks it.
Place place_of(const ScheduleReading& reading, int rank, const Action& action, const std::string& file) {
  const auto row = static_cast<std::size_t>(rank);
  if (rank < 0 || row >= reading.places.size()) return {};
  const std::vector<Action>& actions = reading.schedule.actions[row];
  for (std::size_t i = actions.size(); i-- > 0;) {
    if (actions[i] == action) return place_of(reading.places[row][i], file);
  }
  return {};
}

// Number of compute actions of each microbatch, or of each stage.
class Counts {
 public:
  void add(std::int32_t number) { ++counts_[number]; }
  void close() {
    std::vector<std::size_t> sizes;
    for (const auto& [number, count] : counts_) sizes.push_back(count);
    if (sizes.empty()) return;
    std::ranges::nth_element(sizes, sizes.begin() + std::ssize(sizes) / 2);
    median_ = sizes[sizes.size() / 2];
  }
  // Fewer than half of what most numbers have.
  [[nodiscard]] bool is_odd(std::int32_t number) const { return 2 * of(number) < median_; }
  [[nodiscard]] std::size_t of(std::int32_t number) const {
    const auto found = counts_.find(number);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  std::map<std::int32_t, std::size_t> counts_;
  std::size_t median_ = 0;
};

struct Numbers {
  explicit Numbers(const Schedule& schedule) {
    for (const auto& row : schedule.actions) {
      for (const Action& action : row) {
        if (!is_compute(action.kind)) continue;
        microbatches.add(action.microbatch);
        stages.add(action.stage);
      }
    }
    microbatches.close();
    stages.close();
  }
  [[nodiscard]] bool is_odd(const Action& action) const {
    return (action.microbatch != no_microbatch && microbatches.is_odd(action.microbatch)) ||
           stages.is_odd(action.stage);
  }

  Counts microbatches;
  Counts stages;
};

class Folding {
 public:
  Folding(const ScheduleReading& reading, const std::vector<ScheduleProblem>& problems, const std::string& file)
      : reading_(reading), problems_(problems), file_(file), folded_(problems.size(), false) {}

  std::vector<ProblemCause> causes() {
    if (!reading_.places.empty() && !problems_.empty()) fold_odd_cells();
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (!folded_[i]) add_problem(i);
    }
    return std::move(causes_);
  }

 private:
  void fold_odd_cells() {
    const Numbers numbers(reading_.schedule);
    for (std::size_t rank = 0; rank < reading_.schedule.actions.size(); ++rank) {
      for (std::size_t i = 0; i < reading_.schedule.actions[rank].size(); ++i) {
        const Action& action = reading_.schedule.actions[rank][i];
        if (!is_compute(action.kind) || !numbers.is_odd(action)) continue;
        const bool microbatch = numbers.microbatches.is_odd(action.microbatch);
        const std::size_t others =
            (microbatch ? numbers.microbatches.of(action.microbatch) : numbers.stages.of(action.stage)) - 1;
        const std::string number =
            microbatch ? fmt::format("microbatch {}", action.microbatch) : fmt::format("stage {}", action.stage);
        causes_.push_back({.place = place_of(reading_.places[rank][i], file_),
                           .text = others == 0 ? fmt::format("'{}': no other cell has {}", to_string(action), number)
                                               : fmt::format("'{}': only {} other cells have {}", to_string(action),
                                                             others, number)});
        fold_first(static_cast<int>(rank), action, microbatch);
      }
    }
    if (causes_.empty()) return;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const auto& actions = problems_[i].actions;
      const bool follows = std::ranges::any_of(actions, [&](const Action& action) { return numbers.is_odd(action); });
      if (!follows || folded_[i]) continue;
      folded_[i] = true;
      ++causes_.back().follow;
    }
  }

  // The action that the odd cell was meant to be.
  void fold_first(int rank, const Action& cell, bool microbatch) {
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (folded_[i] || !is_missing_like(problems_[i], rank, cell, microbatch)) continue;
      folded_[i] = true;
      ++causes_.back().follow;
      causes_.back().text += "; " + problems_[i].text;
      return;
    }
  }

  static bool is_missing_like(const ScheduleProblem& problem, int rank, const Action& cell, bool microbatch) {
    if (problem.kind != Kind::missing || problem.actions.size() != 1) return false;
    const Action& action = problem.actions.front();
    const bool same_kind =
        action.kind == cell.kind || (makes_input_gradient(action.kind) && makes_input_gradient(cell.kind));
    const bool here = problem.ranks.empty() || problem.ranks.front() == rank;
    return same_kind && (microbatch ? here && action.stage == cell.stage : action.microbatch == cell.microbatch);
  }

  void add_problem(std::size_t i) {
    const ScheduleProblem& problem = problems_[i];
    const bool placed = !problem.ranks.empty() && !problem.actions.empty();
    const Place place = placed ? place_of(reading_, problem.ranks.front(), problem.actions.front(), file_) : Place{};
    causes_.push_back({.place = place, .text = problem.text});
    folded_[i] = true;
    if (problem.kind == Kind::duplicate && !problem.actions.empty() && !problem.ranks.empty()) {
      fold_first(problem.ranks.front(), problem.actions.front(), true);
    }
  }

  const ScheduleReading& reading_;
  const std::vector<ScheduleProblem>& problems_;
  const std::string& file_;
  std::vector<bool> folded_;
  std::vector<ProblemCause> causes_;
};

}  // namespace

std::vector<ProblemCause> fold_problems(const ScheduleReading& reading, const std::vector<ScheduleProblem>& problems,
                                        const std::string& file) {
  return Folding(reading, problems, file).causes();
}

}  // namespace plumb
