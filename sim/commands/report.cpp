#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/files.hpp"
#include "common/base/json.hpp"
#include "common/base/text.hpp"
#include "common/timeline/report.hpp"
#include "common/timeline/trace.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {
namespace {

struct ReportOptions {
  std::vector<std::string> timelines;
  std::string output = "report.html";
  bool json = false;
};

ExitStatus report(const ReportOptions& options) {
  require_writable(options.output, options.timelines);
  std::vector<Timeline> timelines;
  for (const std::string& path : options.timelines) timelines.push_back(read_timeline(path));
  const std::string page = html_report(timelines);
  write_file(options.output, page);
  if (options.json) {
    std::cout << to_text(
        Json{{"output", options.output}, {"timelines", timelines.size()}, {"size_bytes", page.size()}});
  } else {
    std::cout << "wrote " << options.output << " (" << to_text(Bytes{static_cast<std::int64_t>(page.size())})
              << "): open it in a browser, it needs no network\n";
  }
  return ExitStatus::done;
}

}  // namespace

void add_report(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "report", "Writes one HTML page about timelines that explains itself.",
                                  "plumb report predicted.json measured.json -o report.html");
  const auto options = std::make_shared<ReportOptions>();
  command.add_option("TIMELINE", options->timelines, "What simulate and run wrote with -o.")->required();
  command.add_option("-o,--output", options->output, "The page.")->capture_default_str();
  command.add_flag("--json", options->json, "Writes one JSON object to standard output.");
  command.callback([&body, options] { body = [options] { return report(*options); }; });
}

}  // namespace plumb::sim
