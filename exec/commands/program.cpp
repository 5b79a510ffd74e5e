#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/completion.hpp"
#include "common/base/program.hpp"
#include "common/scenario_file/names.hpp"
#include "exec/commands/commands.hpp"
#include "exec/device/torch_device.hpp"

namespace plumb::exec {
namespace {

// Features of this build, a line each.
std::string version_text() {
  return std::string("plumb-exec ") + PLUMB_VERSION + "\n  LibTorch: " + PLUMB_LIBTORCH_VERSION + ", " +
         libtorch_devices() + "\n  gloo: on\n  CUDA kernels: " + PLUMB_CUDA_FEATURE +
         "\n  NCCL: " + PLUMB_NCCL_FEATURE + "\n";
}

}  // namespace

int plumb_exec(int argc, const char* const* argv) {
  return run_program("plumb-exec", [&] {
    CLI::App app("Runs plans of plumb on real devices: trains, measures and compares them, and calibrates machines.",
                 "plumb-exec");
    app.set_version_flag("--version", version_text, "Prints the version and the features of this build.");
    app.require_subcommand(1);
    app.footer("Examples:\n  plumb-exec run plan.json --steps 10 -o measured.json\nEvery command has --help.");
    Command chosen;
    add_run(app, chosen);
    add_compare(app, chosen);
    add_calibrate(app, chosen);
    add_bench(app, chosen);
    add_page_commands(app, chosen, PLUMB_VERSION);
    if (argc > 1 && argv[1] == std::string(completion_command)) {
      complete_program(app);
      std::cout << to_text(completions(app, std::vector<std::string>(argv + 2, argv + argc), names_of_values()));
      return ExitStatus::done;
    }
    if (const auto done = parse_command_line(app, argc, argv)) return *done;
    return run_chosen(chosen);
  });
}

}  // namespace plumb::exec
