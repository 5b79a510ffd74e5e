// The commands of plumb-exec. Each adds itself to the command line and sets `chosen` when it is named there.
#pragma once

#include <functional>

#include "common/base/error.hpp"

namespace CLI {
class App;
}

namespace plumb::exec {

using Command = std::function<ExitStatus()>;

void add_run(CLI::App& app, Command& chosen);
void add_compare(CLI::App& app, Command& chosen);
void add_bench(CLI::App& app, Command& chosen);
void add_calibrate(CLI::App& app, Command& chosen);

// All that the program does in this process: reads the words (`argv[0]` is its name), runs the command that they name.
// An exit status; what went wrong stands on standard error.
[[nodiscard]] int plumb_exec(int argc, const char* const* argv);

}  // namespace plumb::exec
