#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/graph/evaluate.hpp"
#include "common/graph/memory.hpp"
#include "common/plan/plan.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/problem_causes.hpp"
#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/interchange/pytorch_messages.hpp"
#include "common/schedule/interchange/schedule_file.hpp"
#include "common/schedule/validate/validate.hpp"
#include "common/split/megatron_layout.hpp"
#include "common/timeline/chart/gantt.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/input.hpp"
#include "sim/commands/schedule_input.hpp"
#include "sim/commands/schedule_options.hpp"

namespace plumb::sim {
namespace {

struct ExportOptions : ScheduleOptions {
  std::string format = "pytorch-csv";
  std::string written_alphabet;
};

struct CheckOptions {
  std::string file;
  std::string alphabet;
  std::optional<double> memory_limit;
  bool json = false;
};

std::string list_text(const std::vector<double>& numbers) {
  std::string list;
  for (const double number : numbers) list += fmt::format("{}{:.6g}", list.empty() ? "" : ", ", number);
  return list;
}

// Returns the text for another program.
std::string exported_text(const ExportOptions& options, std::vector<std::string>& notes) {
  const bool is_csv = options.format.starts_with("pytorch-csv");
  if (!is_csv && !options.written_alphabet.empty()) {
    throw InputError("--alphabet", "belongs to CSVs, but the format is " + options.format);
  }
  if (options.format == "megatron-layout") {
    if (!std::filesystem::is_regular_file(options.input) || kind_of_input(options.input) != InputKind::plan) {
      throw InputError(
          options.input, "is not a plan, and only a plan says how many layers each stage has",
          "plumb plan SCENARIO -o plan.json, then plumb schedule export plan.json --format megatron-layout");
    }
    const Plan plan = read_plan(options.input);
    if (plan.layout.vocabulary_barriers > 0) {
      throw InputError(options.input, "a layout string has no words for a vocabulary that the pipeline divides",
                       "--format json");
    }
    return to_megatron_layout(plan.split, plan.schedule.rank_of_stage, static_cast<int>(plan.model.mtp_modules)) + "\n";
  }
  NamedSchedule named = schedule_of(options);
  if (options.format == "json") return to_schedule_file(named.schedule);
  const CsvWriting writing{.form = options.format == "pytorch-csv" ? CsvForm::compute_only : CsvForm::compute_comms,
                           .alphabet = alphabet_of(options.written_alphabet).value_or(CsvAlphabet::today)};
  notes = pytorch_csv_notes(named.schedule);
  if (writing.form == CsvForm::compute_only && is_lowered(named.schedule)) {
    notes.emplace_back("messages and reductions are left out: PyTorch adds its own to a compute-only CSV");
    named.schedule = without_messages(std::move(named.schedule));
  }
  return to_pytorch_csv(named.schedule, writing);
}

ExitStatus export_schedule(const ExportOptions& options) {
  std::vector<std::string> notes;
  const std::string text = exported_text(options, notes);
  print_notes(notes);
  if (options.json) {
    std::cout << to_text(
        Json{{"schedule", options.input}, {"format", options.format}, {"text", text}, {"notes", notes}});
  } else {
    std::cout << text;
  }
  return ExitStatus::done;
}

Json to_json(const std::vector<ProblemCause>& causes) {
  Json list = Json::array();
  for (const ProblemCause& cause : causes) {
    list.push_back({{"text", cause.text}, {"follow", cause.follow}});
    if (cause.place.line == 0) continue;
    list.back()["line"] = cause.place.line;
    list.back()["column"] = cause.place.column;
  }
  return list;
}

std::string cause_text(const ProblemCause& cause) {
  std::string text = cause.place.line > 0 ? to_string(cause.place) + ": " + cause.text : cause.text;
  if (cause.follow > 0) {
    text += fmt::format(" (and {} more {} that {} from it)", cause.follow, cause.follow == 1 ? "problem" : "problems",
                        cause.follow == 1 ? "follows" : "follow");
  }
  return text;
}

Json to_json(const std::vector<ScheduleProblem>& problems) {
  Json list = Json::array();
  for (const ScheduleProblem& problem : problems) {
    Json actions = Json::array();
    for (const Action& action : problem.actions) actions.push_back(to_string(action));
    list.push_back(
        {{"kind", name_of(problem.kind)}, {"text", problem.text}, {"ranks", problem.ranks}, {"actions", actions}});
  }
  return list;
}

std::string stages_text(const Schedule& schedule) {
  const std::string chain = fmt::format("{} stages", stages(schedule));
  const int parts = all_stages(schedule) - stages(schedule);
  return parts == 0 ? chain : fmt::format("{} and {} parts of a vocabulary that the ranks divide", chain, parts);
}

ExitStatus check(const CheckOptions& options) {
  const ScheduleReading reading =
      read_schedule_text(read_file(options.file), options.file, alphabet_of(options.alphabet));
  const Schedule& schedule = reading.schedule;
  std::vector<ScheduleProblem> problems = validate(schedule);
  // A queue that is crossed for plumb is crossed for PyTorch, too: reported once.
  if (reading.for_pytorch && problems.empty()) problems = check_pytorch_queues(schedule);
  if (options.memory_limit) {
    for (ScheduleProblem& problem : check_activations(schedule, *options.memory_limit)) {
      problems.push_back(std::move(problem));
    }
  }
  const std::vector<ProblemCause> causes = fold_problems(reading, problems, options.file);
  const std::vector<double> peaks = peak_activations(schedule);
  if (options.json) {
    std::cout << to_text(Json{{"valid", problems.empty()},
                              {"taken_for", reading.taken_for},
                              {"ranks", schedule.ranks},
                              {"stages", stages(schedule)},
                              {"parts", all_stages(schedule) - stages(schedule)},
                              {"microbatches", schedule.microbatches},
                              {"chunks", schedule.chunks},
                              {"peak_activations", peaks},
                              {"notes", reading.notes},
                              {"causes", to_json(causes)},
                              {"problems", to_json(problems)}});
    return problems.empty() ? ExitStatus::done : ExitStatus::answer_is_no;
  }
  std::cout << fmt::format("{}: {}; {} ranks, {}, {} microbatches\n", options.file, reading.taken_for, schedule.ranks,
                           stages_text(schedule), schedule.microbatches);
  for (const std::string& note : reading.notes) std::cout << "  note: " << note << '\n';
  for (const ProblemCause& cause : causes) std::cout << "  " << cause_text(cause) << '\n';
  std::cout << (problems.empty()
                    ? fmt::format("valid: it runs to its end without a deadlock; activations {} at the "
                                  "peak of each rank\n",
                                  list_text(peaks))
                    : fmt::format("not valid: {} {}\n", causes.size(), causes.size() == 1 ? "fault" : "faults"));
  return problems.empty() ? ExitStatus::done : ExitStatus::answer_is_no;
}

void add_schedule_export(CLI::App& parent, Body& body) {
  CLI::App& command = add_command(parent, "export", "Prints a schedule for other programs.",
                                  "plumb schedule export 1f1b --ranks 4 --microbatches 8 -o schedule.csv");
  const auto options = std::make_shared<ExportOptions>();
  add_schedule_options(command, *options);
  command
      .add_option(
          "--format", options->format,
          "pytorch-csv: torch.distributed.pipelining, compute only; pytorch-csv-comms: with communication; json: the "
          "whole schedule; megatron-layout: pipeline_model_parallel_layout of a plan's split.")
      ->check(CLI::IsMember({"pytorch-csv", "pytorch-csv-comms", "json", "megatron-layout"}))
      ->capture_default_str();
  add_alphabet(command, options->written_alphabet, "Alphabet of the CSV.");
  command.callback([&body, options] { body = [options] { return export_schedule(*options); }; });
}

void add_schedule_check(CLI::App& parent, Body& body) {
  CLI::App& command = add_command(
      parent, "check",
      "Checks a schedule from a file: duplicates, crossed dependencies, unmatched or crossed messages, deadlocks, "
      "memory.",
      "plumb schedule check schedule.csv --memory-limit 4");
  const auto options = std::make_shared<CheckOptions>();
  command
      .add_option("FILE", options->file,
                  "A CSV of torch.distributed.pipelining, JSON, or a plan; - reads standard input.")
      ->required();
  add_alphabet(command, options->alphabet, read_alphabet);
  command
      .add_option("--memory-limit", options->memory_limit,
                  "Largest number of activations that a rank may hold at once, in its share of a microbatch.")
      ->check(number_from(0));
  command.add_flag("--json", options->json, "Prints one JSON object.");
  command.callback([&body, options] { body = [options] { return check(*options); }; });
}

}  // namespace

void add_schedule(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "schedule", "Lists, draws, compares, exports and checks pipeline schedules.",
                                  "plumb schedule show 1f1b --ranks 4 --microbatches 8 --times 1,1,1");
  command.require_subcommand(1);
  add_schedule_list(command, body);
  add_schedule_show(command, body);
  add_schedule_compare(command, body);
  add_schedule_export(command, body);
  add_schedule_check(command, body);
}

}  // namespace plumb::sim
