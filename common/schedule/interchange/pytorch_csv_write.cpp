#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/error.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/interchange/pytorch_messages.hpp"
#include "common/schedule/validate/validate.hpp"

namespace plumb {
namespace {

constexpr int not_yet = -1;

// The step in which every action runs when each takes one, an overlapped pair as well, and ranks wait for their inputs.
class UnitSteps {
 public:
  UnitSteps(const Schedule& schedule, const ActionIndex& index, const std::vector<bool>& pair_begins)
      : schedule_(schedule), index_(index), pair_begins_(pair_begins) {
    step_.assign(static_cast<std::size_t>(index_.first_of_rank.back()), not_yet);
  }

  // By position through all lists. The schedule must be valid: then some rank can always go on.
  std::vector<int> run() {
    std::vector<std::int32_t> next(index_.first_of_rank.begin(), index_.first_of_rank.end() - 1);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        while (next[rank] < index_.first_of_rank[rank + 1]) {
          const int length = place(rank, next[rank]);
          if (length == 0) break;
          next[rank] += length;
          moved = true;
        }
      }
    }
    return std::move(step_);
  }

 private:
  // Returns the number of actions that were placed; 0 if an input is not there yet.
  int place(std::size_t rank, std::int32_t position) {
    const std::int32_t begin = index_.first_of_rank[rank];
    const int length = pair_begins_[static_cast<std::size_t>(position)] ? 2 : 1;
    int step = position == begin ? 0 : step_[static_cast<std::size_t>(position) - 1] + 1;
    for (std::int32_t at = position; at < position + length; ++at) {
      const Action& action = schedule_.actions[rank][static_cast<std::size_t>(at) - static_cast<std::size_t>(begin)];
      const std::int32_t input = input_of(index_, schedule_, action);
      if (input == nowhere) continue;
      if (step_[static_cast<std::size_t>(input)] == not_yet) return 0;
      step = std::max(step, step_[static_cast<std::size_t>(input)] + 1);
    }
    for (std::int32_t at = position; at < position + length; ++at) step_[static_cast<std::size_t>(at)] = step;
    return length;
  }

  const Schedule& schedule_;
  const ActionIndex& index_;
  const std::vector<bool>& pair_begins_;
  std::vector<int> step_;
};

[[noreturn]] void refuse(const Schedule& schedule, const std::string& problem, const std::string& hint) {
  throw InputError("schedule " + schedule.name, problem, hint);
}

constexpr const char* use_json = "such schedules are exchanged as JSON";

void require_sayable(const Schedule& schedule, const CsvWriting& writing) {
  require_valid(schedule);
  if (writing.form == CsvForm::compute_only && is_lowered(schedule)) {
    refuse(schedule, "it is lowered, but PyTorch adds the transfers itself", "write the form with communication");
  }
  if (writing.alphabet == CsvAlphabet::of_2024 && !schedule.overlapped.empty()) {
    const OverlappedPair& pair = schedule.overlapped.front();
    refuse(schedule,
           fmt::format("{} and {} overlap, for which the alphabet of 2024 has no cell", to_string(pair.first),
                       to_string(pair.second)),
           "write today's alphabet");
  }
  if (schedule.vocabulary_barriers > 0) {
    refuse(schedule, "PyTorch has no stages that divide a vocabulary over the ranks", use_json);
  }
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      switch (action.kind) {
        case ActionKind::recompute:
          refuse(schedule, to_string(action) + ": PyTorch has no action for recompute",
                 "export it without; in PyTorch the model checkpoints its activations");
        case ActionKind::evict:
        case ActionKind::load:
          refuse(schedule, to_string(action) + ": PyTorch has no action for evictions to other ranks", use_json);
        case ActionKind::optimizer_step:
          refuse(schedule, to_string(action) + ": PyTorch has no action for optimizer steps", use_json);
        case ActionKind::clip_gradients:
          refuse(schedule, to_string(action) + ": PyTorch has no action for clipping gradients", use_json);
        case ActionKind::reduce_tied:
          refuse(schedule, to_string(action) + ": PyTorch has no action for tied embeddings", use_json);
        default:
          break;
      }
    }
  }
}

void append_action(std::string& text, const Action& action, CsvAlphabet alphabet) {
  const bool backward = makes_input_gradient(action.kind);
  if (alphabet == CsvAlphabet::today || !backward) {
    append_text(text, action);
  } else {
    text += fmt::format("{}{}{}", action.stage, action.kind == ActionKind::backward ? "BW" : "B", action.microbatch);
  }
}

// The action at `place` of a list, or the pair that begins there.
void append_cell(std::string& text, const std::vector<Action>& list, std::size_t place, bool is_pair,
                 CsvAlphabet alphabet) {
  if (!is_pair) return append_action(text, list[place], alphabet);
  text += '(';
  append_action(text, list[place], alphabet);
  text += ';';
  append_action(text, list[place + 1], alphabet);
  text += ")OVERLAP_F_B";
}

std::string compute_only_csv(const Schedule& schedule, CsvAlphabet alphabet) {
  const ActionIndex index = index_actions(schedule);
  const std::vector<bool> begins = pair_begins(schedule, index);
  const std::vector<int> step_of = UnitSteps(schedule, index, begins).run();
  std::string text;
  std::size_t position = 0;
  for (const auto& list : schedule.actions) {
    int step = 0;
    for (std::size_t i = 0; i < list.size();) {
      for (; step < step_of[position]; ++step) text += ',';
      append_cell(text, list, i, begins[position], alphabet);
      const std::size_t length = begins[position] ? 2 : 1;
      i += length;
      position += length;
    }
    text += '\n';
  }
  return text;
}

// Counts a stage's backwards: its gradients are complete with the last B or W.
class GradientCount {
 public:
  explicit GradientCount(int microbatches) : microbatches_(microbatches) {}

  void add(const Action& action) {
    if (action.kind != ActionKind::backward && action.kind != ActionKind::weight_gradient) return;
    if (++done_[action.stage] == microbatches_) complete_.push_back(action.stage);
  }
  // The stages that became complete since it was asked last.
  std::vector<int> take_complete() { return std::exchange(complete_, {}); }

 private:
  int microbatches_;
  std::map<int, int> done_;
  std::vector<int> complete_;
};

std::string compute_comms_csv(const Schedule& schedule, CsvAlphabet alphabet) {
  const std::vector<bool> begins = pair_begins(schedule, index_actions(schedule));
  std::string text;
  std::size_t position = 0;
  for (const auto& list : schedule.actions) {
    GradientCount gradients(schedule.microbatches);
    const char* separator = "";
    for (std::size_t i = 0; i < list.size();) {
      text += std::exchange(separator, ",");
      append_cell(text, list, i, begins[position], alphabet);
      for (const std::size_t end = i + (begins[position] ? 2 : 1); i < end; ++i, ++position) gradients.add(list[i]);
      // Sends of what was just made go first, as in PyTorch.
      if (i < list.size() && is_send(list[i].kind)) continue;
      for (const int stage : gradients.take_complete()) {
        if (replicas(schedule) == 1) text += fmt::format(",{}REDUCE_GRAD", stage);
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::string to_pytorch_csv(const Schedule& schedule, const CsvWriting& writing) {
  require_sayable(schedule, writing);
  if (writing.form == CsvForm::compute_only) return compute_only_csv(schedule, writing.alphabet);
  if (!is_lowered(schedule)) return compute_comms_csv(lower_as_pytorch(schedule), writing.alphabet);
  const std::vector<ScheduleProblem> crossed = check_pytorch_queues(schedule);
  if (!crossed.empty())
    refuse(schedule, crossed.front().text, "write the compute-only form: PyTorch adds its own messages");
  return compute_comms_csv(schedule, writing.alphabet);
}

std::vector<std::string> pytorch_csv_notes(const Schedule& schedule) {
  std::vector<std::string> notes;
  if (schedule.slices > 1) {
    notes.push_back(fmt::format(
        "its {} slices of each sequence are written as microbatches: PyTorch takes them for sequences of their own",
        schedule.slices));
  }
  if (replicas(schedule) == 2) {
    notes.emplace_back(
        "every stage stands on two rows, one for each replica, but PyTorch itself holds a stage on one rank only");
  }
  return notes;
}

}  // namespace plumb
