#include "exec/transport/launch_plan/launch_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/layout/lane.hpp"
#include "common/schedule/reductions.hpp"

namespace plumb::exec {
namespace {

// Whether the rank's list has it launched by a communicator.
bool is_launched(const Schedule& lowered, const Action& action) {
  return is_send(action.kind) || is_receive(action.kind) || is_eviction(action.kind) ||
         action.kind == ActionKind::reduce_tied ||
         (action.kind == ActionKind::reduce_gradient && replicas(lowered) == 2);
}

bool occupies_compute(const Action& action) {
  return is_compute(action.kind) || action.kind == ActionKind::optimizer_step;
}

// Where an operation stands: rank, batch of the rank, operation of the batch.
struct Place {
  std::size_t rank = 0;
  std::size_t batch = 0;
  std::size_t operation = 0;
};

// Messages that pair up by their order alone, since NCCL has no tags: of one communicator and one directed pair.
using Wire = std::tuple<CommunicatorUse, int, int>;

struct Ends {
  std::vector<Place> sends;
  std::vector<Place> receives;
};

// Ranks are those of the run.
class LaunchCheck {
 public:
  LaunchCheck(const Schedule& lowered, const Layout& layout, const std::vector<RankCalls>& calls,
              const LaunchPlan& plan, StreamOrder order)
      : lowered_(lowered), calls_(calls), plan_(plan), order_(order) {
    for (int rank = 0; rank < ranks(layout); ++rank) {
      place_in_pipeline_.push_back(static_cast<std::size_t>(lane_of(layout, rank).pipeline_rank));
    }
  }

  std::vector<std::string> run() {
    if (plan_.ranks.size() != place_in_pipeline_.size()) {
      return {fmt::format("launches of {} ranks for {}", plan_.ranks.size(), place_in_pipeline_.size())};
    }
    for (std::size_t rank = 0; rank < plan_.ranks.size(); ++rank) check_list(rank);
    if (!problems_.empty()) return problems_;
    pair_up();
    meet();
    make_items();
    work_off();
    return problems_;
  }

 private:
  // What a rank has to work off, in the order in which its host launches it.
  struct Item {
    bool compute = false;
    std::size_t number = 0;  // compute: index in the list; else the batch
    bool started = false;
    bool done = false;
  };

  template <class... Arguments>
  void report(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    problems_.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  const std::vector<Action>& list_of(std::size_t rank) const { return lowered_.actions[place_in_pipeline_[rank]]; }
  const LaunchBatch& batch_at(std::size_t rank, std::size_t batch) const { return plan_.ranks[rank][batch]; }
  const LaunchOperation& operation_at(const Place& place) const {
    return batch_at(place.rank, place.batch).operations[place.operation];
  }

  // Each message's end once, and no sooner or later than the host can.
  void check_list(std::size_t rank) {
    const std::vector<Action>& list = list_of(rank);
    std::vector<int> seen(list.size(), 0);
    std::vector<GroupCalls> made(list.size());
    std::int32_t place = 0;
    for (const LaunchBatch& batch : plan_.ranks[rank]) {
      if (batch.place < place) report("rank {}: a batch at place {} behind one at {}", rank, batch.place, place);
      place = batch.place;
      if (batch.not_before >= place) report("rank {}: at {} waits for {}, later", rank, place, batch.not_before);
      for (const LaunchOperation& operation : batch.operations) {
        const auto index = static_cast<std::size_t>(operation.index);
        if (index >= list.size() || list[index] != operation.action) {
          report("rank {}: {} does not stand at {}", rank, to_string(operation.action), operation.index);
          continue;
        }
        if (batch.call) {
          if (operation.index != place) report("rank {}: {} is made at {}", rank, describe(*batch.call), place);
          made[index].push_back(batch.call);
          continue;
        }
        ++seen[index];
        const bool late = operation.sends ? place <= operation.index : place > operation.index;
        if (late) report("rank {}: {} is launched at {}", rank, to_string(operation.action), place);
      }
    }
    for (std::size_t index = 0; index < list.size(); ++index) {
      const int wanted = is_launched(lowered_, list[index]) ? 1 : 0;
      if (seen[index] != wanted) report("rank {}: {} is launched {} times", rank, to_string(list[index]), seen[index]);
      if (!calls_.empty()) check_calls(rank, list[index], made[index]);
    }
  }

  // What an action makes, against what it is to make: up to the first that differs.
  void check_calls(std::size_t rank, const Action& action, const GroupCalls& made) {
    const GroupCalls& wanted = calls_of(calls_[rank], action);
    for (std::size_t i = 0; i < std::max(made.size(), wanted.size()); ++i) {
      if (i < made.size() && i < wanted.size() && *made[i] == *wanted[i]) continue;
      const std::string what = i < made.size() ? "makes the " + describe(*made[i]) : "makes nothing more";
      const std::string next = i < wanted.size() ? "the " + describe(*wanted[i]) + " comes" : "nothing more comes";
      return report("rank {}: {} {} where {}", rank, to_string(action), what, next);
    }
  }

  void pair_up() {
    for (std::size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
      for (std::size_t batch = 0; batch < plan_.ranks[rank].size(); ++batch) {
        const LaunchBatch& of = batch_at(rank, batch);
        if (of.call) {
          meetings_[of.call->of][static_cast<int>(rank)].push_back({rank, batch, 0});
          continue;
        }
        for (std::size_t operation = 0; operation < of.operations.size(); ++operation) {
          const LaunchOperation& one = of.operations[operation];
          const auto mine = static_cast<int>(rank);
          const bool from_here = is_sum(of.use) ? mine < one.peer : one.sends;
          Ends& ends = wires_[from_here ? Wire(of.use, mine, one.peer) : Wire(of.use, one.peer, mine)];
          (from_here ? ends.sends : ends.receives).push_back({rank, batch, operation});
        }
      }
    }
    for (const auto& [wire, ends] : wires_) {
      if (ends.sends.size() != ends.receives.size()) {
        report("{}: {} sends from rank {} to rank {} and {} receives", name(std::get<0>(wire)), ends.sends.size(),
               std::get<1>(wire), std::get<2>(wire), ends.receives.size());
      }
      for (std::size_t k = 0; k < std::min(ends.sends.size(), ends.receives.size()); ++k)
        join(ends.sends[k], ends.receives[k]);
    }
  }

  void join(const Place& send, const Place& receive) {
    const Action& sent = operation_at(send).action;
    const Action& received = operation_at(receive).action;
    const bool sum = is_sum(batch_at(send.rank, send.batch).use);
    const Action wanted = sum ? other_half(sent, stages(lowered_)) : is_send(sent.kind) ? other_end(sent) : sent;
    if (received != wanted) {
      report("rank {}'s {} would pair with rank {}'s {}", send.rank, to_string(sent), receive.rank,
             to_string(received));
    }
    partners_[{send.rank, send.batch}].push_back(receive);
    partners_[{receive.rank, receive.batch}].push_back(send);
  }

  // The calls of each communicator's ranks, one after the other.
  void meet() {
    for (const auto& [spec, by_rank] : meetings_) {
      std::size_t most = 0;
      for (const auto& [rank, places] : by_rank) most = std::max(most, places.size());
      for (const int rank : spec.ranks) {
        const auto found = by_rank.find(rank);
        const std::size_t count = found == by_rank.end() ? 0 : found->second.size();
        if (count < most) report("{}: rank {} makes {} calls, and another {}", describe(spec), rank, count, most);
      }
      for (const auto& [rank, places] : by_rank) {
        if (std::ranges::find(spec.ranks, rank) == spec.ranks.end())
          report("rank {}: is not in {}", rank, describe(spec));
        for (std::size_t k = 0; k < places.size(); ++k) meet(by_rank, places[k], k);
      }
    }
  }

  // `one` is the k-th of its rank.
  void meet(const std::map<int, std::vector<Place>>& by_rank, const Place& one, std::size_t k) {
    const LaunchBatch& own = batch_at(one.rank, one.batch);
    for (const auto& [rank, places] : by_rank) {
      if (static_cast<std::size_t>(rank) == one.rank || k >= places.size()) continue;
      const LaunchBatch& other = batch_at(places[k].rank, places[k].batch);
      partners_[{one.rank, one.batch}].push_back(places[k]);
      const bool same = *own.call == *other.call && own.operations.front().action == other.operations.front().action;
      if (same || static_cast<std::size_t>(rank) < one.rank) continue;
      report("rank {}'s {}: {} would meet rank {}'s {}: {}", one.rank, to_string(own.operations.front().action),
             own.call->what, rank, to_string(other.operations.front().action), other.call->what);
    }
  }

  void make_items() {
    items_.resize(plan_.ranks.size());
    done_.assign(plan_.ranks.size(), 0);
    for (std::size_t rank = 0; rank < items_.size(); ++rank) {
      const std::vector<Action>& list = list_of(rank);
      std::size_t batch = 0;
      const auto add_until = [&](std::size_t index, bool stops_at_call) {
        const auto place = static_cast<std::int32_t>(index);
        for (; batch < plan_.ranks[rank].size() && batch_at(rank, batch).place <= place; ++batch) {
          if (stops_at_call && batch_at(rank, batch).call) return;
          item_of_batch_[{rank, batch}] = items_[rank].size();
          items_[rank].push_back({.compute = false, .number = batch});
        }
      };
      for (std::size_t index = 0; index <= list.size(); ++index) {
        const bool computes = index < list.size() && occupies_compute(list[index]);
        add_until(index, computes);
        if (!computes) continue;
        item_of_compute_[{rank, index}] = items_[rank].size();
        items_[rank].push_back({.compute = true, .number = index});
        add_until(index, false);  // what it makes, between parts of its own work
      }
    }
  }

  // Until nothing changes any more: what has not been done then never will be.
  void work_off() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < items_.size(); ++rank) {
        for (std::size_t i = done_[rank]; i < items_[rank].size(); ++i) {
          Item& item = items_[rank][i];
          if (!item.started && held_up_by(rank, i).empty()) moved = item.started = true;
          if (item.started && !item.done && (item.compute || unmatched(rank, item.number).empty()))
            moved = item.done = true;
        }
        while (done_[rank] < items_[rank].size() && items_[rank][done_[rank]].done) ++done_[rank];
      }
    }
    for (std::size_t rank = 0; rank < items_.size(); ++rank) {
      const auto stuck = std::ranges::find_if(items_[rank], [](const Item& item) { return !item.done; });
      if (stuck == items_[rank].end()) continue;
      const auto i = static_cast<std::size_t>(stuck - items_[rank].begin());
      report("deadlock: rank {}: {} waits for {}", rank, words(rank, i),
             stuck->started ? unmatched(rank, stuck->number) : held_up_by(rank, i));
    }
  }

  // Of streams: the one that a batch is on. Sums with different partners have communicators of their own.
  static std::pair<CommunicatorUse, int> stream_of(const LaunchBatch& batch) {
    return {batch.use, is_sum(batch.use) ? batch.operations.front().peer : 0};
  }

  // What an item that has not started waits for on its own rank, in words; empty: nothing.
  std::string held_up_by(std::size_t rank, std::size_t i) const {
    const Item& item = items_[rank][i];
    for (std::size_t before = done_[rank]; before < i; ++before) {
      const Item& earlier = items_[rank][before];
      if (!earlier.done && follows(rank, item, earlier)) return words(rank, before);
    }
    if (item.compute) return {};
    const std::int32_t not_before = batch_at(rank, item.number).not_before;
    if (not_before < 0) return {};
    const auto awaited = item_of_compute_.find({rank, static_cast<std::size_t>(not_before)});
    if (awaited == item_of_compute_.end()) return "what is not compute";
    return items_[rank][awaited->second].started ? std::string() : words(rank, awaited->second);
  }

  // Whether an item starts after an earlier one of its rank has ended.
  bool follows(std::size_t rank, const Item& item, const Item& earlier) const {
    if (order_ == StreamOrder::serial) return true;
    if (is_beside(rank, earlier)) return follows_beside(rank, item, earlier);
    if (is_among_compute(rank, item) && is_among_compute(rank, earlier)) return true;
    if (is_call(rank, item)) return false;  // what it waits for besides, its action's compute has waited for
    if (is_call(rank, earlier)) return batch_at(rank, earlier.number).place < last_sent(batch_at(rank, item.number));
    if (!item.compute && !earlier.compute) {
      const LaunchBatch& batch = batch_at(rank, item.number);
      const LaunchBatch& other = batch_at(rank, earlier.number);
      return stream_of(batch) == stream_of(other) ||
             (sends_what_came(batch) && receives_before(other, last_sent(batch)));
    }
    if (item.compute) return receives_before(batch_at(rank, earlier.number), static_cast<std::int32_t>(item.number));
    return static_cast<std::int32_t>(earlier.number) < last_sent(batch_at(rank, item.number));
  }

  // What follows a sum beside compute: its stream, and all from its stage's REDUCE_GRAD on.
  bool follows_beside(std::size_t rank, const Item& item, const Item& earlier) const {
    const LaunchBatch& batch = batch_at(rank, earlier.number);
    if (is_call(rank, item) && batch_at(rank, item.number).call->of == batch.call->of) return true;
    const std::vector<Action>& list = list_of(rank);
    const Action awaits{ActionKind::reduce_gradient, batch.operations.front().action.stage, no_microbatch};
    const auto at = static_cast<std::int32_t>(std::ranges::find(list, awaits) - list.begin());
    if (item.compute) return static_cast<std::int32_t>(item.number) > at;
    const LaunchBatch& own = batch_at(rank, item.number);
    return (own.call ? own.place : last_sent(own)) > at;
  }

  bool is_beside(std::size_t rank, const Item& item) const {
    return is_call(rank, item) && is_beside_compute(*batch_at(rank, item.number).call);
  }

  // A collective takes what compute has made so far, and compute goes on with what comes of it.
  bool is_among_compute(std::size_t rank, const Item& item) const { return item.compute || is_call(rank, item); }
  bool is_call(std::size_t rank, const Item& item) const {
    return !item.compute && batch_at(rank, item.number).call != nullptr;
  }

  // Evicted activations go back as they came.
  static bool sends_what_came(const LaunchBatch& batch) { return batch.use == CommunicatorUse::evictions; }

  // Before which index all has been computed that a batch sends or adds.
  static std::int32_t last_sent(const LaunchBatch& batch) {
    std::int32_t last = -1;
    for (const LaunchOperation& operation : batch.operations) {
      if (operation.sends || is_sum(batch.use)) last = std::max(last, operation.index);
    }
    return last;
  }

  static bool receives_before(const LaunchBatch& batch, std::int32_t index) {
    return std::ranges::any_of(batch.operations, [&](const LaunchOperation& operation) {
      return !operation.sends && operation.index < index;
    });
  }

  // Of a batch that has started: a partner that has not, in words; empty: it can end.
  std::string unmatched(std::size_t rank, std::size_t batch) const {
    const auto found = partners_.find({rank, batch});
    const std::size_t count = found == partners_.end() ? 0 : found->second.size();
    const LaunchBatch& of = batch_at(rank, batch);
    const std::size_t wanted = of.call ? of.call->of.ranks.size() - 1 : of.operations.size();
    if (count < wanted) return "what nobody does";
    for (const Place& partner : found->second) {
      const std::size_t item = item_of_batch_.at({partner.rank, partner.batch});
      if (!items_[partner.rank][item].started)
        return fmt::format("rank {}'s {}", partner.rank, words(partner.rank, item));
    }
    return {};
  }

  std::string words(std::size_t rank, std::size_t i) const {
    const Item& item = items_[rank][i];
    if (item.compute) return to_string(list_of(rank)[item.number]);
    const LaunchBatch& batch = batch_at(rank, item.number);
    if (batch.call) {
      return fmt::format("{} in {}", describe(*batch.call), to_string(batch.operations.front().action));
    }
    std::string text;
    for (const LaunchOperation& operation : batch.operations) {
      text += (text.empty() ? "" : " + ") + to_string(operation.action);
    }
    return fmt::format("{} ({})", text, name(batch.use));
  }

  const Schedule& lowered_;
  const std::vector<RankCalls>& calls_;  // by rank; none: of one pipeline
  const LaunchPlan& plan_;
  StreamOrder order_;
  std::vector<std::string> problems_;
  std::vector<std::size_t> place_in_pipeline_;  // by rank
  std::map<Wire, Ends> wires_;
  std::map<CommunicatorSpec, std::map<int, std::vector<Place>>> meetings_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Place>> partners_;  // by rank and batch
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> item_of_batch_;    // by rank and batch
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> item_of_compute_;  // by rank and index
  std::vector<std::vector<Item>> items_;                                        // by rank
  std::vector<std::size_t> done_;                                               // of these, from the first, by rank
};

}  // namespace

std::vector<std::string> check_launches(const Schedule& lowered, const LaunchPlan& plan, StreamOrder order) {
  Layout layout;
  layout.pipeline = static_cast<int>(lowered.actions.size());
  return check_launches(lowered, layout, {}, plan, order);
}

std::vector<std::string> check_launches(const Schedule& lowered, const Layout& layout,
                                        const std::vector<RankCalls>& calls, const LaunchPlan& plan,
                                        StreamOrder order) {
  return LaunchCheck(lowered, layout, calls, plan, order).run();
}

}  // namespace plumb::exec
