#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/files.hpp"
#include "common/base/json.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/schedule/pytorch_csv.hpp"
#include "common/schedule/registry.hpp"
#include "common/schedule/validate.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/schedule_options.hpp"

namespace plumb::sim {
namespace {

struct ExportOptions : ShapeOptions {
  std::string name;
  bool json = false;
  std::string format = "pytorch-csv";
};

struct CheckOptions {
  std::string file;
  bool json = false;
};

ExitStatus export_schedule(const ExportOptions& options) {
  if (options.format != "pytorch-csv") {
    throw InputError("--format", "unknown format '" + options.format + "'",
                     did_you_mean(options.format, {"pytorch-csv"}));
  }
  const ScheduleEntry& entry = find_schedule(options.name);
  const Schedule schedule = entry.generate(shape_for(entry, options));
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

}  // namespace

void add_schedule(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "schedule", "Lists, draws, compares, exports and checks pipeline schedules.",
                                  "plumb schedule show 1f1b --ranks 4 --microbatches 8 --times 1,1,1");
  command.require_subcommand(1);
  const auto as_json = std::make_shared<bool>(false);
  CLI::App& list_command =
      add_command(command, "list", "All schedules, their source and what they need.", "plumb schedule list");
  list_command.add_flag("--json", *as_json, "Writes one JSON object to standard output.");
  list_command.callback([&body, as_json] { body = [as_json] { return list(*as_json); }; });
  add_schedule_show(command, body);
  add_schedule_compare(command, body);
  CLI::App& export_command =
      add_command(command, "export", "Writes a schedule to standard output for other programs.",
                  "plumb schedule export 1f1b --ranks 4 --microbatches 8 --format pytorch-csv > schedule.csv");
  const auto exported = std::make_shared<ExportOptions>();
  export_command.add_option("NAME", exported->name, "One of plumb schedule list.")->required();
  add_shape(export_command, *exported);
  export_command.add_flag("--json", exported->json, "Writes one JSON object to standard output.");
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
