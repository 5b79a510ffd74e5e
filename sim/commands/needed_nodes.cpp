#include "sim/commands/needed_nodes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "common/base/error.hpp"

namespace plumb::sim {
namespace {

constexpr int largest_tried = 1024;

bool has_fitting(const PlanningResult& result) {
  return std::ranges::any_of(result.candidates, [](const Candidate& one) { return one.own && one.fits; });
}

}  // namespace

PlannedOnNodes plan_on_nodes(const ScenarioOnNodes& on_nodes, const Evaluator& engine, const PlanningOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  std::exception_ptr unreadable;
  PlannedOnNodes found;
  std::vector<int> too_few;
  for (int nodes = 1; nodes <= largest_tried; nodes *= 2) {
    PlanningOptions left = options;
    if (left.time_limit) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      left.time_limit = std::max(0.0, *options.time_limit - spent.count());
    }
    try {
      found.scenario = on_nodes(nodes);
      found.too_few = too_few;
      found.planned = plan_openly(found.scenario, engine, left);
      const bool done = has_fitting(found.planned.planning) || !found.planned.finished;
      if (done || !found.scenario.nodes_open) return found;
    } catch (const InputError&) {
      const bool was_read = found.scenario.cluster.ranks > 0;
      if (was_read && !found.scenario.nodes_open) throw;
      if (!unreadable) unreadable = std::current_exception();
    }
    too_few.push_back(nodes);
  }
  if (found.planned.planning.candidates.empty()) std::rethrow_exception(unreadable);
  return found;
}

std::string needed_nodes_text(const PlannedOnNodes& found) {
  if (found.too_few.empty()) return "1 is enough";
  return fmt::format("{} are needed: nothing fits on {}", found.scenario.cluster.nodes,
                     fmt::join(found.too_few, found.too_few.size() == 2 ? " or " : ", "));
}

}  // namespace plumb::sim
