// plumb-exec: executes plans on real devices, compares them, and calibrates this machine.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/program.hpp"
#include "exec/commands/commands.hpp"
#include "exec/launch/processes.hpp"

int main(int argc, char** argv) {
  using namespace plumb;
  exec::end_with_launcher();
  // LibTorch prints a page of stack for each attempt to connect; its errors reach us as exceptions.
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  return run_program("plumb-exec", [&] {
    CLI::App app("Executes training pipelines that plumb has planned.", "plumb-exec");
    app.set_version_flag("--version", std::string("plumb-exec ") + PLUMB_VERSION);
    app.require_subcommand(1);
    exec::Command chosen;
    exec::add_run(app, chosen);
    exec::add_compare(app, chosen);
    exec::add_calibrate(app, chosen);
    exec::add_bench(app, chosen);
    if (const auto done = parse_command_line(app, argc, argv)) return *done;
    return chosen();
  });
}
