// The command lines of both programs: usage errors in plumb's own words, `--help` with an example.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/base/error.hpp"

namespace CLI {
class App;
}

namespace plumb {

// Adds what all commands share: --color, --quiet, -o, the form of --help, and the check for empty words. Called once,
// by `parse_command_line`, when all commands are added.
void complete_program(CLI::App& app);

// Parses `argv` into the variables bound to `app`; "help COMMAND" stands for "COMMAND --help". Returns a status if help
// or the version was printed, else none. Throws InputError, with a did-you-mean for unknown options and commands.
[[nodiscard]] std::optional<ExitStatus> parse_command_line(CLI::App& app, int argc, const char* const* argv);

// Runs the command that was chosen. With the -o that `complete_program` adds to commands without one of their own, its
// standard output becomes that file. Throws InputError before it runs if the file cannot be written or is an input.
[[nodiscard]] ExitStatus run_chosen(const std::function<ExitStatus()>& command);

// Throws InputError if -o - and --json both ask for standard output.
void require_one_output(const std::string& output, bool json);

// Adds a command whose `--help` ends with these examples, a line each.
CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& example);

// Adds `completion bash|zsh` and `man`, whose pages are made from the help of `program`.
void add_page_commands(CLI::App& program, std::function<ExitStatus()>& chosen, const std::string& version);

}  // namespace plumb
