// The program `plumb`: shows, plans, simulates and compares training pipelines.
#include <CLI/CLI.hpp>
#include <string_view>

#include "common/base/command_line.hpp"
#include "common/base/program.hpp"
#include "sim/commands/command.hpp"

namespace sim = plumb::sim;

int main(int argc, char** argv) {
  return plumb::run_program("plumb", [&] {
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command == "run" || command == "compare" || command == "calibrate") sim::run_plumb_exec(argv);
    CLI::App program("Plans and simulates training pipelines, and shows where measured ones differ.", "plumb");
    program.set_version_flag("--version", std::string("plumb ") + PLUMB_VERSION);
    program.require_subcommand(1);
    program.footer("Example:\n  plumb simulate scenarios/demo.yaml\nEvery command has a --help with an example.");
    sim::Body body;
    sim::add_show(program, body);
    sim::add_plan(program, body);
    sim::add_simulate(program, body);
    sim::add_schedule(program, body);
    sim::add_layout(program, body);
    sim::add_diff(program, body);
    sim::add_validate(program, body);
    sim::add_fit(program, body);
    sim::add_report(program, body);
    sim::add_run(program);
    if (const auto status = plumb::parse_command_line(program, argc, argv)) return *status;
    return body();
  });
}
