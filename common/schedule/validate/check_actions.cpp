#include <fmt/format.h>

#include <algorithm>

#include "common/schedule/validate/checks.hpp"

namespace plumb {
namespace {

using Kind = ScheduleProblem::Kind;

bool is_built(ActionKind kind) { return kind != ActionKind::reshard; }

// Why this message cannot be, or empty: it has no stage at its other end, or that stands on the same rank.
std::string message_fault(const Schedule& schedule, const Action& action) {
  const int other = is_send(action.kind) ? consumer_stage(action) : producer_stage(action);
  if (other < 0 || other >= stages(schedule)) return "there is no stage at its other end";
  if (!crosses_ranks(schedule, std::min(action.stage, other), action.microbatch)) {
    return fmt::format("stage {} stands on the same rank, which needs no message", other);
  }
  return "";
}

std::string malformed_because(const Schedule& schedule, int rank, const Action& action) {
  if (!is_built(action.kind)) return fmt::format("{} is not supported yet", letters(action.kind));
  if (!in_range(schedule, action)) {
    const bool update = action.kind == ActionKind::optimizer_step && schedule.update_every > 0;
    return fmt::format("out of range, there are {} stages and {} {}", all_stages(schedule),
                       update ? updates(schedule) : schedule.microbatches, update ? "updates" : "microbatches");
  }
  if (is_send(action.kind) || is_receive(action.kind)) return message_fault(schedule, action);
  if (action.kind == ActionKind::reduce_tied && action.stage != 0 && action.stage + 1 != stages(schedule)) {
    return "only the first and the last stage can be tied";
  }
  if (action.kind == ActionKind::clip_gradients && holds(schedule, rank, action.stage) &&
      action != clip_of(schedule, rank)) {
    return fmt::format("it stands once on a rank and names its first stage: {}", to_string(clip_of(schedule, rank)));
  }
  return "";
}

// Of actions without a microbatch; remembers the first of each.
bool stands_again(ScheduleChecks& checks, int replica, const Action& action, std::int32_t position) {
  std::int32_t& entry =
      checks.end_position(action.kind, replica, action.stage, std::max<std::int32_t>(0, action.microbatch));
  if (entry != nowhere) return true;
  entry = position;
  return false;
}

std::string holders(const Schedule& schedule, int stage) {
  std::string text = std::to_string(rank_in_replica(schedule, 0, stage));
  if (replicas(schedule) == 2) text += fmt::format(" and rank {}", rank_in_replica(schedule, 1, stage));
  return text;
}

void check_action(ScheduleChecks& checks, int rank, const Action& action, std::int32_t position) {
  const std::string fault = malformed_because(checks.schedule, rank, action);
  if (!fault.empty()) {
    checks.report(Kind::malformed, {rank}, {action}, fmt::format("rank {}: {}: {}", rank, to_string(action), fault));
    return;
  }
  const bool of_microbatch = has_microbatch(action.kind);
  const bool own = of_microbatch ? checks.rank_of(action) == rank : checks.replica_on(rank, action.stage) >= 0;
  if (!own && !is_eviction(action.kind)) {
    checks.report(
        Kind::misplaced, {rank}, {action},
        fmt::format("rank {}: {}: stage {} stands on rank {}", rank, to_string(action), action.stage,
                    of_microbatch ? std::to_string(checks.rank_of(action)) : holders(checks.schedule, action.stage)));
  }
  bool again = false;
  if (of_microbatch) {
    again =
        (own ? checks.index.find(action)
             : (is_eviction(action.kind) ? checks.index.find_partner(action) : checks.index.find(action))) != position;
  } else if (own) {
    again = stands_again(checks, checks.replica_on(rank, action.stage), action, position);
  }
  if (again) {
    checks.report(Kind::duplicate, {rank}, {action},
                  fmt::format("rank {}: {} stands there a second time", rank, to_string(action)));
  }
}

void check_one_backward(ScheduleChecks& checks, std::int32_t stage, std::int32_t microbatch) {
  const Action full{ActionKind::backward, stage, microbatch};
  if (checks.index.find(full) == nowhere) return;
  for (const ActionKind kind : {ActionKind::input_gradient, ActionKind::weight_gradient}) {
    const Action half{kind, stage, microbatch};
    if (checks.index.find(half) == nowhere) continue;
    const int rank = checks.rank_of(full);
    checks.report(Kind::duplicate, {rank, rank}, {full, half},
                  fmt::format("rank {}: {} stands beside {}, which does {} already", rank, to_string(half),
                              to_string(full), letters(kind)));
  }
}

// Both of a pair stand on one rank, next to each other.
void check_pairs(ScheduleChecks& checks) {
  const std::vector<bool> begins = pair_begins(checks.schedule, checks.index);
  for (const OverlappedPair& pair : checks.schedule.overlapped) {
    const std::int32_t at =
        is_compute(pair.first.kind) && in_range(checks.schedule, pair.first) ? checks.index.find(pair.first) : nowhere;
    const bool stands = at != nowhere && begins[static_cast<std::size_t>(at)] && pair.first.kind != pair.second.kind;
    if (stands) continue;
    const int rank = at == nowhere ? 0 : checks.index.rank_at(at);
    checks.report(Kind::malformed, {rank, rank}, {pair.first, pair.second},
                  fmt::format("{} and {} are to overlap, but do not stand next to each other", to_string(pair.first),
                              to_string(pair.second)));
  }
}

void report_missing(ScheduleChecks& checks, int rank, const Action& action, std::string_view expected) {
  checks.report(Kind::missing, {rank}, {action},
                fmt::format("rank {}: {} is missing{}", rank, to_string(action), expected));
}

void check_compute(ScheduleChecks& checks, int stage, int k) {
  const auto missing = [&](ActionKind kind) { return checks.index.find(kind, stage, k) == nowhere; };
  const auto report = [&](ActionKind kind, std::string_view expected) {
    report_missing(checks, rank_of(checks.schedule, stage, k), {kind, stage, k}, expected);
  };
  if (missing(ActionKind::forward)) report(ActionKind::forward, "");
  if (!missing(ActionKind::backward)) return;
  const bool no_input = missing(ActionKind::input_gradient);
  const bool no_weight = missing(ActionKind::weight_gradient);
  if (no_input && no_weight) {
    report(ActionKind::backward, ", expected B or I and W");
  } else if (no_input) {
    report(ActionKind::input_gradient, ", but its W is there");
  } else if (no_weight) {
    report(ActionKind::weight_gradient, ", but its I is there");
  }
}

// If one stage steps, or sums its replicas, all do, as often.
void check_ends(ScheduleChecks& checks, ActionKind kind, std::string_view expected) {
  const Schedule& schedule = checks.schedule;
  const int numbers = kind == ActionKind::optimizer_step ? std::max(1, updates(schedule)) : 1;
  const auto for_all = [&](const auto& visit) {
    for (int replica = 0; replica < replicas(schedule); ++replica) {
      for (int stage = 0; stage < all_stages(schedule); ++stage) {
        for (int update = 0; update < numbers; ++update) visit(replica, stage, update);
      }
    }
  };
  bool any = false;
  for_all(
      [&](int replica, int stage, int update) { any |= checks.end_position(kind, replica, stage, update) != nowhere; });
  // Two replicas that step without having summed their gradients would part.
  if (kind == ActionKind::reduce_gradient && replicas(schedule) == 2) {
    any |= checks.end_position(ActionKind::optimizer_step, 0, 0) != nowhere;
  }
  // What is gathered behind a forward has been updated.
  if (kind == ActionKind::optimizer_step) {
    for_all([&](int replica, int stage, int) {
      any |=
          checks.end_position(ActionKind::unshard, replica, stage) != nowhere && !checks.gathers_first(replica, stage);
    });
  }
  if (!any) return;
  for_all([&](int replica, int stage, int update) {
    if (checks.end_position(kind, replica, stage, update) != nowhere) return;
    const std::int32_t number =
        kind == ActionKind::optimizer_step && schedule.update_every > 0 ? update : no_microbatch;
    report_missing(checks, rank_in_replica(schedule, replica, stage), {kind, stage, number}, expected);
  });
}

// If one rank clips, all do.
void check_clips(ScheduleChecks& checks) {
  const Schedule& schedule = checks.schedule;
  std::vector<int> without;
  bool any = false;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (stages_of_rank(schedule, rank).empty()) continue;
    const bool clips = checks.clip_position(rank) != nowhere;
    any |= clips;
    if (!clips) without.push_back(rank);
  }
  if (!any) return;
  for (const int rank : without) report_missing(checks, rank, clip_of(schedule, rank), ", but other ranks clip theirs");
}

}  // namespace

void check_each_action(ScheduleChecks& checks) {
  std::int32_t position = 0;
  for (std::size_t rank = 0; rank < checks.schedule.actions.size(); ++rank) {
    for (const Action& action : checks.schedule.actions[rank]) {
      check_action(checks, static_cast<int>(rank), action, position++);
    }
  }
  for (int stage = 0; stage < all_stages(checks.schedule); ++stage) {
    for (int k = 0; k < checks.schedule.microbatches; ++k) check_one_backward(checks, stage, k);
  }
  check_pairs(checks);
}

void check_completeness(ScheduleChecks& checks) {
  for (int stage = 0; stage < all_stages(checks.schedule); ++stage) {
    for (int k = 0; k < checks.schedule.microbatches; ++k) check_compute(checks, stage, k);
  }
  check_ends(checks, ActionKind::optimizer_step, ", but other stages step");
  check_ends(checks, ActionKind::reduce_gradient, ", but other stages sum theirs");
  check_ends(checks, ActionKind::unshard, ", but other stages gather theirs");
  check_clips(checks);
  const int last = stages(checks.schedule) - 1;
  const bool first_tied = checks.end_position(ActionKind::reduce_tied, 0, 0) != nowhere;
  const bool last_tied = checks.end_position(ActionKind::reduce_tied, 0, last) != nowhere;
  if (first_tied != last_tied) {
    const int stage = first_tied ? last : 0;
    report_missing(checks, rank_in_replica(checks.schedule, 0, stage), {ActionKind::reduce_tied, stage, no_microbatch},
                   ", the other rank waits for it");
  }
}

}  // namespace plumb
