#include "common/planner/fastest_split.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <set>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/near_ties.hpp"
#include "common/graph/memory.hpp"
#include "common/plan/host_memory.hpp"
#include "common/split/chain.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {
namespace {

class FastestSplit {
 public:
  FastestSplit(const WeighSplit& weigh, const SplitSearch& search)
      : weigh_(weigh), most_nodes_(search.most_nodes), most_nodes_shortfall_(search.most_nodes_shortfall) {}

  // Keeps the split if it fits and its step is shorter than the best; while none fits, the nearest to fitting.
  bool consider(const Split& split) {
    const WeighedSplit weighed = weigh_(split, step_ * clearly);
    nodes_ += weighed.nodes;
    nodes_of_one_ = weighed.nodes;
    if (!weighed.step) {
      const bool nearer = !found() && (best_.layers.empty() || weighed.over < over_);
      if (!nearer) return false;
      over_ = weighed.over;
    } else {
      step_ = *weighed.step;
    }
    best_ = split;
    return true;
  }

  // Each once, whatever their paths take, true if one was kept; or as long as there are nodes left or none fits.
  bool consider_new(const std::vector<Split>& splits) {
    bool kept = false;
    for (const Split& split : splits) {
      if (seen_.insert(split.layers).second) kept = consider(split) || kept;
    }
    return kept;
  }
  void consider_affordable(const std::vector<Split>& splits) {
    for (const Split& split : splits) {
      if (!exhausted() || !found()) consider_new({split});
    }
  }

  // Until no move of one block makes the step shorter, or brings it nearer to fitting.
  void improve() {
    while (!best_.layers.empty() && move_one_block()) {
    }
  }

  [[nodiscard]] bool exhausted() const { return nodes_ > (found() ? most_nodes_ : most_nodes_shortfall_); }
  // Whether so many more paths like the last are within the budget.
  [[nodiscard]] bool affords(double paths) const {
    return paths * static_cast<double>(nodes_of_one_) + static_cast<double>(nodes_) <= static_cast<double>(most_nodes_);
  }
  [[nodiscard]] bool found() const { return step_.value < std::numeric_limits<double>::infinity(); }
  [[nodiscard]] std::optional<Split> best() const { return found() ? std::optional(best_) : std::nullopt; }

 private:
  bool move_one_block() {
    const std::size_t count = best_.layers.size();
    bool moved = false;
    for (std::size_t from = 0; from < count; ++from) {
      for (std::size_t to = 0; to < count; ++to) {
        const bool end = from == 0 || from + 1 == count;
        if (from == to || best_.layers[from] <= (end ? 0 : 1)) continue;
        if (exhausted()) return false;
        Split split = best_;
        --split.layers[from];
        ++split.layers[to];
        moved = consider(split) || moved;
      }
    }
    return moved;
  }

  const WeighSplit& weigh_;
  std::size_t most_nodes_;
  std::size_t most_nodes_shortfall_;
  Split best_;  // empty until one is weighed
  Bytes over_;  // while none fits
  Seconds step_{std::numeric_limits<double>::infinity()};
  std::size_t nodes_ = 0;  // of all paths so far
  std::size_t nodes_of_one_ = 0;
  std::set<std::vector<int>> seen_;
};

// How many splits there are; of one stage one.
double number_of_splits(int layers, int stage_count) {
  double number = 1;
  for (int cut = 1; cut < stage_count; ++cut) number *= static_cast<double>(layers + 2 - cut) / cut;
  return number;
}

// Every split that fits the problem, in lexicographic order.
std::vector<Split> all_splits_within(const WeighedChain& chain) {
  std::vector<Split> splits;
  std::vector<int> cuts(static_cast<std::size_t>(chain.stages()), chain.blocks());
  const auto fitting = [&] {
    for (int rank = 0; rank < chain.ranks(); ++rank) {
      if (chain.rank_bytes(rank, cuts) > chain.problem().memory_per_rank->value) return false;
    }
    return true;
  };
  const auto extend = [&](const auto& self, int stage) -> void {
    if (stage + 1 == chain.stages()) {
      if (fitting()) splits.push_back(split_from_cuts(cuts));
      return;
    }
    int& end = cuts[static_cast<std::size_t>(stage)];
    for (end = start_of(cuts, stage) + 1; end <= chain.blocks() - (chain.stages() - stage - 1); ++end) {
      self(self, stage + 1);
    }
  };
  extend(extend, 0);
  return splits;
}

// The least slowest stage within the lesser problem, evened; and within the other, where that is too large for it.
// False: nothing fits, proven.
bool consider_fast_stages(const WeighedChain& least, const WeighedChain& sure, FastestSplit& fastest) {
  for (const WeighedChain* chain : {&least, &sure}) {
    const std::vector<Split> splits = fast_splits(*chain);
    if (splits.empty()) return chain == &sure;
    fastest.consider_new({splits.front()});
    if (fits(sure, splits.front())) break;
  }
  return true;
}

// The same where ranks hold several stages: what fits within `sure` comes first. Where all that is fast within `least`
// does, it is as good within `sure`, which then is not searched. Throws what was thrown for either of them, unless
// something fits.
bool consider_fast_ranks(const WeighedChain& least, const WeighedChain& sure, FastestSplit& fastest) {
  std::exception_ptr unproven;
  const auto fast = [&](const WeighedChain& chain) -> std::optional<std::vector<Split>> {
    try {
      return fast_splits(chain);
    } catch (const InputError&) {
      unproven = std::current_exception();
      return std::nullopt;
    }
  };
  const std::optional<std::vector<Split>> of_least = fast(least);
  if (of_least && of_least->empty()) return fastest.found();
  if (!of_least || !std::ranges::all_of(*of_least, [&](const Split& split) { return fits(sure, split); })) {
    if (const std::optional<std::vector<Split>> of_sure = fast(sure)) fastest.consider_affordable(*of_sure);
  }
  if (of_least) fastest.consider_affordable(*of_least);
  if (!fastest.found() && unproven) std::rethrow_exception(unproven);
  return true;
}

}  // namespace

SplitSearch split_search(const Plan& plan, bool thorough) {
  const bool several = stages(plan.schedule) > plan.schedule.ranks || costs_depend_on_split(plan.training.recompute);
  const std::size_t of_effort = thorough ? thoroughly_weighed_nodes : quickly_weighed_nodes;
  return {.most_nodes = several ? most_weighed_nodes : of_effort, .most_nodes_shortfall = of_effort};
}

std::optional<Split> fastest_split(const SplitProblems& problems, const WeighSplit& weigh, const SplitSearch& search) {
  FastestSplit fastest(weigh, search);
  const WeighedChain sure(problems.sure);
  const WeighedChain least(problems.least);
  const int layers = sure.blocks() - 2;
  const int stage_count = sure.stages();
  const std::vector<Split> uniform = {uniform_split(layers, stage_count)};
  if (sure.most_stages_of_a_rank() == 1) {
    if (!consider_fast_stages(least, sure, fastest)) return std::nullopt;
    fastest.consider_new(uniform);
  } else {
    fastest.consider_new(uniform);
    if (!consider_fast_ranks(least, sure, fastest)) return std::nullopt;
  }
  if (fastest.affords(number_of_splits(layers, stage_count))) {
    fastest.consider_new(all_splits_within(least));
    return fastest.best();
  }
  fastest.improve();
  if (search.others && fastest.consider_new(search.others())) fastest.improve();
  return fastest.best();
}

WeighSplit weigh_by_path(const Plan& plan, const CostsOf& costs_of) {
  return [with_split = plan, lowered = lowered_schedule(plan), costs_of, held = held_on_host(plan),
          limit = plan.cluster.machine.device.memory.value](const Split& split, Seconds below) mutable -> WeighedSplit {
    with_split.split = split;
    with_split.costs = costs_of(with_split);
    const ScheduleGraph graph = build_graph(lowered, with_split.costs);
    const Evaluation evaluation = evaluate(graph);
    WeighedSplit weighed{.over = std::max(too_much_on_host(with_split, with_split.costs, held), Bytes{}),
                         .nodes = graph.nodes.size()};
    if (evaluation.makespan >= below) return weighed;
    for (const RankMemory& rank : memory_over_time(graph, evaluation, with_split.costs, lowered)) {
      weighed.over = std::max(weighed.over, rank.peak_bytes - limit);
    }
    if (weighed.over <= Bytes{0}) weighed.step = evaluation.makespan;
    return weighed;
  };
}

std::optional<Split> fastest_split(const std::vector<Split>& starts, const WeighSplit& weigh) {
  const SplitSearch search;
  FastestSplit fastest(weigh, search);
  fastest.consider_affordable(starts);
  fastest.improve();
  return fastest.best();
}

}  // namespace plumb
