// The command lines of both programs: usage errors in plumb's own words, `--help` with an example.
#pragma once

#include <optional>
#include <string>

#include "common/base/error.hpp"

namespace CLI {
class App;
}

namespace plumb {

// Parses `argv` into what was bound to `app`; "help COMMAND" stands for "COMMAND --help". A status if that is all there
// was to do (help was printed); otherwise none. Throws InputError, with a did-you-mean for unknown options and
// commands.
[[nodiscard]] std::optional<ExitStatus> parse_command_line(CLI::App& app, int argc, const char* const* argv);

// A subcommand whose `--help` ends with this example.
CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& example);

}  // namespace plumb
