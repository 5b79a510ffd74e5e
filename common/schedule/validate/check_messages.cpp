#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "common/schedule/validate/checks.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

using Kind = ScheduleProblem::Kind;

class MessageCheck {
 public:
  explicit MessageCheck(ScheduleChecks& checks)
      : checks_(checks), schedule_(checks.schedule), queues_(message_queues(checks.schedule)) {}

  void run() {
    for (int boundary = 0; boundary + 1 < stages(schedule_); ++boundary) {
      for (int k = 0; k < schedule_.microbatches; ++k) {
        if (!crosses_ranks(schedule_, boundary, k)) continue;
        check_pair({ActionKind::forward, boundary, k}, {ActionKind::forward, boundary + 1, k});
        check_pair(checks_.gradient_action(boundary + 1, k), checks_.gradient_action(boundary, k));
      }
    }
    check_queues();
  }

 private:
  // One message: both its ends, one, or none. Where an end has no action to belong to, that is what is reported
  // missing.
  void check_pair(const Action& producer, const Action& consumer) {
    const Message message = message_of(schedule_, producer);
    const bool sent = checks_.index.find(message.send) != nowhere;
    const bool received = checks_.index.find(message.receive) != nowhere;
    if (sent && !received) {
      report(Kind::unmatched_message, message,
             fmt::format("rank {}: {} is never received: {} is missing on rank {}", message.from,
                         to_string(message.send), to_string(message.receive), message.to));
    } else if (received && !sent) {
      report(Kind::unmatched_message, message,
             fmt::format("rank {}: {} is never sent: {} is missing on rank {}", message.to, to_string(message.receive),
                         to_string(message.send), message.from));
    } else if (!sent && checks_.index.find(producer) != nowhere && checks_.index.find(consumer) != nowhere) {
      report(Kind::missing, message,
             fmt::format("rank {}: {} needs {} of rank {}, but {} and {} are missing", message.to, to_string(consumer),
                         to_string(producer), message.from, to_string(message.send), to_string(message.receive)));
    }
  }

  void report(Kind kind, const Message& message, std::string text) {
    checks_.report(kind, {message.from, message.to}, {message.send, message.receive}, std::move(text));
  }

  // Sends and receives of every queue in the order of their lists; those that another check found wrong are left out.
  void check_queues() {
    std::vector<std::vector<Action>> sends(static_cast<std::size_t>(queues_.count));
    std::vector<std::vector<Action>> receives(static_cast<std::size_t>(queues_.count));
    std::int32_t position = -1;
    for (const auto& list : schedule_.actions) {
      for (const Action& action : list) {
        ++position;
        if (!is_send(action.kind) && !is_receive(action.kind)) continue;
        if (!is_sound(action) || checks_.placed(action) != position) continue;
        if (checks_.placed(other_end(action)) == nowhere) continue;
        auto& queue = (is_send(action.kind) ? sends : receives)[static_cast<std::size_t>(queues_.queue_of(action))];
        queue.push_back(action);
      }
    }
    for (std::size_t queue = 0; queue < sends.size(); ++queue) compare(sends[queue], receives[queue]);
  }

  bool is_sound(const Action& action) const {
    const Action other = other_end(action);
    return in_range(schedule_, action) && in_range(schedule_, other) &&
           checks_.rank_of(action) != checks_.rank_of(other);
  }

  // Only the first pair that differs: all behind it are shifted as well.
  void compare(const std::vector<Action>& sends, const std::vector<Action>& receives) {
    const auto [send, receive] = std::ranges::mismatch(
        sends, receives, [](const Action& sent, const Action& received) { return other_end(sent) == received; });
    if (send == sends.end() || receive == receives.end()) return;
    const Message message{*send, *receive, checks_.rank_of(*send), checks_.rank_of(*receive)};
    report(
        Kind::crossed_messages, message,
        fmt::format("message {} from rank {} to rank {} is {}, but rank {} expects {} then", send - sends.begin() + 1,
                    message.from, message.to, to_string(*send), message.to, to_string(*receive)));
  }

  ScheduleChecks& checks_;
  const Schedule& schedule_;
  const MessageQueues queues_;
};

// All ranks take part in all of it, and one stream has the broadcasts, another one the sums: in one order each.
void check_joined(ScheduleChecks& checks) {
  const Schedule& schedule = checks.schedule;
  if (schedule.vocabulary_barriers == 0) return;
  for (int part = stages(schedule); part < all_stages(schedule); ++part) {
    const int rank = rank_in_replica(schedule, 0, part);
    for (int k = 0; k < schedule.microbatches; ++k) {
      const Action forward{ActionKind::forward, part, k};
      for (const Action& action : {forward, checks.gradient_action(part, k)}) {
        std::vector<Action> joined = joined_behind(schedule, action);
        std::ranges::copy(joined_before(schedule, action), std::back_inserter(joined));
        for (const Action& missing : joined) {
          if (checks.index.find(missing) != nowhere) continue;
          checks.report(Kind::missing, {rank}, {missing},
                        fmt::format("rank {}: {} is missing", rank, to_string(missing)));
        }
      }
    }
  }
  for (const JoinStream stream : {JoinStream::broadcasts, JoinStream::sums}) {
    const std::vector<Action> first = joined_in_order(schedule, 0, stream);
    for (std::size_t rank = 1; rank < schedule.actions.size(); ++rank) {
      const std::vector<Action> here = joined_in_order(schedule, rank, stream);
      const auto [theirs, own] = std::ranges::mismatch(first, here);
      if (theirs == first.end() || own == here.end()) continue;  // what is missing is said above
      Action own_name = *own;
      own_name.stage = part_on(schedule, own->stage, static_cast<int>(rank));
      checks.report(Kind::crossed_messages, {0, static_cast<int>(rank)}, {*theirs, own_name},
                    fmt::format("rank {} joins {} where rank 0 joins {}: all ranks must join them in one order", rank,
                                to_string(own_name), to_string(*theirs)));
    }
  }
}

}  // namespace

std::vector<Action> joined_in_order(const Schedule& schedule, std::size_t rank, JoinStream stream) {
  std::vector<Action> joined;
  for (Action action : schedule.actions[rank]) {
    if (!joins_parts(action.kind) || !in_range(schedule, action)) continue;
    if (stream_of(action) != stream) continue;
    action.stage = part_on(schedule, action.stage, 0);
    joined.push_back(action);
  }
  return joined;
}

void check_messages(ScheduleChecks& checks) {
  if (!checks.lowered) return;
  MessageCheck(checks).run();
  check_joined(checks);
}

}  // namespace plumb
