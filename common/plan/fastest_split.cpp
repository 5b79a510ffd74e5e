#include "common/plan/fastest_split.hpp"

#include <algorithm>
#include <exception>
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
  FastestSplit(Plan plan, const CostsOf& costs_of)
      : plan_(std::move(plan)), costs_of_(costs_of), lowered_(lowered_schedule(plan_)) {}

  // Keeps the split if it fits and its step is shorter than the best.
  bool consider(const Split& split) {
    plan_.split = split;
    plan_.costs = costs_of_(plan_);
    const ScheduleGraph graph = build_graph(lowered_, plan_.costs);
    const Evaluation evaluation = evaluate(graph);
    nodes_ += graph.nodes.size();
    if (best_ && evaluation.makespan >= step_ * clearly) return false;
    const Bytes limit = plan_.cluster.machine.device.memory.value;
    const std::vector<RankMemory> memory = memory_over_time(graph, evaluation, plan_.costs, lowered_);
    if (std::ranges::any_of(memory, [&](const RankMemory& rank) { return rank.peak_bytes > limit; })) return false;
    best_ = split;
    step_ = evaluation.makespan;
    return true;
  }

  // Until no move of one block makes the step shorter.
  void improve() {
    while (best_ && move_one_block()) {
    }
  }

  [[nodiscard]] bool exhausted() const { return nodes_ > most_weighed_nodes; }
  [[nodiscard]] const std::optional<Split>& best() const { return best_; }

 private:
  bool move_one_block() {
    const std::size_t count = best_->layers.size();
    bool moved = false;
    for (std::size_t from = 0; from < count; ++from) {
      for (std::size_t to = 0; to < count; ++to) {
        const bool end = from == 0 || from + 1 == count;
        if (from == to || best_->layers[from] <= (end ? 0 : 1)) continue;
        if (exhausted()) return false;
        Split split = *best_;
        --split.layers[from];
        ++split.layers[to];
        moved = consider(split) || moved;
      }
    }
    return moved;
  }

  Plan plan_;
  const CostsOf& costs_of_;
  Schedule lowered_;
  std::optional<Split> best_;
  Seconds step_;
  std::size_t nodes_ = 0;  // of all paths so far
};

}  // namespace

std::optional<Split> fastest_split(const Plan& plan, SplitProblem problem, const CostsOf& costs_of) {
  FastestSplit fastest(plan, costs_of);
  std::vector<Split> seen;
  const int layers = static_cast<int>(plan.model.layers.size());
  if (layers >= stages(plan.schedule)) {
    seen.push_back(uniform_split(layers, stages(plan.schedule)));
    fastest.consider(seen.front());
  }
  std::exception_ptr unproven;
  for (const Bytes memory : {problem.memory_per_rank.value(), plan.cluster.machine.device.memory.value}) {
    problem.memory_per_rank = memory;
    try {
      for (const Split& split : fast_splits(problem)) {
        if (std::ranges::find(seen, split) != seen.end() || (fastest.exhausted() && fastest.best())) continue;
        seen.push_back(split);
        fastest.consider(split);
      }
    } catch (const InputError&) {
      unproven = std::current_exception();
    }
  }
  fastest.improve();
  if (!fastest.best() && unproven) std::rethrow_exception(unproven);
  return fastest.best();
}

}  // namespace plumb
