#include "sim/predict.hpp"

#include "common/base/error.hpp"
#include "common/base/host/available_memory.hpp"
#include "common/planner/unfolded.hpp"
#ifdef PLUMB_HAS_SIMGRID
#include "common/graph/schedule_graph.hpp"
#include "sim/runner.hpp"
#endif

namespace plumb::sim {

#ifdef PLUMB_HAS_SIMGRID
namespace {

Timeline predict_by_simgrid(const Plan& plan) {
  if (has_stage_data(plan.layout)) {  // what contends is which ranks of a stage send where
    const UnfoldingRoom room{.there = available_memory(),
                             .where = "layout",
                             .hint = "--engine path, for which one rank of each stage is enough"};
    return folded_back_timeline(
        plan, "simgrid",
        [&](const ScheduleGraph& graph) { return simulate(graph, platform_of(plan.cluster, plan.costs, graph.ranks)); },
        room);
  }
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  return predicted_timeline(plan, lowered, graph, simulate(graph, plan.costs), "simgrid");
}

}  // namespace

std::vector<std::string> engine_names() { return {"simgrid", "path"}; }
#else
std::vector<std::string> engine_names() { return {"path"}; }
#endif

std::string simgrid_version() {
#ifdef PLUMB_HAS_SIMGRID
  return PLUMB_SIMGRID_VERSION;
#else
  return "off";
#endif
}

std::string engine_text(std::string_view name) {
  if (name == "simgrid") return "simgrid: ranks contend for cores and links";
  const std::string text = "path: as if nothing contends";
  return engine_names().size() == 1 ? text + " (this plumb was built without SimGrid)" : text;
}

namespace {

StepOutcome evaluate_step(const ScheduleGraph& graph, const PipelineCosts&,
                          const std::vector<Disturbance>& disturbances) {
  if (disturbances.empty()) return {.evaluation = evaluate(graph), .unfinished = {}};
  throw InputError("--engine", "the longest path knows no slow or failing link or host at a date",
                   engine_names().size() > 1 ? "--engine simgrid" : "a plumb that is built with SimGrid");
}

}  // namespace

StepEngine find_step_engine(std::string_view name) {
  static_cast<void>(find_engine(name));  // says what is wrong with the name
#ifdef PLUMB_HAS_SIMGRID
  if (name != path_engine) {
    return [](const ScheduleGraph& graph, const PipelineCosts& costs, const std::vector<Disturbance>& disturbances) {
      return simulate(graph, platform_of(costs, graph.ranks), disturbances);
    };
  }
#endif
  return evaluate_step;
}

Evaluator find_engine(std::string_view name) {
  if (name == "path") return predict_by_path;
#ifdef PLUMB_HAS_SIMGRID
  if (name == "simgrid") return predict_by_simgrid;
#else
  if (name == "simgrid") {
    throw InputError("--engine", "this plumb was built without SimGrid",
                     "install SimGrid (Debian: libsimgrid-dev) and build again, or use --engine path");
  }
#endif
  throw InputError("--engine", "unknown engine '" + std::string(name) + "'", did_you_mean(name, engine_names()));
}

Timeline predict_unfolded(const Plan& plan, std::string_view engine) {
  static_cast<void>(find_engine(engine));
  const RunGraph run = [&](const ScheduleGraph& graph) {
#ifdef PLUMB_HAS_SIMGRID
    if (engine == "simgrid") return simulate(graph, platform_of(plan.cluster, plan.costs, graph.ranks));
#endif
    return evaluate(graph);
  };
  return unfolded_timeline(plan, engine, run, {.there = available_memory()});
}

}  // namespace plumb::sim
