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

}  // namespace plumb::exec
