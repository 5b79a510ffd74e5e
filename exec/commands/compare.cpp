#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/base/command_line.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/timeline/trace/trace.hpp"
#include "exec/commands/commands.hpp"
#include "exec/commands/member.hpp"
#include "exec/commands/ratios.hpp"
#include "exec/commands/session_arguments.hpp"

namespace plumb::exec {
namespace {

using nlohmann::ordered_json;

struct CompareArguments {
  SessionArguments session;
  std::vector<std::string> plans;
  std::string folder;
  bool json = false;
};

std::vector<Seconds> step_times(const PlanRun& run) {
  std::vector<Seconds> times;
  for (const StepTimeline& step : run.timeline.steps) times.push_back(step.duration);
  return times;
}

ordered_json to_json(const std::vector<PlanRun>& runs, const std::vector<RatioSpread>& ratios) {
  ordered_json json{{"plans", ordered_json::array()}, {"ratios", ordered_json::array()}};
  for (const PlanRun& run : runs) {
    ordered_json entry{{"plan", run.plan.name},
                       {"median_s", median_step(run.timeline).duration.value},
                       {"step_s", ordered_json::array()},
                       {"loss", ordered_json::array()},
                       {"replay_error_fraction", run.replay_error_fraction}};
    for (const Seconds time : step_times(run)) entry["step_s"].push_back(time.value);
    for (std::size_t i = run.warm_up.size(); i < run.losses.size(); ++i) entry["loss"].push_back(run.losses[i]);
    json["plans"].push_back(entry);
  }
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    json["ratios"].push_back({{"plan", runs[i + 1].plan.name},
                              {"to", runs[0].plan.name},
                              {"median", ratios[i].median},
                              {"low", ratios[i].low},
                              {"high", ratios[i].high}});
  }
  return json;
}

void print(const std::vector<PlanRun>& runs, const std::vector<RatioSpread>& ratios) {
  Table table{.header = {"plan", "median step", "replay", "step to " + runs[0].plan.name, "middle half"}, .rows = {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::string> row{runs[i].plan.name, to_text(median_step(runs[i].timeline).duration),
                                 fmt::format("{:+.2f}%", runs[i].replay_error_fraction * 100)};
    if (i > 0) {
      row.push_back(change_text(ratios[i - 1].median - 1));
      row.push_back(change_text(ratios[i - 1].low - 1) + " to " + change_text(ratios[i - 1].high - 1));
    }
    table.rows.push_back(std::move(row));
  }
  std::cout << to_text(table, colour_allowed(plumb::Stream::out));
  std::cout << clock_lines(runs[0]);
  std::cout << fmt::format("{} steps of each plan in alternation, after warm-up; -10%: a tenth shorter\n",
                           runs[0].timeline.steps.size());
}

// "FOLDER/NAME.measured.json" after each plan's file; a name that is taken gets a number.
std::vector<std::filesystem::path> output_files(const CompareArguments& arguments) {
  std::vector<std::filesystem::path> files;
  std::set<std::string> taken;
  for (const std::string& plan : arguments.plans) {
    const std::string stem = std::filesystem::path(plan).stem().string();
    std::string name = stem;
    for (int number = 2; !taken.insert(name).second; ++number) name = fmt::format("{}-{}", stem, number);
    files.push_back(std::filesystem::path(arguments.folder) / (name + ".measured.json"));
  }
  return files;
}

// Only one process has the folder: it tells the others what is wrong with it, who would wait.
void take_folder(const CompareArguments& arguments, const std::vector<std::filesystem::path>& files) {
  if (arguments.folder.empty() || !writes_files(environment_variable)) return;
  const std::optional<Membership> member = membership(environment_variable);
  try {
    std::error_code none;
    if (std::filesystem::exists(arguments.folder, none) && !std::filesystem::is_directory(arguments.folder, none)) {
      throw InputError(arguments.folder, "is a file, expected a folder");
    }
    std::error_code unmade;
    std::filesystem::create_directory(arguments.folder, unmade);
    if (unmade && !std::filesystem::exists(arguments.folder, none)) {
      throw InputError(arguments.folder, "cannot be made: " + unmade.message(),
                       "-o must name a folder, in one that is there and that you may write to");
    }
    for (const std::filesystem::path& file : files) require_writable(file, arguments.plans);
  } catch (const Error& error) {
    if (member && member->launcher != "plumb-exec") tell_ranks(*member, error);
    throw;
  }
}

ExitStatus compare_command(const CompareArguments& arguments) {
  const SessionOptions options = session_options(arguments.session);
  if (arguments.plans.size() < 2) throw InputError("plumb-exec compare", "expected at least two plans");
  require_readable(arguments.plans, options);
  const std::vector<std::filesystem::path> files = output_files(arguments);
  std::vector<Plan> plans;
  for (const std::string& path : arguments.plans) plans.push_back(read_plan(path));
  take_folder(arguments, files);
  const SessionResult result = run_session(std::move(plans), options);
  if (result.runs.empty()) return result.status;
  const std::optional<SignalWatch> signals = while_results_are_written();
  std::vector<RatioSpread> ratios;
  for (std::size_t i = 1; i < result.runs.size(); ++i) {
    ratios.push_back(paired_ratios(step_times(result.runs[0]), step_times(result.runs[i])));
  }
  if (arguments.json) {
    std::cout << to_json(result.runs, ratios).dump(2) << '\n';
  } else {
    print(result.runs, ratios);
  }
  std::cout << std::flush;
  if (!arguments.folder.empty()) {
    for (std::size_t i = 0; i < files.size(); ++i) write_file(files[i], to_trace(result.runs[i].timeline));
  }
  if (!result.interrupted.empty())
    throw RunError("", result.interrupted, "what is above is of the whole steps until then");
  return result.status;
}

}  // namespace

void add_compare(CLI::App& app, Command& chosen) {
  const auto arguments = std::make_shared<CompareArguments>();
  CLI::App& command = add_command(
      app, "compare", "Alternates the steps of several plans in one run, so that all meet the same machine.",
      "plumb-exec compare uniform.json dynamic.json --steps 20 -o timelines/");
  command.add_option("PLAN", arguments->plans, "Two or more plans for the same number of ranks.")->required();
  command.add_option("-o,--output", arguments->folder, "Writes each plan's measured timeline to this folder.")
      ->type_name("FOLDER");
  add_session_arguments(command, arguments->session);
  command.add_flag("--json", arguments->json, "Prints one JSON object.");
  command.callback([arguments, &chosen] { chosen = [arguments] { return compare_command(*arguments); }; });
}

}  // namespace plumb::exec
