#include "exec/transport/launch_plan/launch_plan.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/graph/nanoseconds.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/schedule/reductions.hpp"

namespace plumb::exec {
namespace {

constexpr std::int32_t missing = -1;

// A message, or a sum of two ranks' values, which is sent both ways.
struct Transfer {
  CommunicatorUse use = CommunicatorUse::down;
  Action send;
  Action receive;
  std::int32_t from = missing;
  std::int32_t to = missing;
  std::int32_t send_index = missing;
  std::int32_t receive_index = missing;
  Nanoseconds time = 0;       // when what is sent has been computed
  std::int32_t sequence = 0;  // in the order in which the walk came to them: behind what they depend on
};

CommunicatorUse use_of(ActionKind kind) {
  if (is_eviction(kind)) return CommunicatorUse::evictions;
  if (kind == ActionKind::reduce_tied) return CommunicatorUse::tied;
  if (kind == ActionKind::reduce_gradient) return CommunicatorUse::replicas;
  return goes_forward(kind) ? CommunicatorUse::down : CommunicatorUse::up;
}

// Lets every rank run its list: what it receives it waits for, what it sends goes at once. The times do not depend on
// the order in which ranks are looked at.
class Walk {
 public:
  Walk(const Schedule& lowered, const PipelineCosts& costs)
      : lowered_(lowered),
        costs_(costs),
        next_(lowered.actions.size(), 0),
        clock_(lowered.actions.size(), 0),
        starts_(lowered.actions.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (next_[rank] < lowered_.actions[rank].size() && step(rank)) {
          ++next_[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] == lowered_.actions[rank].size()) continue;
      refuse(rank, lowered_.actions[rank][next_[rank]], "waits for what never comes");
    }
    for (const Transfer& transfer : transfers_) {
      if (transfer.receive_index != missing) continue;
      refuse(static_cast<std::size_t>(transfer.from), transfer.send, "is never received");
    }
  }

  [[nodiscard]] std::vector<Transfer>& transfers() { return transfers_; }

  // No compute action is so short that what follows it could seem to happen at the same time.
  [[nodiscard]] bool all_compute_takes_time() const { return shortest_ >= 2; }

  // The last compute action of the rank that stands before `index` and starts before `time`, or -1.
  [[nodiscard]] std::int32_t last_started(std::int32_t rank, std::int32_t index, Nanoseconds time) const {
    std::int32_t found = missing;
    for (const auto& [action, start] : starts_[static_cast<std::size_t>(rank)]) {
      if (action >= index || start >= time) break;  // both ascend
      found = action;
    }
    return found;
  }

 private:
  [[noreturn]] void refuse(std::size_t rank, const Action& action, const std::string& problem) const {
    throw InputError("schedule " + lowered_.name,
                     "rank " + std::to_string(rank) + ": " + to_string(action) + " " + problem,
                     "plumb schedule check names what is wrong with a schedule");
  }

  // Whether the next action of a rank can be done; then it is.
  bool step(std::size_t rank) {
    const Action& action = lowered_.actions[rank][next_[rank]];
    if (is_receive(action.kind)) return arrive(rank, action);
    if (is_eviction(action.kind) && !sends_activations(lowered_, static_cast<int>(rank), action)) {
      return arrive(rank, action);
    }
    if (is_send(action.kind) || is_eviction(action.kind)) {
      depart(rank, action, is_send(action.kind) ? other_end(action) : action);
    } else if (action.kind == ActionKind::reduce_tied || is_sum_of_replicas(lowered_, action)) {
      return sum(rank, action);
    } else {
      compute(rank, action);
    }
    return true;
  }

  void compute(std::size_t rank, const Action& action) {
    const ComputeCost& cost = costs_.stages[static_cast<std::size_t>(action.stage)];
    if (action.kind == ActionKind::optimizer_step) {
      clock_[rank] += rounded_to_nanoseconds(cost.optimizer);
    } else if (is_compute(action.kind)) {
      starts_[rank].emplace_back(static_cast<std::int32_t>(next_[rank]), clock_[rank]);
      const Nanoseconds time = rounded_to_nanoseconds(compute_time(cost, action));
      shortest_ = std::min(shortest_, time);
      clock_[rank] += time;
    }
  }

  void depart(std::size_t rank, const Action& action, const Action& receive) {
    const auto number = static_cast<std::int32_t>(transfers_.size());
    if (!on_its_way_.emplace(receive, number).second) refuse(rank, action, "stands there twice");
    transfers_.push_back({.use = use_of(action.kind),
                          .send = action,
                          .receive = receive,
                          .from = static_cast<std::int32_t>(rank),
                          .send_index = static_cast<std::int32_t>(next_[rank]),
                          .time = clock_[rank],
                          .sequence = done_++});
  }

  bool arrive(std::size_t rank, const Action& action) {
    const auto found = on_its_way_.find(action);
    if (found == on_its_way_.end()) return false;
    Transfer& transfer = transfers_[static_cast<std::size_t>(found->second)];
    if (transfer.receive_index != missing) refuse(rank, action, "stands there twice");
    transfer.to = static_cast<std::int32_t>(rank);
    transfer.receive_index = static_cast<std::int32_t>(next_[rank]);
    if (is_eviction(action.kind)) settle_eviction(transfer, action);
    Nanoseconds there = transfer.time;
    if (is_receive(action.kind)) {
      const Bytes bytes = boundary_of_stage(costs_, action.stage, action.microbatch);
      there += rounded_to_nanoseconds(transfer_time(transfer_between(costs_, transfer.from, transfer.to), bytes) +
                                      gathering_time(costs_, action.microbatch));
    }
    clock_[rank] = std::max(clock_[rank], there);
    return true;
  }

  // A rank makes room for what it loads before its LOAD: nothing of that travels sooner. What one rank evicts or loads
  // to another has one order in both lists, and travels in it.
  void settle_eviction(Transfer& transfer, const Action& action) {
    Nanoseconds& before = last_eviction_[{transfer.from, transfer.to}];
    if (action.kind == ActionKind::load) {
      transfer.time = std::max(transfer.time, clock_[static_cast<std::size_t>(transfer.to)]);
    }
    before = transfer.time = std::max(transfer.time, before);
    transfer.sequence = done_++;
  }

  // The rank that comes first waits where it is.
  bool sum(std::size_t rank, const Action& action) {
    const auto [entry, first] = on_its_way_.try_emplace(name_of_both(action), missing);
    const auto mine = static_cast<std::int32_t>(rank);
    if (first) {
      entry->second = static_cast<std::int32_t>(transfers_.size());
      transfers_.push_back({.use = use_of(action.kind),
                            .send = action,
                            .receive = other_half(action, stages(lowered_)),
                            .from = mine,
                            .send_index = static_cast<std::int32_t>(next_[rank]),
                            .time = clock_[rank]});
      return false;
    }
    Transfer& transfer = transfers_[static_cast<std::size_t>(entry->second)];
    if (transfer.from != mine && transfer.receive_index == missing) {
      transfer.to = mine;
      transfer.receive_index = static_cast<std::int32_t>(next_[rank]);
      transfer.time = std::max(transfer.time, clock_[rank]);
      transfer.sequence = done_++;
    }
    if (transfer.receive_index == missing) return false;
    clock_[rank] = std::max(clock_[rank], transfer.time);
    return true;
  }

  const Schedule& lowered_;
  const PipelineCosts& costs_;
  std::vector<std::size_t> next_;
  std::vector<Nanoseconds> clock_;
  std::vector<std::vector<std::pair<std::int32_t, Nanoseconds>>> starts_;  // compute: index, time
  std::vector<Transfer> transfers_;
  std::map<std::pair<std::int32_t, std::int32_t>, Nanoseconds> last_eviction_;  // by both ranks
  std::map<Action, std::int32_t> on_its_way_;  // by its receive, or the name of both halves: its place in transfers_
  Nanoseconds shortest_ = std::numeric_limits<Nanoseconds>::max();
  std::int32_t done_ = 0;  // sends and sums
};

// Hands the transfers, in their order, to both their ranks.
class Builder {
 public:
  Builder(const Schedule& lowered, const Walk& walk, bool batches)
      : lowered_(lowered),
        walk_(walk),
        batches_(batches),
        plan_{.ranks = std::vector<RankLaunches>(lowered.actions.size())} {}

  void add(const Transfer& transfer) {
    const bool sum = is_sum(transfer.use);
    const bool joins = batches_ && !sum && transfer.use != CommunicatorUse::evictions && before_ &&
                       before_->use == transfer.use && before_->time == transfer.time;
    if (!joins) ++level_;
    before_ = {.use = transfer.use, .time = transfer.time};
    put(transfer, transfer.from,
        {.action = transfer.send, .index = transfer.send_index, .peer = transfer.to, .sends = !sum});
    put(transfer, transfer.to,
        {.action = transfer.receive, .index = transfer.receive_index, .peer = transfer.from, .sends = false});
  }

  LaunchPlan finish() {
    for (std::size_t rank = 0; rank < plan_.ranks.size(); ++rank) place(rank);
    return std::move(plan_);
  }

 private:
  struct Level {
    CommunicatorUse use = CommunicatorUse::down;
    Nanoseconds time = 0;
  };

  void put(const Transfer& transfer, std::int32_t rank, const LaunchOperation& operation) {
    RankLaunches& launches = plan_.ranks[static_cast<std::size_t>(rank)];
    auto& [level, times] = of_rank_[rank];
    if (level != level_ || launches.empty()) {
      launches.push_back({.use = transfer.use, .operations = {}});
      times.push_back(transfer.time);
      level = level_;
    }
    launches.back().operations.push_back(operation);
  }

  // Evictions are alone in their batches.
  static bool loads(const LaunchBatch& batch) {
    const LaunchOperation& operation = batch.operations.front();
    return operation.action.kind == ActionKind::load && !operation.sends;
  }

  void place(std::size_t rank) {
    std::int32_t place = 0;
    for (std::size_t i = 0; i < plan_.ranks[rank].size(); ++i) {
      LaunchBatch& batch = plan_.ranks[rank][i];
      std::int32_t last_send = missing;
      std::int32_t first_receive = std::numeric_limits<std::int32_t>::max();
      for (const LaunchOperation& operation : batch.operations) {
        if (operation.sends) {
          last_send = std::max(last_send, operation.index);
        } else {
          first_receive = std::min(first_receive, operation.index);
        }
      }
      const auto owner = static_cast<std::int32_t>(rank);
      if (is_sum(batch.use) || loads(batch)) place = std::max(place, first_receive);
      if (!is_sum(batch.use)) {
        if (last_send == missing) batch.not_before = walk_.last_started(owner, first_receive, of_rank_[owner].times[i]);
        place = std::max({place, last_send + 1, batch.not_before + 1});
      }
      batch.place = place;
      if (is_sum(batch.use)) ++place;
      if (batch.place <= first_receive) continue;
      throw InputError("schedule " + lowered_.name,
                       "rank " + std::to_string(rank) + ": what it receives at " + std::to_string(first_receive) +
                           " of its list comes behind what it computes only after that",
                       "plumb schedule check names what is wrong with a schedule");
    }
  }

  struct OfRank {
    std::int32_t level = missing;
    std::vector<Nanoseconds> times = {};  // by batch
  };

  const Schedule& lowered_;
  const Walk& walk_;
  bool batches_;
  LaunchPlan plan_;
  std::optional<Level> before_;
  std::int32_t level_ = 0;
  std::map<std::int32_t, OfRank> of_rank_;
};

}  // namespace

LaunchPlan plan_launches(const Schedule& lowered, const PipelineCosts& costs) {
  if (costs.stages.size() != lowered.rank_of_stage.size()) {
    throw InputError("schedule " + lowered.name, "has " + std::to_string(lowered.rank_of_stage.size()) +
                                                     " stages, the costs " + std::to_string(costs.stages.size()));
  }
  Walk walk(lowered, costs);
  walk.run();
  const bool batches = walk.all_compute_takes_time();
  std::ranges::sort(walk.transfers(), {}, [&](const Transfer& transfer) {
    // At one time each communicator's go together; without that, what another needs could come behind it.
    const auto use = batches ? transfer.use : CommunicatorUse::down;
    return std::tuple(transfer.time, use, transfer.sequence);
  });
  Builder builder(lowered, walk, batches);
  for (const Transfer& transfer : walk.transfers()) builder.add(transfer);
  return builder.finish();
}

}  // namespace plumb::exec
