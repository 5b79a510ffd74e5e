#include "common/plan/fastest_split.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/graph/memory.hpp"

namespace plumb {
namespace {

// A step counts as shorter only if it is by more than what rounding of sums makes.
constexpr double clearly = 1 - 1e-9;

class FastestSplit {
 public:
  explicit FastestSplit(const WeighSplit& weigh) : weigh_(weigh) {}

  // Keeps the split if it fits and its step is shorter than the best.
  bool consider(const Split& split) {
    const WeighedSplit weighed = weigh_(split, step_ * clearly);
    nodes_ += weighed.nodes;
    if (!weighed.step) return false;
    best_ = split;
    step_ = *weighed.step;
    return true;
  }

  // Until no move of one block makes the step shorter.
  void improve() {
    while (found() && move_one_block()) {
    }
  }

  [[nodiscard]] bool exhausted() const { return nodes_ > most_weighed_nodes; }
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
  Split best_;  // empty until one is found
  Seconds step_{std::numeric_limits<double>::infinity()};
  std::size_t nodes_ = 0;  // of all paths so far
};

}  // namespace

std::optional<Split> fastest_split(SplitProblem problem, Bytes device_memory, const WeighSplit& weigh) {
  FastestSplit fastest(weigh);
  std::vector<Split> seen;
  const int layers = static_cast<int>(problem.block_times.size()) - 2;
  const int stage_count = static_cast<int>(problem.rank_of_stage.size());
  if (layers >= stage_count) {
    seen.push_back(uniform_split(layers, stage_count));
    fastest.consider(seen.front());
  }
  std::exception_ptr unproven;
  for (const Bytes memory : {problem.memory_per_rank.value(), device_memory}) {
    problem.memory_per_rank = memory;
    try {
      for (const Split& split : fast_splits(problem)) {
        if (std::ranges::find(seen, split) != seen.end() || (fastest.exhausted() && fastest.found())) continue;
        seen.push_back(split);
        fastest.consider(split);
      }
    } catch (const InputError&) {
      unproven = std::current_exception();
    }
  }
  fastest.improve();
  if (!fastest.found() && unproven) std::rethrow_exception(unproven);
  return fastest.best();
}

WeighSplit weigh_by_path(const Plan& plan, const CostsOf& costs_of) {
  return [with_split = plan, lowered = lowered_schedule(plan), costs_of,
          limit = plan.cluster.machine.device.memory.value](const Split& split, Seconds below) mutable -> WeighedSplit {
    with_split.split = split;
    with_split.costs = costs_of(with_split);
    const ScheduleGraph graph = build_graph(lowered, with_split.costs);
    const Evaluation evaluation = evaluate(graph);
    WeighedSplit weighed{.nodes = graph.nodes.size()};
    if (evaluation.makespan >= below) return weighed;
    const std::vector<RankMemory> memory = memory_over_time(graph, evaluation, with_split.costs, lowered);
    const auto exceeds = [&](const RankMemory& rank) { return rank.peak_bytes > limit; };
    if (std::ranges::none_of(memory, exceeds)) weighed.step = evaluation.makespan;
    return weighed;
  };
}

std::optional<Split> fastest_split(const Plan& plan, SplitProblem problem, const CostsOf& costs_of) {
  return fastest_split(std::move(problem), plan.cluster.machine.device.memory.value, weigh_by_path(plan, costs_of));
}

std::optional<Split> fastest_split(const std::vector<Split>& starts, const WeighSplit& weigh) {
  FastestSplit fastest(weigh);
  for (const Split& start : starts) {
    if (!(fastest.exhausted() && fastest.found())) fastest.consider(start);
  }
  fastest.improve();
  return fastest.best();
}

}  // namespace plumb
