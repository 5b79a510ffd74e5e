#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/graph/receive_slots.hpp"
#include "common/layout/sharding.hpp"
#include "common/planner/make_plan.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/schedule/action_words.hpp"
#include "common/timeline/chart/gantt.hpp"
#include "common/timeline/chart/schedule_chart.hpp"
#include "common/timeline/statistics.hpp"
#include "common/timeline/trace/trace.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/input.hpp"
#include "sim/commands/planning.hpp"
#include "sim/commands/studies.hpp"
#include "sim/commands/training_run.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {
namespace {

struct SimulateOptions {
  std::string input;
  std::string output;
  std::string engine = engine_names().front();
  std::string profile;
  std::string framework;
  std::string what_if;
  std::string against;
  bool sensitivity = false;
  bool uncertainty = false;
  DrawOptions draws;
  double tokens = 0;  // tokens of the whole training; 0 if not given
  int width = 0;      // columns of the chart; 0 for the terminal's
  bool unfold = false;
  bool json = false;
};

bool has_studies(const SimulateOptions& options) {
  return options.sensitivity || options.uncertainty || !options.what_if.empty() || !options.against.empty();
}

struct Prediction {
  Plan plan;
  std::string note;        // the choice among several
  Scenario scenario = {};  // only its framework and what is left out for it
  Timeline timeline;
  StepStatistics statistics;
  bool fits = true;
  std::vector<std::pair<std::string, Study>> studies = {};  // by title
};

bool fits(const Plan& plan, const Timeline& timeline) {
  const Bytes memory = plan.cluster.machine.device.memory.value;
  return std::all_of(timeline.ranks.begin(), timeline.ranks.end(),
                     [&](const RankSummary& rank) { return rank.peak_bytes <= memory; });
}

// As `plan` chooses, but one combination alone need not be weighed.
Plan choose(const Scenario& scenario, const Evaluator& evaluator, std::string& note) {
  const std::int64_t open = combinations(scenario);
  if (open == 1) return make_plan(scenario, only_choice(scenario));
  const Planned planned = plan_openly(scenario, evaluator, {.top = 1});
  note = fmt::format("the fastest that fits of {} combinations that the scenario leaves open{}", open,
                     planned.finished ? "" : ", as far as they were looked at");
  return best_fitting(planned.planning, scenario).plan;
}

Plan plan_of(const std::string& input, const SimulateOptions& options, const Evaluator& evaluator,
             Prediction& prediction) {
  if (kind_of_input(input) == InputKind::plan) {
    const Plan plan = read_plan(input);
    if (!options.framework.empty()) require_run_by(options.framework, plan, input);
    return options.profile.empty() ? plan : with_profile(plan, options.profile);
  }
  const Scenario scenario = read_scenario(input, {.profile = options.profile, .framework = options.framework});
  prediction.scenario = {.framework = scenario.framework, .left_out = scenario.left_out};
  Plan plan = choose(scenario, evaluator, prediction.note);
  plan.name = plan_title(plan);
  return plan;
}

void add_studies(Prediction& prediction, const SimulateOptions& options, const Evaluator& evaluator) {
  const StepEngine engine = find_step_engine(options.engine);
  const auto add = [&](const char* title, Study study) { prediction.studies.emplace_back(title, std::move(study)); };
  const Plan& plan = prediction.plan;
  if (options.uncertainty) {
    add("how sure the step is", uncertainty_study(plan, prediction.statistics.iteration, options.draws));
  }
  if (!options.what_if.empty()) add("what if", what_if_study(options.what_if, plan, engine));
  if (options.sensitivity) add("what moves the step", sensitivity_study(plan, engine));
  if (options.against.empty()) return;
  Prediction other;
  add("which plan is faster", ranking_study(plan, plan_of(options.against, options, evaluator, other), options.draws));
}

// Draws repeated actions once if a rank has more actions than the chart has columns.
std::string chart_of(const Prediction& prediction, const SimulateOptions& options, bool colour) {
  const StepTimeline& step = median_step(prediction.timeline);
  const int width = options.width > 0 ? options.width : chart_width();
  const int ranks = static_cast<int>(prediction.timeline.ranks.size());
  const Schedule& schedule = prediction.plan.schedule;
  const int parts = schedule.vocabulary_barriers > 0 ? schedule.ranks : 0;
  const auto actions = std::ranges::count_if(
      step.events, [](const Event& event) { return event.rank == 0 && track_of(event.action.kind) == Track::compute; });
  if (options.unfold || actions <= width)
    return gantt(step, ranks,
                 {.width = width, .colour = colour, .unicode = true, .chain = stages(schedule), .parts = parts});
  return schedule_chart(step, schedule, {.width = width, .colour = colour, .unicode = true, .in_seconds = true});
}

Prediction predict(const SimulateOptions& options) {
  const Evaluator evaluator = find_engine(options.engine);
  Prediction prediction;
  prediction.plan = plan_of(options.input, options, evaluator, prediction);
  prediction.timeline = options.unfold ? predict_unfolded(prediction.plan, options.engine) : evaluator(prediction.plan);
  prediction.statistics =
      step_statistics(median_step(prediction.timeline), static_cast<int>(prediction.timeline.ranks.size()));
  prediction.fits = fits(prediction.plan, prediction.timeline);
  add_studies(prediction, options, evaluator);
  return prediction;
}

Json chosen_json(const Plan& plan) {
  return {{"layout", describe(plan.layout)},
          {"schedule", plan.schedule.name},
          {"chunks", plan.schedule.chunks},
          {"split", plan.split_method},
          {"split_layers", plan.split.layers},
          {"microbatch", plan.training.microbatch},
          {"microbatches", whole_microbatches(plan.schedule)},
          {"recompute", describe(plan.training.recompute)},
          {"offload", describe(plan.training.offload)}};
}

// Memory that a run on devices allocates for messages; empty for a plan that plumb-exec does not run.
std::vector<ReceiveSlots> arenas_of(const Plan& plan) {
  const bool pipeline_alone = ranks(plan.layout) == plan.layout.pipeline && !has_stage_data(plan.layout);
  return pipeline_alone ? plan_receive_slots(lowered_schedule(plan), plan.costs) : std::vector<ReceiveSlots>{};
}

TrainingRun whole_training(const Prediction& prediction, double tokens) {
  const Timeline& timeline = prediction.timeline;
  return training_run(tokens, static_cast<double>(timeline.tokens_per_step),
                      tokens_per_s(timeline, median_step(timeline)), prediction.plan.cluster.ranks);
}

Json to_json(const Prediction& prediction, const SimulateOptions& options) {
  const Timeline& timeline = prediction.timeline;
  const StepStatistics& statistics = prediction.statistics;
  const std::vector<ReceiveSlots> arenas = options.unfold ? std::vector<ReceiveSlots>{} : arenas_of(prediction.plan);
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const RankStatistics& time = statistics.ranks[rank];
    const RankSummary& summary = timeline.ranks[rank];
    const PeakMoment peak = summary.peak.value_or(PeakMoment{});
    ranks.push_back({{"rank", rank},
                     {"compute_s", time.compute.value},
                     {"communication_s", time.communication.value},
                     {"exposed_communication_s", time.exposed_communication.value},
                     {"idle_s", time.idle.value},
                     {"peak_bytes", summary.peak_bytes.value},
                     {"parameter_bytes", summary.parameter_bytes.value},
                     {"gradient_bytes", summary.gradient_bytes.value},
                     {"optimizer_bytes", summary.optimizer_bytes.value},
                     {"activation_bytes", summary.activation_bytes.value},
                     {"peak_kept_bytes", peak.held.kept.value},
                     {"peak_message_bytes", peak.held.messages.value},
                     {"peak_workspace_bytes", peak.held.workspace.value},
                     {"peak_time_s", peak.time.value},
                     {"peak_action", to_string(peak.action)},
                     {"received_bytes", summary.received_bytes.value},
                     {"host_bytes", summary.host_bytes.value},
                     {"host_copied_bytes", summary.host_copied_bytes.value}});
    if (summary.by_axis) ranks.back()["traffic"] = to_json(*summary.by_axis);
    if (rank < arenas.size()) ranks.back()["receive_arena_bytes"] = arena_bytes(arenas[rank]).value;
  }
  Json json = {{"iteration_s", statistics.iteration.value},
               {"tokens_per_s", tokens_per_s(timeline, median_step(timeline))},
               {"mfu", flops_utilisation(prediction.plan, timeline.model_flops, statistics.iteration)},
               {"model_flops", timeline.model_flops.value},
               {"bubble_makespan_fraction", statistics.bubble_makespan_fraction},
               {"bubble_span_fraction", statistics.bubble_span_fraction},
               {"fits", prediction.fits},
               {"memory_bytes", prediction.plan.cluster.machine.device.memory.value.value},
               {"host_memory_bytes", prediction.plan.cluster.machine.host.memory.value.value},
               {"engine", options.engine},
               {"machine", prediction.plan.cluster.machine.name},
               {"software", prediction.plan.software.name},
               {"software_stated", is_stated(prediction.plan.software)},
               {"provenance", prediction.plan.costs.provenance},
               {"chosen", chosen_json(prediction.plan)},
               {"ranks", ranks}};
  add_framework(json, prediction.scenario);
  add_experts(json, prediction.plan.model);
  if (options.tokens > 0) add_to(json, whole_training(prediction, options.tokens));
  for (const auto& [title, study] : prediction.studies) json.update(study.json);
  return json;
}

std::string memory_line(const Prediction& prediction) {
  const auto [rank, fullest] = fullest_rank(prediction.timeline.ranks);
  const Bytes memory = prediction.plan.cluster.machine.device.memory.value;
  const std::string verdict =
      prediction.fits ? "fits" : "does NOT fit, " + to_text(fullest.peak_bytes - memory) + " too much";
  std::string text =
      fmt::format("{} of {} on rank {}, the fullest: {}", to_text(fullest.peak_bytes), to_text(memory), rank, verdict);
  if (const auto& peak = fullest.peak) {
    text += fmt::format("\n              at {} in {}: states {}, saved activations {}, messages {}, workspace {}",
                        to_text(peak->time), spelled_out(peak->action, prediction.plan.schedule),
                        to_text(fullest.peak_bytes - sum(peak->held)), to_text(peak->held.kept),
                        to_text(peak->held.messages), to_text(peak->held.workspace));
  }
  const Sourced<Bytes>& framework = prediction.plan.cluster.machine.device.framework_memory;
  if (framework.value > Bytes{}) {
    text += fmt::format("\n              and {} of the device for the framework ({})", to_text(framework.value),
                        framework.source);
  }
  return text;
}

// Line on the rank that waits longest in its actions for `what`; empty if none waits.
std::string waits_line(const Prediction& prediction, std::optional<CommunicationTime> AxisTraffic::*time,
                       const std::string& what) {
  Seconds waits;
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < prediction.timeline.ranks.size(); ++rank) {
    const std::optional<AxisTraffic>& axes = prediction.timeline.ranks[rank].by_axis;
    if (!axes) continue;
    const Seconds own = exposed(((*axes).*time).value_or(CommunicationTime{}));
    if (own <= waits) continue;
    waits = own;
    longest = rank;
  }
  if (waits <= Seconds{}) return {};
  return fmt::format("{} of rank {}'s compute, {} of the step, is {}", to_text(waits), longest,
                     percent_text(waits / prediction.statistics.iteration), what);
}

Table rank_table(const Prediction& prediction) {
  Table table{.header = {"rank", "compute", "exposed", "idle", "transfers", "peak", "parameters", "gradients",
                         "optimizer", "activations", "received"},
              .rows = {}};
  for (std::size_t rank = 0; rank < prediction.timeline.ranks.size(); ++rank) {
    const RankStatistics& time = prediction.statistics.ranks[rank];
    const RankSummary& summary = prediction.timeline.ranks[rank];
    table.rows.push_back({std::to_string(rank), to_text(time.compute), to_text(time.exposed_communication),
                          to_text(time.idle), to_text(time.communication), to_text(summary.peak_bytes),
                          to_text(summary.parameter_bytes), to_text(summary.gradient_bytes),
                          to_text(summary.optimizer_bytes), to_text(summary.activation_bytes),
                          to_text(summary.received_bytes)});
  }
  return table;
}

void print(const Prediction& prediction, const SimulateOptions& options) {
  const Plan& plan = prediction.plan;
  const StepStatistics& statistics = prediction.statistics;
  const Timeline& timeline = prediction.timeline;
  const bool colour = colour_allowed(Stream::out);
  std::cout << fmt::format("{}: {} on {} ranks of {}\n", plan.name, plan.model.name, plan.cluster.ranks,
                           plan.cluster.machine.name);
  std::cout << fmt::format("  layout      {}, split {} {}\n", describe(plan.layout), plan.split_method,
                           layers_text(plan.split));
  const std::string sharing = gathers_in_words(plan.layout);
  if (!sharing.empty()) std::cout << fmt::format("  sharing     {}\n", sharing);
  std::cout << fmt::format("  schedule    {}, {} microbatches of {}, recompute {}{}\n",
                           describe(choice_of(plan.schedule)), whole_microbatches(plan.schedule),
                           plan.training.microbatch, describe(plan.training.recompute),
                           offloads(plan.training.offload) ? ", offload " + describe(plan.training.offload) : "");
  if (!prediction.note.empty()) std::cout << "  chosen      " << prediction.note << '\n';
  std::cout << fmt::format("  software    {}\n", describe(plan.software));
  if (const std::string line = framework_text(prediction.scenario); !line.empty()) std::cout << "  " << line << '\n';
  if (const std::string line = experts_text(plan.model); !line.empty()) std::cout << "  " << line << '\n';
  std::cout << fmt::format("  costs from  {}\n  engine      {}\n\n", plan.costs.provenance,
                           engine_text(options.engine));
  std::cout << fmt::format("  step        {} for {} tokens: {} tokens/s\n", to_text(statistics.iteration),
                           tokens_text(static_cast<double>(timeline.tokens_per_step)),
                           tokens_text(tokens_per_s(timeline, median_step(timeline))));
  if (options.tokens > 0) {
    std::cout << fmt::format("  training    {}\n",
                             describe(whole_training(prediction, options.tokens), plan.cluster.ranks));
  }
  std::cout << fmt::format("  MFU         {} ({} per step over the peak of all ranks)\n",
                           percent_text(flops_utilisation(plan, timeline.model_flops, statistics.iteration)),
                           to_text(timeline.model_flops));
  std::cout << fmt::format("  bubble      {} of the step, with the optimizer; {} of the longest rank's own span\n",
                           percent_text(statistics.bubble_makespan_fraction),
                           percent_text(statistics.bubble_span_fraction));
  const std::string in_layers = waits_line(prediction, &AxisTraffic::tensor_within, "collectives inside layers");
  if (!in_layers.empty()) std::cout << fmt::format("  tensor      {}\n", in_layers);
  const std::string for_data =
      waits_line(prediction, &AxisTraffic::data_within, "weight gathers and gradient reductions, not hidden");
  if (!for_data.empty()) std::cout << fmt::format("  data        {}\n", for_data);
  std::cout << fmt::format("  memory      {}\n", memory_line(prediction));
  const std::string host = host_text(plan, fullest_rank(timeline.ranks).rank);
  if (!options.unfold && !host.empty()) std::cout << fmt::format("  host        {}\n", host);
  std::cout << '\n';
  std::cout << to_text(rank_table(prediction), colour);
  std::cout << "  compute + exposed + idle = step. Compute: with the collectives inside its actions. Exposed: the rank "
               "waits for a\n  message between stages; idle: no message is in flight. Bubble: exposed, idle and the "
               "optimizer step, which is part of\n  compute here. Transfers: all time with a message in flight to the "
               "rank.\n\n";
  std::cout << chart_of(prediction, options, colour);
  for (const auto& [title, study] : prediction.studies) std::cout << fmt::format("\n{}\n{}", title, study.text);
}

ExitStatus simulate_command(const SimulateOptions& options) {
  require_one_output(options.output, options.json);
  if (options.unfold && !options.output.empty()) {
    throw InputError("--unfold", "a timeline file has one rank for each stage of the pipeline",
                     "leave out --output, or --unfold");
  }
  if (options.unfold && has_studies(options)) {
    throw InputError("--unfold", "what-if variants, derivatives, uncertainty and ranking are of the pipeline's ranks",
                     "leave out --unfold, or --what-if, --sensitivity, --uncertainty and --against");
  }
  if (!options.output.empty()) {
    require_writable(options.output, {options.input, options.profile, options.what_if, options.against});
  }
  const Prediction prediction = predict(options);
  if (options.json) {
    std::cout << to_text(to_json(prediction, options));
  } else if (options.output != standard_stream) {
    print(prediction, options);
  }
  if (options.output.empty()) return ExitStatus::done;
  std::cout << std::flush;  // a full disk does not lose what was predicted
  write_file(options.output, to_trace(prediction.timeline));
  if (!options.json) print_written(options.output, "open it in https://ui.perfetto.dev");
  return ExitStatus::done;
}

}  // namespace

void add_simulate(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "simulate", "Predicts a training step: time, bubble, memory, traffic.",
                                  "plumb simulate demo\nplumb simulate plan.json -o predicted.json");
  const auto options = std::make_shared<SimulateOptions>();
  command
      .add_option("SCENARIO|PLAN", options->input,
                  "A scenario, or a plan that plumb plan wrote; - reads it from "
                  "standard input.")
      ->required();
  command
      .add_option("-o,--output", options->output,
                  "Writes the timeline, a Chrome trace for Perfetto; - writes it alone to standard output.")
      ->type_name("FILE");
  command.add_flag("--json", options->json, "Prints one JSON object.");
  add_tokens(command, options->tokens);
  command
      .add_option("--engine", options->engine,
                  "simgrid: ranks contend for cores and links. path: the longest path, without contention.")
      ->type_name("simgrid|path")
      ->capture_default_str();
  command
      .add_option("--for", options->framework, "Keeps only what this framework runs, in place of the scenario's `for`.")
      ->type_name("megatron|torchtitan|plumb-exec");
  command.add_option("--profile", options->profile, "Costs that plumb-exec calibrate measured.")->type_name("FILE");
  command
      .add_option("--what-if", options->what_if,
                  "Variants to predict as well (YAML), such as scenarios/what-if/faults.yaml.")
      ->type_name("FILE");
  command.add_flag("--sensitivity", options->sensitivity,
                   "Prints by how much each action, message and number of the machine moves the step.");
  command.add_flag("--uncertainty", options->uncertainty,
                   "Prints the uncertainty of the step, from the uncertainty of the machine's numbers.");
  command
      .add_option("--against", options->against,
                  "Another scenario or plan: prints which is faster, and how likely that is.")
      ->type_name("SCENARIO|PLAN");
  constexpr int most_draws = 1'000'000;
  command
      .add_option("--draws", options->draws.draws,
                  "Number of random samples of the machine's numbers, for --uncertainty and --against.")
      ->check(whole_number(2, most_draws))
      ->capture_default_str();
  command.add_option("--seed", options->draws.seed, "Seed of these draws.")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command.add_flag(
      "--unfold", options->unfold,
      "Simulates every rank, with each layer's collectives as flows. Otherwise one rank stands for its tensor "
      "and data group.");
  command.add_option("--width", options->width, "Columns of the chart; default: the terminal's.")
      ->check(whole_number(10, 10'000));
  command.callback([&body, options] {
    body = [options] {
      options->input = input_file(options->input, {ShippedKind::scenario});
      if (!options->against.empty()) options->against = input_file(options->against, {ShippedKind::scenario});
      return simulate_command(*options);
    };
  });
}

}  // namespace plumb::sim
