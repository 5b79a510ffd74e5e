#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/files.hpp"
#include "common/base/json.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/graph/evaluate.hpp"
#include "common/graph/memory.hpp"
#include "common/schedule/pytorch_csv.hpp"
#include "common/schedule/registry.hpp"
#include "common/schedule/validate.hpp"
#include "common/timeline/gantt.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"

namespace plumb::sim {
namespace {

struct ShapeOptions {
  std::string name;
  int ranks = 0;
  int microbatches = 0;
  int chunks = 0;  // 0: 2 where the schedule has several, else 1
  bool json = false;
};

struct ShowOptions : ShapeOptions {
  std::string times = "1,1,1";
};

struct ExportOptions : ShapeOptions {
  std::string format = "pytorch-csv";
};

struct CheckOptions {
  std::string file;
  bool json = false;
};

// Of one rank's share of one microbatch, in the user's own unit.
struct Times {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double hop = 0;
};

Times parse_times(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    double number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc() || end != item.data() + item.size() || !(number >= 0) || number > longest_time.value) {
      throw InputError("--times", "'" + item + "' is not a time", "expected F,I,W or F,I,W,HOP, each from zero to 1e9");
    }
    numbers.push_back(number);
  }
  if (numbers.size() != 3 && numbers.size() != 4) {
    throw InputError("--times", fmt::format("expected F,I,W or F,I,W,HOP, found {} numbers", numbers.size()),
                     "for example --times 1,1,1 or --times 1,1,1,0.1");
  }
  return {numbers[0], numbers[1], numbers[2], numbers.size() == 4 ? numbers[3] : 0};
}

Schedule generate(const ShapeOptions& options) {
  const ScheduleEntry& entry = find_schedule(options.name);
  const int chunks = options.chunks > 0 ? options.chunks : (entry.uses_chunks ? 2 : 1);
  return entry.generate({.ranks = options.ranks, .microbatches = options.microbatches, .chunks = chunks});
}

StepTimeline step_of(const ScheduleGraph& graph, const Evaluation& evaluation) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    events.push_back({.action = node.action,
                      .rank = node.rank,
                      .peer = node.peer,
                      .start = evaluation.start[i],
                      .end = evaluation.end[i],
                      .waited = {},
                      .bytes = node.bytes});
  }
  return ordered_step(std::move(events));
}

ExitStatus show(const ShowOptions& options) {
  const Times times = parse_times(options.times);
  const Schedule schedule = generate(options);
  const PipelineCosts costs = even_costs(stages(schedule), {.forward = {times.forward},
                                                            .input_gradient = {times.input_gradient},
                                                            .weight_gradient = {times.weight_gradient},
                                                            .hop = {times.hop},
                                                            .chunks = schedule.chunks});
  const Schedule lowered = lower(schedule, {.optimizer = false, .tied_embeddings = false});
  const ScheduleGraph graph = build_graph(lowered, costs);
  const Evaluation evaluation = evaluate(graph);
  const Bubbles bubble = bubbles(graph, evaluation);
  const std::vector<double> peaks = peak_activations(schedule);
  if (options.json) {
    std::cout << to_text(Json{{"schedule", schedule.name},
                              {"ranks", schedule.ranks},
                              {"microbatches", schedule.microbatches},
                              {"chunks", schedule.chunks},
                              {"makespan", evaluation.makespan.value},
                              {"bubble_makespan", bubble.makespan.value},
                              {"bubble_span", bubble.span.value},
                              {"peak_activations", peaks}});
    return ExitStatus::done;
  }
  const ScheduleEntry& entry = find_schedule(options.name);
  std::cout << fmt::format("{} ({}): {} ranks, {} microbatches, {} {} per rank\n\n", entry.title, entry.source,
                           schedule.ranks, schedule.microbatches, schedule.chunks,
                           schedule.chunks == 1 ? "stage" : "stages");
  std::cout << fmt::format("  makespan    {:.6g}\n", evaluation.makespan.value);
  std::cout << fmt::format("  bubble      {:.6g} of the makespan ({}); {:.6g} of the longest rank's own span ({})\n",
                           bubble.makespan.value, percent_text(bubble.makespan_fraction), bubble.span.value,
                           percent_text(bubble.span_fraction));
  std::string list;
  for (const double peak : peaks) list += fmt::format("{}{:.6g}", list.empty() ? "" : ", ", peak);
  std::cout << "  activations " << list << " at the peak of each rank\n\n";
  std::cout << gantt(
      step_of(graph, evaluation), schedule.ranks,
      {.width = chart_width(), .colour = colour_allowed(Stream::out), .unicode = true, .in_seconds = false});
  std::cout
      << "\nTimes are in the unit of --times, of one rank's share of a microbatch; activations count such shares.\n";
  return ExitStatus::done;
}

ExitStatus export_schedule(const ExportOptions& options) {
  if (options.format != "pytorch-csv") {
    throw InputError("--format", "unknown format '" + options.format + "'",
                     did_you_mean(options.format, {"pytorch-csv"}));
  }
  const Schedule schedule = generate(options);
  const std::string csv = to_pytorch_csv(schedule);
  if (options.json) {
    std::cout << to_text(Json{{"schedule", schedule.name}, {"format", options.format}, {"text", csv}});
  } else {
    std::cout << csv;
  }
  return ExitStatus::done;
}

ExitStatus check(const CheckOptions& options) {
  const Schedule schedule = parse_pytorch_csv(read_file(options.file), options.file);
  const std::vector<ScheduleProblem> problems = validate(schedule);
  if (options.json) {
    Json list = Json::array();
    for (const ScheduleProblem& problem : problems) {
      Json actions = Json::array();
      for (const Action& action : problem.actions) actions.push_back(to_string(action));
      list.push_back({{"text", problem.text}, {"ranks", problem.ranks}, {"actions", actions}});
    }
    std::cout << to_text(Json{{"valid", problems.empty()},
                              {"ranks", schedule.ranks},
                              {"microbatches", schedule.microbatches},
                              {"chunks", schedule.chunks},
                              {"problems", list}});
  } else {
    std::cout << fmt::format("{}: {} ranks, {} stages, {} microbatches\n", options.file, schedule.ranks,
                             stages(schedule), schedule.microbatches);
    for (const ScheduleProblem& problem : problems) std::cout << "  " << problem.text << '\n';
    std::cout << (problems.empty() ? "valid: it runs to its end without a deadlock\n"
                                   : fmt::format("not valid: {} {}\n", problems.size(),
                                                 problems.size() == 1 ? "problem" : "problems"));
  }
  return problems.empty() ? ExitStatus::done : ExitStatus::answer_is_no;
}

ExitStatus list(bool json) {
  if (json) {
    Json entries = Json::array();
    for (const ScheduleEntry& entry : schedule_entries()) {
      entries.push_back({{"name", entry.name},
                         {"title", entry.title},
                         {"source", entry.source},
                         {"requirement", entry.requirement},
                         {"splits_backward", entry.splits_backward},
                         {"uses_chunks", entry.uses_chunks}});
    }
    std::cout << to_text(Json{{"schedules", entries}});
    return ExitStatus::done;
  }
  Table table{.header = {"name", "source", "needs"}, .rows = {}, .left_columns = 3};
  for (const ScheduleEntry& entry : schedule_entries()) {
    table.rows.push_back({entry.name, entry.source, entry.requirement});
  }
  std::cout << to_text(table, colour_allowed(Stream::out));
  return ExitStatus::done;
}

void add_shape(CLI::App& command, ShapeOptions& options) {
  constexpr int most = 1 << 20;
  command.add_option("NAME", options.name, "One of plumb schedule list.")->required();
  command.add_option("--ranks", options.ranks, "Pipeline ranks.")->required()->check(CLI::Range(1, most));
  command.add_option("--microbatches", options.microbatches, "Per step.")->required()->check(CLI::Range(1, most));
  command.add_option("--chunks", options.chunks, "Stages per rank.")->check(CLI::Range(1, most));
  command.add_flag("--json", options.json, "Writes one JSON object to standard output.");
}

void add_schedule_show(CLI::App& parent, Body& body) {
  CLI::App& command = add_command(parent, "show", "Draws and measures one schedule.",
                                  "plumb schedule show zb-h1 --ranks 4 --microbatches 8 --times 1,1,1");
  const auto options = std::make_shared<ShowOptions>();
  add_shape(command, *options);
  command
      .add_option("--times", options->times,
                  "F,I,W[,HOP]: forward, input and weight gradient of one rank's share; latency between ranks.")
      ->capture_default_str();
  command.callback([&body, options] { body = [options] { return show(*options); }; });
}

}  // namespace

void add_schedule(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "schedule", "Lists, draws, exports and checks pipeline schedules.",
                                  "plumb schedule show 1f1b --ranks 4 --microbatches 8 --times 1,1,1");
  command.require_subcommand(1);
  const auto as_json = std::make_shared<bool>(false);
  CLI::App& list_command =
      add_command(command, "list", "All schedules, their source and what they need.", "plumb schedule list");
  list_command.add_flag("--json", *as_json, "Writes one JSON object to standard output.");
  list_command.callback([&body, as_json] { body = [as_json] { return list(*as_json); }; });
  add_schedule_show(command, body);
  CLI::App& export_command =
      add_command(command, "export", "Writes a schedule to standard output for other programs.",
                  "plumb schedule export 1f1b --ranks 4 --microbatches 8 --format pytorch-csv > schedule.csv");
  const auto exported = std::make_shared<ExportOptions>();
  add_shape(export_command, *exported);
  export_command.add_option("--format", exported->format, "pytorch-csv: for torch.distributed.pipelining.")
      ->capture_default_str();
  export_command.callback([&body, exported] { body = [exported] { return export_schedule(*exported); }; });
  CLI::App& check_command = add_command(command, "check", "Says whether a schedule that others wrote is valid.",
                                        "plumb schedule check schedule.csv");
  const auto checked = std::make_shared<CheckOptions>();
  check_command.add_option("FILE", checked->file, "A CSV of torch.distributed.pipelining.")->required();
  check_command.add_flag("--json", checked->json, "Writes one JSON object to standard output.");
  check_command.callback([&body, checked] { body = [checked] { return check(*checked); }; });
}

}  // namespace plumb::sim
