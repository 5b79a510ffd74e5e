#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/command_line.hpp"
#include "common/base/files.hpp"
#include "common/base/output_files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/timeline/trace/trace.hpp"
#include "exec/check/error_ratios.hpp"
#include "exec/checkpoint/step_log.hpp"
#include "exec/commands/checkpoint_arguments.hpp"
#include "exec/commands/commands.hpp"
#include "exec/commands/export_weights.hpp"
#include "exec/commands/member.hpp"
#include "exec/commands/session_arguments.hpp"
#include "exec/data/pretrained_weights.hpp"
#include "exec/run/step_name.hpp"

namespace plumb::exec {
namespace {

using nlohmann::ordered_json;

struct RunArguments {
  SessionArguments session;
  std::string plan;
  std::string output;
  std::string weights;
  Exports exports;
  std::string export_names;  // empty: as the model
  CheckpointArguments checkpoint;
  bool warm_up_given = false;
  bool json = false;
};

ordered_json to_json(const PlanRun& run, const SessionOptions& options, const std::vector<std::string>& checkpoints) {
  ordered_json json{{"plan", run.plan.name},
                    {"schedule", run.plan.schedule.name},
                    {"layout", describe(run.plan.layout)},
                    {"transport", options.transport},
                    {"calibrated_transport", run.plan.costs.transport},
                    {"device", options.device},
                    {"emulated", options.emulate},
                    {"first_step", first_step(options)},
                    {"warm_up_s", ordered_json::array()},
                    {"warm_up_loss", ordered_json::array()},
                    {"step_s", ordered_json::array()},
                    {"loss", ordered_json::array()},
                    {"replay_error_fraction", run.replay_error_fraction},
                    {"ranks", ordered_json::array()}};
  for (const Seconds step : run.warm_up) json["warm_up_s"].push_back(step.value);
  for (const StepTimeline& step : run.timeline.steps) json["step_s"].push_back(step.duration.value);
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    json[i < run.warm_up.size() ? "warm_up_loss" : "loss"].push_back(run.losses[i]);
  }
  for (std::size_t i = 0; i < run.gradient_norms.size(); ++i) {
    json[i < run.warm_up.size() ? "warm_up_gradient_norm" : "gradient_norm"].push_back(run.gradient_norms[i]);
  }
  for (std::size_t rank = 0; rank < run.timeline.ranks.size(); ++rank) {
    const RankSummary& summary = run.timeline.ranks[rank];
    ordered_json entry{{"rank", rank}};
    // Nothing is allocated for what is only waited for.
    entry["peak_bytes"] = options.emulate ? ordered_json() : ordered_json(summary.peak_bytes.value);
    entry["received_bytes"] = summary.received_bytes.value;
    if (summary.by_axis) entry["traffic"] = to_json(*summary.by_axis);
    if (rank < run.arenas.size()) {
      entry["receive_arena_bytes"] = run.arenas[rank].bytes.value;
      entry["receives_beside_arena"] = run.arenas[rank].receives_beside;
    }
    json["ranks"].push_back(entry);
  }
  if (!checkpoints.empty()) json["checkpoints"] = checkpoints;
  if (run.timeline.clock_uncertainty > Seconds{0}) {
    json["clock_uncertainty_s"] = run.timeline.clock_uncertainty.value;
    json["clock_warnings"] = run.clock_warnings;
  }
  if (run.check) {
    json["passed"] = run.check->passed;
    json["bitwise_equal"] = run.check->bitwise_equal;
    json["worst_error_ratio"] = run.check->worst_error_ratio;
    json["worst_tensor"] = run.check->worst_tensor;
    json["mean_error_ratio"] = run.check->mean_error_ratio;
    json["error_ratio_limit"] = run.check->error_ratio_limit;
    if (!run.check->problem.empty()) json["problem"] = run.check->problem;
  }
  return json;
}

// What adapters add is multiplied by alpha / rank, 1 or 2 as a rule: far above it that drowns the model.
std::string blamed_for_lost_loss(const Training& training) {
  constexpr double largest_usual_scale = 100;
  if (!training.lora || training.lora->alpha <= largest_usual_scale * static_cast<double>(training.lora->rank)) {
    return "lower training.learning_rate";
  }
  return fmt::format("lower training.lora.alpha, which is {:g} at rank {}", training.lora->alpha, training.lora->rank);
}

std::string loss_text(const PlanRun& run, std::size_t step) {
  if (run.losses.empty()) return "";
  const std::string loss = fmt::format("loss {:.6f}", run.losses[step]);
  return run.gradient_norms.empty() ? loss : loss + fmt::format(", gradient norm {:.4g}", run.gradient_norms[step]);
}

Table rank_table(const PlanRun& run, const SessionOptions& options) {
  Table table{.header = {"rank", "peak memory", "received per step"}, .rows = {}};
  if (!run.arenas.empty()) table.header.push_back("receive arena");
  for (std::size_t rank = 0; rank < run.timeline.ranks.size(); ++rank) {
    const RankSummary& summary = run.timeline.ranks[rank];
    std::vector<std::string>& row = table.rows.emplace_back(
        std::vector<std::string>{std::to_string(rank), options.emulate ? "emulated" : to_text(summary.peak_bytes),
                                 to_text(summary.received_bytes)});
    if (rank < run.arenas.size()) row.push_back(to_text(run.arenas[rank].bytes));
  }
  return table;
}

// Of ranks whose lifetimes were not as planned.
std::string arena_lines(const PlanRun& run) {
  std::string lines;
  for (std::size_t rank = 0; rank < run.arenas.size(); ++rank) {
    const std::int64_t beside = run.arenas[rank].receives_beside;
    if (beside == 0) continue;
    lines +=
        fmt::format("rank {}: {} receives of all steps found their slot of the arena held, and got memory beside it\n",
                    rank, beside);
  }
  return lines;
}

// How users count a step: `index` of the run's, behind those of a checkpoint.
std::string step_label(std::size_t index, const SessionOptions& options) {
  return step_name(first_step(options) + static_cast<std::int64_t>(index), options.warm_up);
}

Table step_table(const PlanRun& run, const SessionOptions& options) {
  Table steps{.header = {"step", "time", ""}, .rows = {}};
  const std::int64_t first = first_step(options);
  for (std::size_t i = 0; i < run.warm_up.size(); ++i) {
    steps.rows.push_back({fmt::format("warm-up {}", first + static_cast<std::int64_t>(i) + 1), to_text(run.warm_up[i]),
                          loss_text(run, i)});
  }
  const std::int64_t measured = first + static_cast<std::int64_t>(run.warm_up.size()) - options.warm_up;
  for (std::size_t i = 0; i < run.timeline.steps.size(); ++i) {
    steps.rows.push_back({std::to_string(measured + static_cast<std::int64_t>(i) + 1),
                          to_text(run.timeline.steps[i].duration), loss_text(run, run.warm_up.size() + i)});
  }
  return steps;
}

std::string check_lines(const CheckResult& check, const Plan& plan) {
  if (!check.passed) return "check: FAILED: " + check.problem + '\n';
  if (check.bitwise_equal) return "check: all losses and gradients equal the single device's bit by bit\n";
  return fmt::format(
      "check: passed, error ratio at most {:.3f} ({}), mean {:.3f}\n"
      "  of a gradient: its error over that of one device in the same type, both against fp64; {} passes up to {}\n",
      check.worst_error_ratio, check.worst_tensor, check.mean_error_ratio,
      divides_tensors(plan.layout) ? "the mean" : "each", most_error_ratio);
}

void print(const PlanRun& run, const SessionOptions& options) {
  const Layout& layout = run.plan.layout;
  const bool lanes = ranks(layout) > layout.pipeline;
  std::cout << fmt::format("{}: {}, {} ranks{}, {} microbatches{}, {} on {}{}\n", run.plan.name, run.plan.schedule.name,
                           ranks(layout), lanes ? " (" + describe(layout) + ")" : "",
                           whole_microbatches(run.plan.schedule), lanes ? " each" : "", options.transport,
                           options.device, options.emulate ? ", compute emulated" : "");
  const std::string& calibrated = run.plan.costs.transport;
  if (!calibrated.empty() && calibrated != options.transport) {
    std::cout << fmt::format(
        "the plan's messages were calibrated over {}, and run over {} here: plumb-exec calibrate --transport {}\n",
        calibrated, options.transport, options.transport);
  }
  std::cout << to_text(step_table(run, options), colour_allowed(plumb::Stream::out)) << '\n';
  std::cout << to_text(rank_table(run, options), colour_allowed(plumb::Stream::out)) << '\n' << arena_lines(run);
  std::cout << fmt::format("median step {}; its own durations, replayed on the graph, give {:+.2f}%\n",
                           to_text(median_step(run.timeline).duration), run.replay_error_fraction * 100);
  const auto lost =
      std::find_if(run.losses.begin(), run.losses.end(), [](double loss) { return !std::isfinite(loss); });
  if (lost != run.losses.end()) {
    const std::string since = step_label(static_cast<std::size_t>(lost - run.losses.begin()), options);
    std::cout << fmt::format("the loss is no number since {}: {}\n", since, blamed_for_lost_loss(run.plan.training));
  }
  std::cout << clock_lines(run);
  if (run.check) std::cout << check_lines(*run.check, run.plan);
}

void require_plan(const std::string& path) {
  if (!path.ends_with(".csv")) return;
  throw InputError(path, "is a schedule, expected a plan",
                   fmt::format("put it into a scenario's `schedule: {{file: {}}}`, and plan that: plumb plan", path));
}

Exports exports_of(const RunArguments& arguments) {
  Exports exports = arguments.exports;
  if (arguments.export_names == "plumb") exports.names = ExportNames::plumb;
  if (arguments.export_names == "hugging-face") exports.names = ExportNames::hugging_face;
  return exports;
}

// What was measured is printed before files are written: a full disk does not lose it.
void report(const SessionResult& result, const RunArguments& arguments, const SessionOptions& options) {
  const PlanRun& run = result.runs.front();
  const Exports exports = exports_of(arguments);
  if (arguments.json) {
    std::cout << to_json(run, options, result.checkpoints).dump(2) << std::endl;
  } else {
    print(run, options);
    std::cout << std::flush;
  }
  std::ostream none(nullptr);
  std::ostream& said = arguments.json ? none : std::cout;
  if (!arguments.output.empty()) {
    write_file(arguments.output, to_trace(run.timeline));
    said << "timeline: " << arguments.output << '\n';
  }
  if (!result.interrupted.empty()) {
    // Those before a checkpoint count, and are not this run's to show.
    const std::int64_t made = first_step(options) + static_cast<std::int64_t>(run.warm_up.size()) - options.warm_up +
                              static_cast<std::int64_t>(run.timeline.steps.size());
    throw RunError(
        "", result.interrupted,
        fmt::format("after {} whole steps of {}: {} are above{}", made, options.steps,
                    options.checkpoint.resume ? fmt::format("the last {}", run.timeline.steps.size()) : "these",
                    arguments.output.empty() ? "" : " and in " + arguments.output));
  }
  write_exports(run.plan, run.weights, exports);
  if (!exports.model.empty()) said << "weights: " << exports.model << '\n';
  if (!exports.adapters_folder.empty()) said << "adapters: " << exports.adapters_folder << '\n';
  if (!result.check_interrupted.empty()) {
    throw RunError(
        "", result.check_interrupted,
        fmt::format("while a single device checked the run: its {} steps are above{}", run.timeline.steps.size(),
                    arguments.output.empty() ? "" : " and in " + arguments.output));
  }
}

// Of all that the run writes, but for checkpoints.
void require_outputs(const RunArguments& arguments, const Plan& plan, const SessionOptions& options) {
  std::vector<std::string> inputs{arguments.plan, arguments.session.data};
  if (options.stage.weights) {
    for (std::string& file : options.stage.weights->files()) inputs.push_back(std::move(file));
  }
  if (const auto& resumed = options.checkpoint.resume) {
    inputs.push_back((resumed->folder / index_name).string());
    for (const CheckpointFile& file : resumed->index.files) inputs.push_back((resumed->folder / file.name).string());
  }
  OutputFiles outputs(std::move(inputs));
  if (!arguments.output.empty()) outputs.add("-o", arguments.output);
  if (const std::string& log = arguments.checkpoint.log; !log.empty()) {
    outputs.add("--log", log);
    require_log_file(log);
  }
  add_exports(plan, exports_of(arguments), outputs);
}

// The run is right there, too, but takes other times than those of the plan's machine.
void say_other_device(const Plan& plan, const SessionOptions& options, std::ostream& said) {
  const Machine& machine = plan.cluster.machine;
  if (options.emulate || options.device != "cpu" || machine.device.type == DeviceType::cpu) return;
  said << fmt::format(
      "a plan for {} runs on this host's processors, which may take far longer: --emulate waits the "
      "predicted times, --device cuda computes on GPUs\n",
      machine.name);
}

// What every process refuses alike comes first; what only the one can that writes, it tells the others. Whoever starts
// ranks says what there is to say and has the folder of checkpoints, not they again.
void require_files(const RunArguments& arguments, const Plan& plan, SessionOptions& options) {
  const bool writes = writes_files(environment_variable);
  const std::optional<Membership> member = membership(environment_variable);
  const bool said_already = member && member->launcher == "plumb-exec";
  std::ostream none(nullptr);
  std::ostream& said = writes && !said_already ? std::cerr : none;
  say_other_device(plan, options, said);
  options.checkpoint = checkpoint_options(arguments.checkpoint, plan, options, said);
  const Exports exports = exports_of(arguments);
  for (const auto& [option, output] :
       {std::pair("-o", arguments.output), std::pair("--log", arguments.checkpoint.log),
        std::pair("--export", exports.model), std::pair("--export-adapters", exports.adapters_folder)}) {
    require_beside_checkpoints(option, output, arguments.checkpoint.save);
  }
  require_exportable(plan, exports);
  if (!writes) return;
  try {
    if (!said_already) take_folder(options.checkpoint, plan, said);
    require_outputs(arguments, plan, options);
  } catch (const Error& error) {
    if (member && !said_already) tell_ranks(*member, error);
    throw;
  }
}

ExitStatus run_command(const RunArguments& arguments) {
  require_plan(arguments.plan);
  SessionOptions options = session_options(arguments.session);
  require_readable({arguments.plan}, options);
  if (arguments.output == standard_stream) {
    throw InputError("-o -", "the run prints to standard output while it trains", "name a file");
  }
  const Exports exports = exports_of(arguments);
  options.tells_steps = !arguments.json;
  options.gathers_weights = !exports.model.empty() || !exports.adapters_folder.empty();
  if (is_training(arguments.checkpoint) && !arguments.warm_up_given) options.warm_up = 0;
  Plan plan = read_plan(arguments.plan);
  if (!arguments.weights.empty()) {
    plan.model = model_in_checkpoint(plan.model, arguments.weights);
    options.stage.weights = std::make_shared<const PretrainedWeights>(arguments.weights, plan.model);
  }
  require_files(arguments, plan, options);
  const SessionResult result = run_session({plan}, options);
  if (result.runs.empty()) return result.status;
  const std::optional<SignalWatch> signals = while_results_are_written();
  report(result, arguments, options);
  return result.status;
}

}  // namespace

void add_run(CLI::App& app, Command& chosen) {
  const auto arguments = std::make_shared<RunArguments>();
  CLI::App& command = add_command(app, "run", "Runs a plan: trains its model and measures each action.",
                                  "plumb-exec run plan.json -o measured.json --steps 10");
  command.add_option("PLAN", arguments->plan, "A plan that plumb plan wrote.")->required();
  command.add_option("-o,--output", arguments->output, "Writes the measured timeline, a Chrome trace for Perfetto.")
      ->type_name("FILE");
  command.add_flag("--json", arguments->json, "Prints one JSON object.");
  add_session_arguments(command, arguments->session);
  add_checkpoint_arguments(command, arguments->checkpoint);
  SessionOptions& options = arguments->session.options;
  command.add_flag("--check", options.check,
                   "Compares losses and gradients with a single device; exits with status 1 if they differ.");
  command
      .add_option(
          "--weights", arguments->weights,
          "Initial weights: the folder of a Hugging Face checkpoint, its model.safetensors, or a file of --export.")
      ->type_name("FILE");
  command
      .add_option(
          "--export", arguments->exports.model,
          "Writes all weights after the last step, adapters merged in, as safetensors: to a file, or to a folder "
          "with a config.json.")
      ->type_name("FILE");
  command
      .add_option(
          "--export-names", arguments->export_names,
          "Names of the exported tensors; default: Hugging Face's if the model was read from a config.json, else "
          "plumb's.")
      ->check(CLI::IsMember({"plumb", "hugging-face"}));
  command
      .add_option("--export-adapters", arguments->exports.adapters_folder,
                  "Writes LoRA's adapters after the last step as PEFT reads them, to this folder.")
      ->type_name("FOLDER");
  // For tests and demonstrations.
  command.add_option("--inject", options.fault, "Puts a fault into the schedule.")->group("");
  command.add_flag("--force-unchecked", options.force_unchecked, "Runs a schedule that the validator refuses.")
      ->group("");
  command.callback([arguments, &command, &chosen] {
    arguments->warm_up_given = command.count("--warm-up") > 0;
    chosen = [arguments] { return run_command(*arguments); };
  });
}

}  // namespace plumb::exec
