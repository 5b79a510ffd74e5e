#include "sim/commands/needed_nodes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/program.hpp"

namespace plumb::sim {
namespace {

constexpr int largest_tried = 1024;

Scenario read(const ScenarioFile& file, const ScenarioOverrides& overrides) {
  const SignOfLife alive("reading");
  return file.read(overrides);
}

}  // namespace

PlannedOnNodes plan_on_nodes(const ScenarioFile& file, const ScenarioOverrides& given, const Evaluator& engine,
                             const PlanningOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  std::exception_ptr first_error;
  std::optional<PlannedOnNodes> found;
  std::vector<int> too_few;
  ScenarioOverrides overrides = given;
  const int largest = file.has_nodes_auto() ? largest_tried : 1;
  for (overrides.nodes = 1; overrides.nodes <= largest; overrides.nodes *= 2) {
    PlanningOptions left = options;
    if (left.time_limit) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      left.time_limit = std::max(0.0, *options.time_limit - spent.count());
    }
    bool settled = false;
    try {
      PlannedOnNodes here{.scenario = read(file, overrides), .too_few = too_few};
      settled = !here.scenario.nodes_open;
      here.planned = plan_openly(here.scenario, engine, left);
      found = std::move(here);
      if (settled || !found->planned.finished || has_fitting(found->planned.planning)) return *std::move(found);
    } catch (const InputError&) {
      if (settled) throw;
      if (!first_error) first_error = std::current_exception();
    }
    too_few.push_back(overrides.nodes);
  }
  if (!found) std::rethrow_exception(first_error);
  return *std::move(found);
}

std::string needed_nodes_text(const PlannedOnNodes& found) {
  const int nodes = found.scenario.cluster.nodes;
  std::string enough = fmt::format("{} {} enough", nodes, nodes == 1 ? "is" : "are");
  if (found.too_few.empty()) return enough;
  return fmt::format("{}, {} {} not", enough, fmt::join(found.too_few, ", "), found.too_few.size() == 1 ? "is" : "are");
}

}  // namespace plumb::sim
