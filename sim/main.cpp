// The program `plumb`: shows, plans, simulates and compares training pipelines.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/completion.hpp"
#include "common/base/first_signals.hpp"
#include "common/base/program.hpp"
#include "common/scenario_file/names.hpp"
#include "sim/commands/command.hpp"
#include "sim/predict.hpp"

namespace sim = plumb::sim;

// Ctrl-C in the first moments ends with words and a status, too.
[[gnu::section(".preinit_array"), gnu::used]] static plumb::FirstFunction first_function = plumb::take_first_signals;

namespace {

std::string version_text() {
  return std::string("plumb ") + PLUMB_VERSION + "\n  SimGrid: " + sim::simgrid_version() + "\n";
}

bool is_command_of_plumb_exec(std::string_view word) {
  return word == "run" || word == "compare" || word == "calibrate";
}

// Index of the command: the first word behind global options; `words.size()` if there is none.
std::size_t command_index(const std::vector<std::string>& words) {
  std::size_t at = 0;
  while (at < words.size() && words[at].starts_with("-")) at += words[at] == "--color" ? 2 : 1;
  return std::min(at, words.size());
}

void add_commands(CLI::App& program, sim::Body& body) {
  program.set_version_flag("--version", version_text, "Prints the version and the features of this build.");
  program.require_subcommand(1);
  program.footer(
      "Examples:\n  plumb list models\n  plumb show deepseek-v3\n  plumb simulate demo\n"
      "SCENARIO, MODEL and MACHINE are files or names of plumb list; - is standard input. Every command has --help.");
  sim::add_show(program, body);
  sim::add_plan(program, body);
  sim::add_simulate(program, body);
  sim::add_schedule(program, body);
  sim::add_layout(program, body);
  sim::add_diff(program, body);
  sim::add_report(program, body);
  sim::add_run(program);
  sim::add_list(program, body);
  sim::add_explain(program, body);
  sim::add_schema(program, body);
  sim::add_validate(program, body);
  sim::add_fit(program, body);
  sim::add_reference(program, body);
  plumb::add_page_commands(program, body, PLUMB_VERSION);
}

}  // namespace

int main(int argc, char** argv) {
  return plumb::run_program("plumb", [&] {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    const std::size_t at = command_index(words);
    const bool completes = !words.empty() && words.front() == plumb::completion_command;
    if (completes && words.size() > 2 && is_command_of_plumb_exec(words[1])) sim::run_plumb_exec(argv);
    if (at < words.size() && is_command_of_plumb_exec(words[at])) sim::run_plumb_exec(argv);
    CLI::App program(
        "Plans and simulates distributed training of large models, and shows where a measured run differs.", "plumb");
    sim::Body body;
    add_commands(program, body);
    if (completes) {
      plumb::complete_program(program);
      std::cout << to_text(plumb::completions(program, {words.begin() + 1, words.end()}, plumb::names_of_values()));
      return plumb::ExitStatus::done;
    }
    if (const auto status = plumb::parse_command_line(program, argc, argv)) return *status;
    return plumb::run_chosen(body);
  });
}
