#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "common/base/error.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/interchange/pytorch_csv_cells.hpp"

namespace plumb {
namespace {

// Bound on missing actions: `validate` names those that stages and microbatches lack, but a file has most of them.
constexpr std::size_t most_pairs_per_action = 4;

// Finds the rank of each stage, in one replica or two.
class PlacementReader {
 public:
  PlacementReader(const CsvCells& cells, const std::string& file) : cells_(cells), file_(file) {}

  void read_into(Schedule& schedule) {
    measure(schedule);
    if (!place_one_replica(schedule.rank_of_stage) && !place_two_replicas(schedule)) refuse_second_row();
  }

 private:
  template <class Visit>
  void for_each_compute(const Visit& visit) const {
    for (std::size_t rank = 0; rank < cells_.rows.size(); ++rank) {
      for (const CsvCell& cell : cells_.rows[rank]) {
        for (const Action& action : cell.actions) {
          if (is_compute(action.kind)) visit(static_cast<int>(rank), action, cell.place);
        }
      }
    }
  }

  void measure(Schedule& schedule) {
    std::size_t count = 0;
    for (const auto& row : cells_.rows) {
      for (const CsvCell& cell : row) count += cell.actions.size();
    }
    for (const auto& row : cells_.rows) {
      for (const CsvCell& cell : row) {
        for (const Action& action : cell.actions) {
          // More than there are cells: some would stand nowhere.
          if (static_cast<std::size_t>(action.stage) >= count ||
              (has_microbatch(action.kind) && static_cast<std::size_t>(action.microbatch) >= count)) {
            throw InputError(cell.place, fmt::format("'{}': the file has only {} actions", to_string(action), count));
          }
          stages_ = std::max(stages_, action.stage + 1);
          schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
        }
      }
    }
    const std::size_t pairs = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(schedule.microbatches);
    if (pairs > most_pairs_per_action * count || pairs > static_cast<std::size_t>(largest_schedule)) {
      throw InputError(
          Place{file_, 0, 0},
          fmt::format("{} stages and {} microbatches with {} actions", stages_, schedule.microbatches, count),
          "every stage needs an F and a B, or F, I and W, of every microbatch");
    }
  }

  // The row that has most of a stage's actions holds it. False if a stage is on two rows.
  bool place_one_replica(std::vector<int>& rank_of_stage) {
    std::vector<std::map<int, int>> actions(static_cast<std::size_t>(stages_));  // by stage and row
    for_each_compute(
        [&](int rank, const Action& action, const Place&) { ++actions[static_cast<std::size_t>(action.stage)][rank]; });
    rank_of_stage.assign(static_cast<std::size_t>(stages_), nowhere);
    for (std::size_t stage = 0; stage < actions.size(); ++stage) {
      int most = 0;
      for (const auto& [rank, count] : actions[stage]) {
        if (count > most) rank_of_stage[stage] = rank;
        most = std::max(most, count);
      }
    }
    for_each_compute([&](int rank, const Action& action, const Place& place) {
      const int holder = rank_of_stage[static_cast<std::size_t>(action.stage)];
      if (holder == rank || twice_.line > 0) return;
      twice_ = place;
      twice_action_ = action;
      other_row_ = holder + 1;
    });
    if (twice_.line > 0) return false;
    for (std::size_t stage = 0; stage < rank_of_stage.size(); ++stage) {
      if (rank_of_stage[stage] != nowhere) continue;
      refuse_gap(static_cast<std::int32_t>(stage));
    }
    return true;
  }

  // True if every stage's microbatches of the first half are all on one row and the others all on another one.
  bool place_two_replicas(Schedule& schedule) const {
    if (schedule.microbatches % 2 != 0) return false;
    schedule.rank_of_stage.assign(static_cast<std::size_t>(stages_), nowhere);
    schedule.second_rank_of_stage = schedule.rank_of_stage;
    bool fits = true;
    for_each_compute([&](int rank, const Action& action, const Place&) {
      auto& ranks =
          action.microbatch < schedule.microbatches / 2 ? schedule.rank_of_stage : schedule.second_rank_of_stage;
      int& holder = ranks[static_cast<std::size_t>(action.stage)];
      if (holder == nowhere) holder = rank;
      fits &= holder == rank;
    });
    for (std::size_t stage = 0; stage < schedule.rank_of_stage.size(); ++stage) {
      const int first = schedule.rank_of_stage[stage];
      const int second = schedule.second_rank_of_stage[stage];
      fits &= first != nowhere && second != nowhere && first != second;
    }
    return fits;
  }

  // The cell with a later stage is the one to look at.
  [[noreturn]] void refuse_gap(std::int32_t stage) const {
    std::optional<std::pair<Place, Action>> later;
    for_each_compute([&](int, const Action& action, const Place& place) {
      if (action.stage > stage && !later) later = {place, action};
    });
    if (!later) throw InputError(Place{file_, 0, 0}, fmt::format("no cell has stage {}", stage));
    throw InputError(later->first, fmt::format("'{}': no cell has stage {}, which comes before stage {}",
                                               to_string(later->second), stage, later->second.stage));
  }

  [[noreturn]] void refuse_second_row() const {
    throw InputError(
        twice_, fmt::format("'{}': stage {} is on row {}", to_string(twice_action_), twice_action_.stage, other_row_),
        "two replicas are read where every stage runs the first half of the microbatches on one row and the second "
        "half on another");
  }

  const CsvCells& cells_;
  const std::string& file_;
  std::int32_t stages_ = 0;
  Place twice_ = {};  // the first cell whose stage another row holds
  Action twice_action_ = {};
  int other_row_ = 0;
};

// Actions that a schedule does not have.
bool is_left_out(const Schedule& schedule, ActionKind kind) {
  return kind == ActionKind::unshard || kind == ActionKind::reshard ||
         (kind == ActionKind::reduce_gradient && replicas(schedule) == 1);
}

}  // namespace

CsvReading read_pytorch_csv(std::string_view text, const std::string& file, std::optional<CsvAlphabet> asked) {
  const CsvCells cells = read_csv_cells(text, file, asked);
  CsvReading reading{.schedule = {.name = "pytorch-csv",
                                  .ranks = static_cast<int>(cells.rows.size()),
                                  .rank_of_stage = {},
                                  .actions = {}},
                     .alphabet = cells.alphabet};
  Schedule& schedule = reading.schedule;
  PlacementReader(cells, file).read_into(schedule);
  schedule.chunks = most_chunks_of_rank(schedule);
  int left_out = 0;
  for (const auto& row : cells.rows) {
    auto& list = schedule.actions.emplace_back();
    auto& places = reading.places.emplace_back();
    for (const CsvCell& cell : row) {
      for (const Action& action : cell.actions) {
        if (!is_compute(action.kind)) reading.form = CsvForm::compute_comms;
        if (is_left_out(schedule, action.kind)) {
          ++left_out;
        } else {
          list.push_back(action);
          places.push_back({cell.place.line, cell.place.column});
        }
      }
      if (cell.actions.size() == 2) schedule.overlapped.push_back({cell.actions.front(), cell.actions.back()});
    }
  }
  std::ranges::sort(schedule.overlapped);
  schedule.overlapped.erase(std::unique(schedule.overlapped.begin(), schedule.overlapped.end()),
                            schedule.overlapped.end());
  try {
    require_well_formed(schedule);
  } catch (const InputError& error) {
    throw InputError(Place{file, 0, 0}, error.problem(), error.hint());
  }
  if (reading.alphabet == CsvAlphabet::of_2024) {
    reading.notes.push_back("B is taken for the input gradient and BW for the full backward, as in 2024: " +
                            cells.alphabet_because);
  }
  if (left_out > 0) {
    reading.notes.push_back(fmt::format(
        "{} × UNSHARD, RESHARD or REDUCE_GRAD left out: they belong to data-parallel ranks, of which a schedule says "
        "nothing",
        left_out));
  }
  if (replicas(schedule) == 2) {
    reading.notes.emplace_back(
        "every stage stands on two rows: read as two replicas, the second for the microbatches from the middle on");
  }
  return reading;
}

Schedule parse_pytorch_csv(std::string_view text, const std::string& file) {
  return read_pytorch_csv(text, file).schedule;
}

}  // namespace plumb
