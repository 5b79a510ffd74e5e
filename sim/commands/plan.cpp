#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/search/baseline.hpp"
#include "common/study/bottleneck.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/input.hpp"
#include "sim/commands/needed_nodes.hpp"
#include "sim/commands/plan_json.hpp"
#include "sim/commands/plan_references.hpp"
#include "sim/commands/planning.hpp"
#include "sim/commands/profile_remark.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {
namespace {

void print_bottlenecks(const Planned& planned, const Candidate& chosen) {
  std::cout << "  busiest rank, best:    " << describe_bottleneck(chosen.plan) << '\n';
  if (const Candidate* uniform = uniform_of(chosen, planned.planning)) {
    std::cout << "  busiest rank, uniform: " << describe_bottleneck(uniform->plan) << '\n';
  } else if (!planned.finished && is_made_for_times(chosen.choice.schedule) &&
             chosen.choice.split.method != SplitMethod::uniform) {
    std::cout << "  The uniform split was not evaluated: its schedule is cost-driven, and the search had ended.\n";
  }
}

// A gain against what does not fit is none: the fastest uniform split that does.
void print_fitting_uniform(const PlanningResult& result, const Candidate& chosen) {
  const auto marked = [&](const Candidate& candidate) {
    const Candidate* const own = uniform_of(candidate, result);
    return candidate.built && own != nullptr && own != &candidate && !own->fits;
  };
  if (!marked(chosen)) {
    if (!std::ranges::any_of(result.candidates, marked)) return;
    std::cout << "  (too large): compared with a uniform split that does not fit.\n";
    return;
  }
  const Candidate* fitting = fitting_uniform(result);
  if (fitting == nullptr) {
    std::cout << "  (too large): compared with a uniform split that does not fit; none that was evaluated does.\n";
    return;
  }
  std::cout << fmt::format(
      "  (too large): compared with a uniform split that does not fit. The fastest one that does: {}, {}, microbatch "
      "{}, "
      "{}; the best to it {}.\n",
      layout_text(fitting->plan.layout), describe(fitting->choice.schedule), fitting->choice.microbatch,
      to_text(fitting->iteration), change_text(change_from(*fitting, chosen)));
}

// The scenario names its splits, so another one is not written for it, but said.
void print_faster_uniform(const PlanningResult& result, const Candidate& chosen) {
  const Candidate& first = result.candidates.front();
  if (first.own || !first.fits || !(first.iteration < chosen.iteration)) return;
  std::cout << fmt::format(
      "  The uniform split, which the scenario does not name, would be shorter ({}): `split: uniform`, or `split: "
      "auto`.\n",
      change_text(change_from(chosen, first)));
}

// Returns true if two candidates are the same plan, whose cut two methods came to.
bool same_plan(const Candidate& a, const Candidate& b) {
  if (!a.built || !b.built || a.iteration != b.iteration || !(a.plan.split == b.plan.split)) return false;
  PlanChoice with_other_split = b.choice;
  with_other_split.split = a.choice.split;
  return a.choice == with_other_split;
}

struct TableRow {
  const Candidate* candidate = nullptr;
  std::string splits = {};  // the methods that come to its cut
};

std::vector<TableRow> folded_rows(const std::vector<Candidate>& candidates) {
  std::vector<TableRow> rows;
  for (const Candidate& candidate : candidates) {
    const auto same = [&](const TableRow& row) { return same_plan(*row.candidate, candidate); };
    const auto row = std::ranges::find_if(rows, same);
    if (row == rows.end()) {
      rows.push_back({.candidate = &candidate, .splits = describe(candidate.choice.split)});
    } else {
      row->splits += ", " + describe(candidate.choice.split);
    }
  }
  return rows;
}

// Layout and recompute have columns where they are open, and what is offloaded where that is.
Table candidate_table(const std::vector<TableRow>& rows, const Planned& planned, const Candidate& chosen,
                      const Scenario& scenario) {
  const PlanningResult& result = planned.planning;
  Table table{
      .header = {"", "schedule", "split", "layers", "microbatch", "step", "to uniform", "tokens/s", "MFU", "peak", ""},
      .rows = {},
      .left_columns = 4,
      .left_last = true};
  const bool offload_open = offloads_of(scenario).size() > 1;
  if (planned.searched) {
    table.header.insert(table.header.begin() + 1, {"layout", "recompute"});
    table.left_columns += 2;
    if (offload_open) {
      table.header.insert(table.header.begin() + 3, "offload");
      ++table.left_columns;
    }
  }
  for (const TableRow& row : rows) {
    const Candidate& candidate = *row.candidate;
    const bool built = candidate.built;
    const bool best = &candidate == &chosen || same_plan(candidate, chosen);
    table.rows.push_back({best ? "best" : "", describe(candidate.choice.schedule), row.splits,
                          built ? layers_text(candidate.plan.split) : "", std::to_string(candidate.choice.microbatch),
                          built ? to_text(candidate.iteration) : "", built ? against_uniform(candidate, result) : "",
                          built ? tokens_text(tokens_per_s(candidate)) : "",
                          built ? percent_text(utilisation(candidate)) : "", built ? to_text(candidate.peak_bytes) : "",
                          candidate.fits ? "fits" : candidate.reason});
    if (planned.searched) {
      table.rows.back().insert(table.rows.back().begin() + 1, {layout_text(layout_of(candidate.choice, scenario)),
                                                               describe(recompute_of(candidate.choice, scenario))});
      if (offload_open) {
        table.rows.back().insert(table.rows.back().begin() + 3, describe(offload_of(candidate.choice, scenario)));
      }
    }
  }
  return table;
}

void print_candidates(const Planned& planned, const Candidate& chosen, const Scenario& scenario, std::size_t most) {
  std::vector<TableRow> rows = folded_rows(planned.planning.candidates);
  const std::size_t all = rows.size();
  rows.resize(std::min(all, most));
  std::cout << to_text(candidate_table(rows, planned, chosen, scenario), colour_allowed(Stream::out));
  if (rows.size() < all) std::cout << fmt::format("  and {} more rows: --top {} prints them\n", all - most, all);
}

// Prints the tokens of slices of equal work, in the form that a scenario takes.
void print_slices(const Candidate& chosen) {
  const ScheduleChoice& asked = chosen.choice.schedule;
  if (asked.slices_by != SlicesBy::work || asked.slices == 1 || !chosen.built) return;
  const Schedule& schedule = chosen.plan.schedule;
  std::cout << (schedule.slice_tokens.empty()
                    ? fmt::format("  slices of equal work are no better than {} tokens each, which is taken\n",
                                  chosen.plan.training.sequence / schedule.slices)
                    : fmt::format("  slices of equal work: `schedule: {}`\n", describe(choice_of(schedule))));
}

void print_counts(const Planned& planned) {
  const PlanningResult& result = planned.planning;
  if (planned.searched) {
    std::cout << fmt::format(
        "  of {} candidates {} cannot be built or cannot fit, {} cannot be as fast; {} evaluated by the longest path, "
        "{} "
        "by simulation\n",
        planned.candidates, result.pruned, result.bounded, result.evaluated, result.simulated);
  } else {
    std::cout << fmt::format("  {} evaluated by the longest path, {} by simulation; {} could not be built{}\n",
                             result.evaluated, result.simulated, result.pruned,
                             result.pruned > 0 ? " (--explain says why)" : "");
    if (result.bounded > 0) {
      std::cout << fmt::format("  {} long cost-driven schedules were not made: they cannot be as fast\n",
                               result.bounded);
    }
  }
  if (result.unproven > 0) {
    std::cout << fmt::format("  of {} it took too long to prove whether a split fits\n", result.unproven);
  }
  if (planned.finished) return;
  std::cout << fmt::format(
      "  ended early: the best so far; {} candidates were not looked at, {} that may be faster not simulated\n",
      result.left, planned.not_predicted);
}

std::string left_out_text(const LeftOut& group, const Scenario& scenario, const Candidate& chosen) {
  if (has_reason(group)) return group.reason;
  const Machine& machine = scenario.cluster.machine;
  const std::string kind = group.kind == TensorKind::one_d ? "" : "·" + name_of(group.kind);
  const int barriers = group.vocabulary_barriers;
  const std::string of = fmt::format(
      "tensor {}{}{}, pipeline {}{}", group.tensor, kind, group.tensor > machine.devices ? " (crosses machines)" : "",
      group.pipeline, barriers > 0 ? fmt::format(" over which the vocabulary is divided, barriers {}", barriers) : "");
  if (group.why == LeftOutWhy::slower_by_bound) {
    return fmt::format("{}: at least {}, the best {}", of, to_text(group.least_time), to_text(chosen.iteration));
  }
  return fmt::format("{}: {} {} of {}", of, group.why == LeftOutWhy::memory_bound ? "at least" : "evaluated, needs",
                     to_text(group.least_bytes), to_text(machine.device.memory.value));
}

// Sharding is tried only where the scenario says so: it changes memory and collectives of every layout.
void print_unsearched_sharding(const Planned& planned, const Scenario& scenario) {
  const auto in_data = [](const Layout& layout) { return layout.data.degree > 1; };
  const auto is_sharded = [](const Layout& layout) { return layout.data.sharding != Sharding::none; };
  if (!planned.searched || !std::ranges::any_of(scenario.layouts, in_data)) return;
  if (std::ranges::any_of(scenario.layouts, is_sharded) || std::ranges::any_of(scenario.layouts, has_stage_data))
    return;
  std::cout << "  sharding was not tried: layout: {data: {degree: auto, sharding: auto}} does\n";
}

void print_explanation(const Planned& planned, const Scenario& scenario, const Candidate& chosen) {
  std::cout << "\nleft out, the least that any of them needs or takes:\n";
  Table table{.header = {"candidates", "", ""}, .rows = {}, .left_columns = 0, .left_last = true};
  for (const LeftOut& group : planned.explanation) {
    std::string why(name_of(group.why));
    std::ranges::replace(why, '_', ' ');
    const std::string count = group.candidates > 0 ? std::to_string(group.candidates) : "none made";
    table.rows.push_back({count, why, left_out_text(group, scenario, chosen)});
  }
  std::cout << (table.rows.empty() ? "  nothing\n" : to_text(table, colour_allowed(Stream::out)));
}

void print_pareto(const Planned& planned, const Scenario& scenario) {
  std::cout << "\nfront of time against memory, by "
            << (planned.searched ? "the longest path: the table's times are the engine's" : "the engine of the table")
            << ":\n";
  Table table{.header = {"step", "peak", "layout", "schedule", "split", "microbatch", "recompute"},
              .rows = {},
              .left_columns = 0,
              .left_last = true};
  for (const ParetoRow& row : planned.pareto) {
    table.rows.push_back({to_text(row.iteration), to_text(row.peak_bytes), layout_text(layout_of(row.choice, scenario)),
                          describe(row.choice.schedule), describe(row.choice.split),
                          std::to_string(row.choice.microbatch), describe(recompute_of(row.choice, scenario))});
  }
  std::cout << to_text(table, colour_allowed(Stream::out));
}

void print_baselines(const std::vector<BaselineRow>& baselines, const Candidate& chosen, const Scenario& scenario) {
  std::cout
      << (scenario.stage_data_pipelines
              ? "\nhow others would cut the model: pipedream, dapple and alpa with replicas of their own choice, in "
                "1F1B; the rest\ncut it for the best plan's layout and schedule:\n"
              : "\nhow others would cut the model for the best plan's layout and schedule:\n");
  Table table{.header = {"", "layout", "layers", "microbatch", "step", "best to it", "peak", ""},
              .rows = {},
              .left_columns = 3,
              .left_last = true};
  for (const auto& [name, candidate] : baselines) {
    const std::string layout = layout_text(layout_of(candidate.choice, scenario));
    if (!candidate.built) {
      table.rows.push_back({name, layout, "", "", "", "", "", candidate.reason});
      continue;
    }
    table.rows.push_back({name, layout, layers_text(candidate.plan.split), std::to_string(candidate.choice.microbatch),
                          to_text(candidate.iteration), change_text(change_from(candidate, chosen)),
                          to_text(candidate.peak_bytes), candidate.fits ? "fits" : candidate.reason});
  }
  std::cout << to_text(table, colour_allowed(Stream::out))
            << "  best to it: the best plan's step against this one's, -10%: a tenth shorter.\n";
}

// True if people would shorten the first and the last stage by hand instead.
bool has_habit(const Candidate& chosen) {
  return chosen.choice.split.method == SplitMethod::dynamic && chosen.plan.schedule.chunks == 1 &&
         chosen.plan.split.layers.size() >= 3 && !has_stage_data(chosen.plan.layout);
}

void print_habit(const std::optional<BaselineRow>& habit, const Candidate& chosen) {
  if (!habit || !habit->candidate.built) return;
  const Candidate& by_hand = habit->candidate;
  std::cout << fmt::format("  with a shorter first and last stage by hand (Megatron-LM), {}: {}{}; the best to it {}\n",
                           layers_text(by_hand.plan.split), to_text(by_hand.iteration),
                           by_hand.fits ? "" : ", does not fit", change_text(change_from(by_hand, chosen)));
}

void print(const PlannedOnNodes& found, const Candidate& chosen, const std::optional<BaselineRow>& habit,
           const PlanOptions& options) {
  const Scenario& scenario = found.scenario;
  const Planned& planned = found.planned;
  const PlanningResult& result = planned.planning;
  std::cout << fmt::format("{}: {} on {} ranks of {}, layout {}, batch {} × {} tokens, {} per rank\n", scenario.name,
                           scenario.model.name, scenario.cluster.ranks, scenario.cluster.machine.name,
                           planned.searched ? "open" : describe(scenario.layout), scenario.training.global_batch,
                           scenario.training.sequence, to_text(scenario.cluster.machine.device.memory.value));
  if (scenario.nodes_open) std::cout << fmt::format("nodes: {}\n", needed_nodes_text(found));
  std::cout << fmt::format("software: {}\n", describe(scenario.software));
  for (const std::string& line : {framework_text(scenario), experts_text(scenario.model)}) {
    if (!line.empty()) std::cout << line << '\n';
  }
  const auto built = std::find_if(result.candidates.begin(), result.candidates.end(),
                                  [](const Candidate& candidate) { return candidate.built; });
  if (built != result.candidates.end()) {
    std::cout << fmt::format("costs from {}; engine {}\n\n", built->plan.costs.provenance, engine_text(options.engine));
  }
  const bool folded = std::any_of(result.candidates.begin(), result.candidates.end(), [](const Candidate& candidate) {
    return layers_text(candidate.plan.split) != describe(candidate.plan.split);
  });
  const bool by_stage = has_stage_data(chosen.plan.layout);
  const auto most = static_cast<std::size_t>(options.planning.top);
  print_candidates(planned, chosen, scenario, planned.searched ? result.candidates.size() : most);
  std::cout << "\n  step: predicted time of one optimizer step; peak: memory of the fullest rank; to uniform: the step "
               "against that of\n  "
            << (by_stage ? "the uniform split of the fastest layout in the table whose stages have the same data degree"
                         : "the uniform split of the same schedule")
            << ", -10%: a tenth shorter." << (folded ? " Layers: 3 × 4 are four stages of 3.\n\n" : "\n\n");
  for (const std::string& remark : scenario.remarks) {
    std::cout << fmt::format("  {}: {}.\n", scenario.model.name, remark);
  }
  if (options.tokens > 0) {
    std::cout << "  best plan, " << describe(training_run(chosen, options.tokens), chosen.plan.cluster.ranks) << '\n';
  }
  std::cout << noise_line(scenario.profile);
  print_bottlenecks(planned, chosen);
  print_fitting_uniform(result, chosen);
  print_habit(habit, chosen);
  print_faster_uniform(result, chosen);
  if (const std::string why = no_stage_data(scenario); !why.empty()) {
    std::cout << "  data: {by_stage: auto} has no candidate with different degrees: " << why << '\n';
  }
  print_unsearched_sharding(planned, scenario);
  print_slices(chosen);
  const std::string host = host_text(chosen.plan, fullest_rank(chosen.ranks).rank);
  if (!host.empty()) std::cout << "  host: " << host << '\n';
  print_counts(planned);
  if (chosen.engine == path_engine && options.engine != path_engine) {
    std::cout << "  the best step is by the longest path: no time was left to simulate it\n";
  }
  if (options.explain) print_explanation(planned, scenario, chosen);
  if (options.planning.pareto) print_pareto(planned, scenario);
}

// Each once, in the order of the command line.
std::vector<std::string> each_once(const std::vector<std::string>& names) {
  std::vector<std::string> result;
  for (const std::string& name : names) {
    if (std::ranges::find(result, name) == result.end()) result.push_back(name);
  }
  return result;
}

ExitStatus plan(const PlanOptions& options) {
  require_one_output(options.output, options.json);
  if (!options.output.empty()) require_writable(options.output, {options.scenario, options.overrides.profile});
  std::error_code none;
  const bool readable_twice = std::filesystem::is_regular_file(options.scenario, none);
  if (readable_twice && kind_of_input(options.scenario) == InputKind::plan) {
    throw InputError(options.scenario, "is a plan, expected a scenario",
                     "plumb simulate " + options.scenario + " predicts it");
  }
  const ScenarioFile file = [&] {
    const SignOfLife alive("reading");
    return ScenarioFile(options.scenario);
  }();
  const Evaluator evaluator = find_engine(options.engine);
  const std::vector<std::string> baselines = each_once(options.baselines);
  for (const std::string& name : baselines) (void)find_baseline(name);  // refused before a long search
  const PlannedOnNodes found = plan_on_nodes(file, options.overrides, evaluator, options.planning);
  const Scenario& scenario = found.scenario;
  const Planned& planned = found.planned;
  const std::vector<Candidate>& candidates = planned.planning.candidates;
  const bool told = options.explain && !options.json && options.output != standard_stream;
  if (!has_fitting(planned.planning) && told && !candidates.empty()) {
    print_explanation(planned, scenario, candidates.front());
  }
  const Candidate& chosen = [&]() -> const Candidate& {
    const SignOfLife alive("looking for changes that fit");
    return best_fitting(planned.planning, scenario);
  }();
  std::vector<BaselineRow> rows;
  for (const std::string& name : baselines) {
    rows.push_back({name, weigh_baseline(scenario, chosen, find_baseline(name), evaluator)});
  }
  std::optional<BaselineRow> habit;
  if (has_habit(chosen) && (planned.finished || !is_made_for_times(chosen.choice.schedule))) {
    const std::string name = "megatron-first-last";
    const Evaluator engine = planned.finished ? evaluator : within_grace(evaluator);
    habit = {name, weigh_baseline(scenario, chosen, find_baseline(name), engine)};
  }
  if (options.json) {
    Json json = to_json(planned, chosen, rows, habit, scenario, options);
    json["nodes"] = scenario.cluster.nodes;
    if (scenario.nodes_open) json["too_few_nodes"] = found.too_few;
    std::cout << to_text(json);
  } else if (options.output != standard_stream) {
    print(found, chosen, habit, options);
    if (!rows.empty()) print_baselines(rows, chosen, scenario);
  }
  if (options.output.empty()) return ExitStatus::done;
  std::cout << std::flush;  // a full disk does not lose what a long search has found
  Plan plan = chosen.plan;
  plan.name = plan_title(plan);  // plans of one scenario stay apart in reports
  write_file(options.output, to_json(plan));
  if (!options.json) print_written(options.output);
  return ExitStatus::done;
}

}  // namespace

void add_plan(CLI::App& program, Body& body) {
  CLI::App& command = add_command(
      program, "plan", "Evaluates the candidates of a scenario and writes the best plan that fits in memory.",
      "plumb plan qwen3-next-dgx-h100\nplumb plan scenario.yaml -o plan.json");
  const auto options = std::make_shared<PlanOptions>();
  command.add_option("SCENARIO", options->scenario, "A file (YAML) or a name of plumb list scenarios.")->required();
  command
      .add_option("-o,--output", options->output,
                  "Writes the best plan to this file; - writes it alone to standard output.")
      ->type_name("FILE");
  command.add_flag("--json", options->json, "Prints one JSON object.");
  add_tokens(command, options->tokens);
  command
      .add_option("--schedule", options->overrides.schedule,
                  "Schedule in place of the scenario's: a name, or {name: interleaved-1f1b, chunks: 2}.")
      ->type_name("NAME");
  command
      .add_option("--split", options->overrides.split,
                  "Split in place of the scenario's: uniform, parameters, dynamic, [6, 7, 7, 5], …")
      ->type_name("uniform|parameters|dynamic");
  command
      .add_option("--for", options->overrides.framework,
                  "Keeps only what this framework runs, in place of the scenario's `for`.")
      ->type_name("megatron|torchtitan|plumb-exec");
  command.add_option("--profile", options->overrides.profile, "Costs that plumb-exec calibrate measured.")
      ->type_name("FILE");
  command
      .add_option("--engine", options->engine,
                  "simgrid: ranks contend for cores and links. path: the longest path, without contention.")
      ->type_name("simgrid|path")
      ->capture_default_str();
  PlanningOptions& planning = options->planning;
  command.add_option("--top", planning.top, "Rows of the table.")
      ->capture_default_str()
      ->check(whole_number(1, 10'000));
  command
      .add_option("--time-limit", planning.time_limit,
                  "Seconds after which the search returns the best plan so far, as Ctrl-C and SIGTERM do; 0 returns at "
                  "once.")
      ->check(number_from(0));
  command.add_flag("--explain", options->explain, "Prints which candidates were left out, and why.");
  command.add_flag("--pareto", planning.pareto, "Prints the front of time against memory.");
  command
      .add_option("--baseline", options->baselines,
                  "Cuts the best plan's layout and schedule as another planner would: megatron, megatron-first-last, "
                  "deepspeed-uniform, deepspeed-parameters, torchgpipe, pipedream, dapple, alpa. The last three also "
                  "choose replicas if data degrees by stage are open.")
      ->type_name("PLANNER");
  command
      .add_option("--jobs", planning.jobs,
                  "Threads that search, and processes that simulate the best plans; default: the usable cores.")
      ->check(whole_number(1, 1024));
  command.add_flag("--no-prune", planning.all_sizes, "Disables memory pruning (slower, same result).");
  command.add_flag("--no-bound", planning.all_times, "Disables time pruning (slower, same result).");
  command.callback([&body, options] {
    body = [options] {
      options->scenario = input_file(options->scenario, {ShippedKind::scenario});
      return plan(*options);
    };
  });
}

}  // namespace plumb::sim
