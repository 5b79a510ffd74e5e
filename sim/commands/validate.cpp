#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "common/base/command_line.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {
namespace {

struct Options {
  std::string folder;
  bool json = false;
};

}  // namespace

void add_validate(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "validate", "Predicts published measurements (not built yet).",
                                  "plumb validate scenarios/published");
  const auto options = std::make_shared<Options>();
  command.add_option("FOLDER", options->folder, "Where the published rows stand.")->required();
  command.add_flag("--json", options->json, "Writes one JSON object to standard output.");
  command.callback([&body, options] {
    body = [options]() -> ExitStatus {
      throw InputError("plumb validate", "is not built yet: predictions of published rows (" + options->folder + ")",
                       "plumb simulate predicts one scenario at a time");
    };
  });
}

}  // namespace plumb::sim
