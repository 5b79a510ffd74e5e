// Commands of the program: options are declared when a command is added, its body runs after parsing.
#pragma once

#include <functional>

#include "common/base/error.hpp"

namespace CLI {
class App;
}

namespace plumb::sim {

using Body = std::function<ExitStatus()>;

// Each adds its command to the program; when the command is named, `body` becomes what it does.
void add_show(CLI::App& program, Body& body);
void add_plan(CLI::App& program, Body& body);
void add_simulate(CLI::App& program, Body& body);
void add_schedule(CLI::App& program, Body& body);
void add_layout(CLI::App& program, Body& body);
void add_diff(CLI::App& program, Body& body);
void add_validate(CLI::App& program, Body& body);
void add_fit(CLI::App& program, Body& body);
void add_report(CLI::App& program, Body& body);
void add_list(CLI::App& program, Body& body);
void add_explain(CLI::App& program, Body& body);
void add_schema(CLI::App& program, Body& body);
void add_reference(CLI::App& program, Body& body);

// `plumb run …` becomes `plumb-exec run …` with the same arguments. Returns only if plumb-exec does not stand beside
// this program: then by InputError.
[[noreturn]] void run_plumb_exec(char** arguments);
// Only lists `run` among the commands; its arguments are plumb-exec's to read.
void add_run(CLI::App& program);

}  // namespace plumb::sim
