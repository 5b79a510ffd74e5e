#include "common/schedule/interchange/pytorch_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/schedule/action_index.hpp"

namespace plumb {
namespace {

class PytorchLowering {
 public:
  explicit PytorchLowering(const Schedule& schedule)
      : schedule_(schedule),
        index_(index_actions(schedule)),
        begins_(pair_begins(schedule, index_)),
        done_(static_cast<std::size_t>(index_.first_of_rank.back()), 0) {}

  Schedule run() {
    Schedule lowered = schedule_;
    for (auto& list : lowered.actions) list.clear();
    std::vector<std::size_t> next(schedule_.actions.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        const std::size_t length = cell_length(rank, next[rank]);
        if (length == 0 || !is_ready(rank, next[rank], length)) continue;
        append_cell(rank, next[rank], length, lowered);
        next[rank] += length;
        moved = true;
      }
    }
    for (int rank = 0; rank < schedule_.ranks && replicas(schedule_) == 2; ++rank) {
      for (const int stage : stages_of_rank(schedule_, rank)) {
        lowered.actions[static_cast<std::size_t>(rank)].push_back({ActionKind::reduce_gradient, stage, no_microbatch});
      }
    }
    return lowered;
  }

 private:
  std::size_t position(std::size_t rank, std::size_t place) const {
    return static_cast<std::size_t>(index_.first_of_rank[rank]) + place;
  }

  std::size_t cell_length(std::size_t rank, std::size_t place) const {
    if (place == schedule_.actions[rank].size()) return 0;
    return begins_[position(rank, place)] ? 2 : 1;
  }

  bool is_ready(std::size_t rank, std::size_t place, std::size_t length) const {
    for (std::size_t i = place; i < place + length; ++i) {
      const std::int32_t input = input_of(index_, schedule_, schedule_.actions[rank][i]);
      if (input != nowhere && done_[static_cast<std::size_t>(input)] == 0) return false;
    }
    return true;
  }

  void append_cell(std::size_t rank, std::size_t place, std::size_t length, Schedule& lowered) {
    const auto& list = schedule_.actions[rank];
    for (std::size_t i = place; i < place + length; ++i) {
      lowered.actions[rank].push_back(list[i]);
      done_[position(rank, i)] = 1;
    }
    for (std::size_t i = place; i < place + length; ++i) {
      if (!makes_message(schedule_, list[i])) continue;
      const Message message = message_of(schedule_, list[i]);
      lowered.actions[rank].push_back(message.send);
      lowered.actions[static_cast<std::size_t>(message.to)].push_back(message.receive);
    }
  }

  const Schedule& schedule_;
  const ActionIndex index_;
  const std::vector<bool> begins_;
  std::vector<char> done_;  // by position
};

}  // namespace

Schedule lower_as_pytorch(const Schedule& compute_only) { return PytorchLowering(compute_only).run(); }

std::vector<ScheduleProblem> check_pytorch_queues(const Schedule& lowered) {
  using Pair = std::pair<int, int>;  // from, to
  std::map<Pair, std::vector<Action>> sent;
  std::map<Pair, std::vector<Action>> received;
  for (const auto& list : lowered.actions) {
    for (const Action& action : list) {
      const bool is_message = is_send(action.kind) || is_receive(action.kind);
      if (!is_message || !in_range(lowered, action) || !in_range(lowered, other_end(action))) continue;
      const int own = rank_of(lowered, action.stage, action.microbatch);
      const int other = rank_of(lowered, other_end(action).stage, action.microbatch);
      if (is_send(action.kind)) {
        sent[{own, other}].push_back(action);
      } else {
        received[{other, own}].push_back(action);
      }
    }
  }
  std::vector<ScheduleProblem> problems;
  for (const auto& [pair, sends] : sent) {
    const auto& receives = received[pair];
    const auto [send, receive] =
        std::ranges::mismatch(sends, receives, [](const Action& a, const Action& b) { return other_end(a) == b; });
    if (send == sends.end() || receive == receives.end()) continue;
    problems.push_back({ScheduleProblem::Kind::crossed_messages,
                        {pair.first, pair.second},
                        {*send, *receive},
                        fmt::format("message {} from rank {} to rank {} is {}, but rank {} expects {} then: PyTorch "
                                    "matches activations and gradients of two ranks in one order",
                                    send - sends.begin() + 1, pair.first, pair.second, to_string(*send), pair.second,
                                    to_string(*receive))});
  }
  return problems;
}

}  // namespace plumb
