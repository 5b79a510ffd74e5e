#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/timeline/report/report.hpp"
#include "common/timeline/trace/trace.hpp"
#include "sim/commands/calibrations.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/input.hpp"

namespace plumb::sim {
namespace {

struct ReportOptions {
  std::vector<std::string> timelines;
  std::string output = "report.html";
  Calibrations calibrations;
  bool json = false;
};

ExitStatus report(const ReportOptions& options) {
  require_both(options.calibrations, "plumb report");
  require_one_output(options.output, options.json);
  std::vector<std::string> inputs = options.timelines;
  inputs.insert(inputs.end(), {options.calibrations.before, options.calibrations.after});
  require_writable(options.output, inputs);
  std::vector<Timeline> timelines;
  for (const std::string& path : options.timelines) timelines.push_back(timeline_in(path));
  const MachineMove move = machine_move(options.calibrations);
  const std::string page = html_report(timelines, describe(move));
  write_file(options.output, page);
  if (options.json) {
    Json json{{"output", options.output}, {"timelines", timelines.size()}, {"size_bytes", page.size()}};
    Seconds clocks;
    for (const Timeline& timeline : timelines) clocks = std::max(clocks, timeline.clock_uncertainty);
    if (clocks > Seconds{}) json["clock_uncertainty_s"] = clocks.value;
    add_to(json, move);
    std::cout << to_text(json);
  } else if (options.output != standard_stream && !is_quiet()) {
    std::cout << "wrote " << options.output << " (" << to_text(Bytes{static_cast<std::int64_t>(page.size())})
              << "): open it in a browser, it needs no network\n";
  }
  return ExitStatus::done;
}

}  // namespace

void add_report(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "report", "Writes one HTML page about one or more timelines.",
                                  "plumb report predicted.json measured.json -o report.html");
  const auto options = std::make_shared<ReportOptions>();
  command.add_option("TIMELINE", options->timelines, "Timelines that simulate -o and run -o wrote.")->required();
  command.add_option("-o,--output", options->output, "The page.")->type_name("FILE")->capture_default_str();
  add_options(command, options->calibrations);
  command.add_flag("--json", options->json, "Prints one JSON object.");
  command.callback([&body, options] { body = [options] { return report(*options); }; });
}

}  // namespace plumb::sim
