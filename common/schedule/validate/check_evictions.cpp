#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/schedule/validate/checks.hpp"

namespace plumb {
namespace {

using Kind = ScheduleProblem::Kind;

// Evictions go to a partner and come back: EVICT and LOAD each stand on the stage's own rank and on one partner's.
class EvictionCheck {
 public:
  explicit EvictionCheck(ScheduleChecks& checks) : checks_(checks), schedule_(checks.schedule) {}

  void run() {
    for (int stage = 0; stage < stages(schedule_); ++stage) {
      for (int k = 0; k < schedule_.microbatches; ++k) check(stage, k);
    }
    check_queues();
  }

 private:
  void check(int stage, int k) {
    const Action evict{ActionKind::evict, stage, k};
    const Action load{ActionKind::load, stage, k};
    const bool evict_whole = check_halves(evict);
    const bool whole = check_halves(load) && evict_whole;
    const std::int32_t evicted = checks_.index.find(evict);
    const std::int32_t loaded = checks_.index.find(load);
    if (!whole || (evicted == nowhere && loaded == nowhere)) return;
    const int rank = checks_.rank_of(evict);
    if (evicted == nowhere || loaded == nowhere) {
      const Action& there = evicted == nowhere ? load : evict;
      const Action& missing = evicted == nowhere ? evict : load;
      checks_.report(
          Kind::missing, {rank}, {missing, there},
          fmt::format("rank {}: {} is missing, but {} is there", rank, to_string(missing), to_string(there)));
      return;
    }
    const int partner = checks_.index.rank_at(checks_.index.find_partner(evict));
    if (checks_.index.rank_at(checks_.index.find_partner(load)) != partner) {
      checks_.report(Kind::misplaced, {rank}, {load},
                     fmt::format("rank {}: {} comes back from another rank than {} went to", rank, to_string(load),
                                 to_string(evict)));
      return;
    }
    const Action forward{ActionKind::forward, stage, k};
    const Action gradient = checks_.gradient_action(stage, k);
    require(rank, forward, checks_.placed(forward), evict, evicted);
    require(rank, evict, evicted, load, loaded);
    require(rank, load, loaded, gradient, checks_.placed(gradient));
    require(partner, evict, checks_.index.find_partner(evict), load, checks_.index.find_partner(load));
  }

  // True unless one half is there without the other.
  bool check_halves(const Action& action) {
    const std::int32_t own = checks_.index.find(action);
    const std::int32_t partners = checks_.index.find_partner(action);
    if ((own == nowhere) == (partners == nowhere)) return true;
    const int rank = checks_.index.rank_at(own == nowhere ? partners : own);
    checks_.report(
        Kind::unmatched_message, {rank}, {action},
        fmt::format("rank {}: {} stands on this rank alone, expected it on the stage's rank {} and a partner's", rank,
                    to_string(action), checks_.rank_of(action)));
    return false;
  }

  void require(int rank, const Action& before, std::int32_t before_at, const Action& after, std::int32_t after_at) {
    if (before_at == nowhere || after_at == nowhere || before_at < after_at) return;
    checks_.report(
        Kind::crossed, {rank, rank}, {after, before},
        fmt::format("rank {}: {} stands before {}, which it needs", rank, to_string(after), to_string(before)));
  }

  // Per directed pair of ranks the sending halves come in the order of the receiving ones.
  void check_queues() {
    using Pair = std::pair<int, int>;  // from, to
    std::map<Pair, std::vector<Action>> sent;
    std::map<Pair, std::vector<Action>> received;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (const Action& action : schedule_.actions[static_cast<std::size_t>(rank)]) {
        if (!is_eviction(action.kind) || !in_range(schedule_, action)) continue;
        const std::int32_t own = checks_.index.find(action);
        const std::int32_t partners = checks_.index.find_partner(action);
        if (own == nowhere || partners == nowhere) continue;
        const bool goes = action.kind == ActionKind::evict;
        const int from = checks_.index.rank_at(goes ? own : partners);
        const int to = checks_.index.rank_at(goes ? partners : own);
        (rank == from ? sent : received)[{from, to}].push_back(action);
      }
    }
    for (const auto& [pair, sends] : sent) {
      const auto [send, receive] = std::ranges::mismatch(sends, received[pair]);
      if (send == sends.end() || receive == received[pair].end()) continue;
      checks_.report(Kind::crossed_messages, {pair.first, pair.second}, {*send, *receive},
                     fmt::format("eviction {} from rank {} to rank {} is {}, but rank {} expects {} then",
                                 send - sends.begin() + 1, pair.first, pair.second, to_string(*send), pair.second,
                                 to_string(*receive)));
    }
  }

  ScheduleChecks& checks_;
  const Schedule& schedule_;
};

}  // namespace

void check_evictions(ScheduleChecks& checks) {
  if (evicts(checks.schedule)) EvictionCheck(checks).run();
}

}  // namespace plumb
