#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/files.hpp"
#include "common/base/json.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/plan/bottleneck.hpp"
#include "common/plan/planner.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/input.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {
namespace {

struct Options {
  std::string scenario;
  std::string output;
  std::string engine = engine_names().front();
  ScenarioOverrides overrides;
  bool json = false;
};

Json to_json(const Candidate& candidate, const Scenario& scenario) {
  const bool built = candidate.built;
  const Bottleneck bound = built ? bottleneck(candidate.plan) : Bottleneck{};
  return {{"layout", describe(scenario.layout)},
          {"schedule", candidate.choice.schedule.name},
          {"chunks", candidate.choice.schedule.chunks},
          {"split", describe(candidate.choice.split)},
          {"split_layers", candidate.plan.split.layers},
          {"own", candidate.own},
          {"microbatch", candidate.choice.microbatch},
          {"recompute", describe(scenario.training.recompute)},
          {"iteration_s", built ? Json(candidate.iteration.value) : Json(nullptr)},
          {"peak_bytes", built ? Json(candidate.peak_bytes.value) : Json(nullptr)},
          {"bound_by_rank", built ? Json(bound.rank) : Json(nullptr)},
          {"bound_by_s", built ? Json(bound.time.value) : Json(nullptr)},
          {"mean_rank_s", built ? Json(bound.mean.value) : Json(nullptr)},
          {"fits", candidate.fits},
          {"reason", candidate.reason}};
}

Json to_json(const PlanningResult& result, const Candidate& chosen, const Scenario& scenario, const Options& options) {
  Json candidates = Json::array();
  for (const Candidate& candidate : result.candidates) candidates.push_back(to_json(candidate, scenario));
  return {{"candidates", candidates},      {"chosen", &chosen - result.candidates.data()},
          {"pruned", result.pruned},       {"bounded", result.bounded},
          {"evaluated", result.evaluated}, {"simulated", result.simulated},
          {"engine", options.engine},      {"memory_bytes", scenario.cluster.machine.device.memory.value.value}};
}

// With the uniform split, the same schedule and microbatch; none if that is this one or could not be built.
const Candidate* uniform_of(const Candidate& candidate, const PlanningResult& result) {
  if (candidate.choice.split.method == SplitMethod::uniform) return nullptr;
  for (const Candidate& other : result.candidates) {
    if (other.choice.split.method == SplitMethod::uniform && other.choice.schedule == candidate.choice.schedule &&
        other.choice.microbatch == candidate.choice.microbatch && other.built) {
      return &other;
    }
  }
  return nullptr;
}

// How much faster than that.
std::string against_uniform(const Candidate& candidate, const PlanningResult& result) {
  const Candidate* uniform = uniform_of(candidate, result);
  if (uniform == nullptr || !(uniform->iteration.value > 0)) return "";
  return fmt::format("{:+.1f}%", (candidate.iteration / uniform->iteration - 1) * 100);
}

void print_bottlenecks(const PlanningResult& result, const Candidate& chosen) {
  std::cout << "  bound by, best:    " << describe_bottleneck(chosen.plan) << '\n';
  if (const Candidate* uniform = uniform_of(chosen, result)) {
    std::cout << "  bound by, uniform: " << describe_bottleneck(uniform->plan) << '\n';
  }
}

// The scenario names its splits, so another one is not written for it, but said.
void print_faster_uniform(const PlanningResult& result, const Candidate& chosen) {
  const Candidate& first = result.candidates.front();
  if (first.own || !first.fits || !(first.iteration < chosen.iteration)) return;
  std::cout << fmt::format(
      "  The uniform split, which the scenario does not name, would be {:.1f}% faster: `split: uniform`, or `split: "
      "auto`.\n",
      (1 - first.iteration / chosen.iteration) * 100);
}

Table candidate_table(const PlanningResult& result, const Candidate& chosen) {
  Table table{.header = {"", "schedule", "split", "layers", "microbatch", "step", "to uniform", "peak", ""},
              .rows = {},
              .left_columns = 4,
              .left_last = true};
  for (const Candidate& candidate : result.candidates) {
    const bool built = candidate.built;
    table.rows.push_back({&candidate == &chosen ? "best" : "", describe(candidate.choice.schedule),
                          describe(candidate.choice.split), built ? layers_text(candidate.plan.split) : "",
                          std::to_string(candidate.choice.microbatch), built ? to_text(candidate.iteration) : "",
                          built ? against_uniform(candidate, result) : "", built ? to_text(candidate.peak_bytes) : "",
                          candidate.fits ? "fits" : candidate.reason});
  }
  return table;
}

void print(const PlanningResult& result, const Candidate& chosen, const Scenario& scenario, const Options& options) {
  std::cout << fmt::format("{}: {} on {} ranks of {}, layout {}, batch {} × {} tokens, {} per rank\n", scenario.name,
                           scenario.model.name, scenario.cluster.ranks, scenario.cluster.machine.name,
                           describe(scenario.layout), scenario.training.global_batch, scenario.training.sequence,
                           to_text(scenario.cluster.machine.device.memory.value));
  const auto built = std::find_if(result.candidates.begin(), result.candidates.end(),
                                  [](const Candidate& candidate) { return candidate.built; });
  if (built != result.candidates.end()) {
    std::cout << fmt::format("costs from {}; engine {}\n\n", built->plan.costs.provenance, engine_text(options.engine));
  }
  const bool folded = std::any_of(result.candidates.begin(), result.candidates.end(), [](const Candidate& candidate) {
    return layers_text(candidate.plan.split) != describe(candidate.plan.split);
  });
  std::cout << to_text(candidate_table(result, chosen), colour_allowed(Stream::out));
  std::cout
      << "\n  step: predicted time of one optimizer step; to uniform: against the uniform split of the same schedule;"
         "\n  peak: memory of the fullest rank."
      << (folded ? " Layers: 3 × 4 are four stages of 3.\n\n" : "\n\n");
  print_bottlenecks(result, chosen);
  print_faster_uniform(result, chosen);
  std::cout << fmt::format("  {} weighed by the longest path, {} by simulation; {} could not be built\n",
                           result.evaluated, result.simulated, result.pruned);
}

ExitStatus plan(const Options& options) {
  if (!options.output.empty()) require_writable(options.output, {options.scenario, options.overrides.profile});
  const Scenario scenario = read_scenario(options.scenario, options.overrides);
  const Evaluator evaluator = find_engine(options.engine);
  PlanningResult result;
  {
    Progress progress("planning");
    result = plan_scenario(scenario, evaluator, [&](int done, int total) { progress.update(done, total); });
  }
  const Candidate& chosen = best_fitting(result, scenario);
  if (!options.output.empty()) {
    Plan plan = chosen.plan;
    plan.name = plan_title(plan);  // plans of one scenario stay apart in reports
    write_file(options.output, to_json(plan));
  }
  if (options.json) {
    std::cout << to_text(to_json(result, chosen, scenario, options));
  } else {
    print(result, chosen, scenario, options);
    if (!options.output.empty()) std::cout << "\nwrote " << options.output << '\n';
  }
  return ExitStatus::done;
}

}  // namespace

void add_plan(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "plan", "Weighs the candidates of a scenario and writes the best that fits.",
                                  "plumb plan scenario.yaml -o plan.json");
  const auto options = std::make_shared<Options>();
  command.add_option("SCENARIO", options->scenario, "What to train, on what (YAML).")->required();
  command.add_option("-o,--output", options->output, "Writes the best plan to this file.");
  command.add_option("--split", options->overrides.split,
                     "Instead of the scenario's: uniform, parameters, dynamic, [6, 7, 7, 5], …");
  command.add_option("--schedule", options->overrides.schedule,
                     "Instead of the scenario's: a name, or {name: interleaved-1f1b, chunks: 2}.");
  command.add_option("--profile", options->overrides.profile, "Costs that plumb-exec calibrate measured.");
  command.add_option("--engine", options->engine, "What predicts: simgrid or path.")->capture_default_str();
  command.add_flag("--json", options->json, "Writes one JSON object to standard output.");
  command.callback([&body, options] { body = [options] { return plan(*options); }; });
}

}  // namespace plumb::sim
