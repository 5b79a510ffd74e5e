#include <CLI/CLI.hpp>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/program.hpp"
#include "exec/commands/commands.hpp"

namespace plumb::exec {

int plumb_exec(int argc, const char* const* argv) {
  return run_program("plumb-exec", [&] {
    CLI::App app("Executes training pipelines that plumb has planned.", "plumb-exec");
    app.set_version_flag("--version", std::string("plumb-exec ") + PLUMB_VERSION);
    app.require_subcommand(1);
    Command chosen;
    add_run(app, chosen);
    add_compare(app, chosen);
    add_calibrate(app, chosen);
    add_bench(app, chosen);
    if (const auto done = parse_command_line(app, argc, argv)) return *done;
    return chosen();
  });
}

}  // namespace plumb::exec
