// Help of a command line as data, and the pages that are made from it: --help, Markdown and the man page.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace plumb {

struct OptionHelp {
  std::string names = {};         // "-o, --output"; "SCENARIO" for an argument
  std::string value = {};         // "FILE", "simgrid|path"; empty for a flag
  std::string description = {};   // one or more sentences
  std::string default_text = {};  // empty if there is none
  bool required = false;
  bool repeated = false;
};

struct CommandHelp {
  std::string words = {};  // "plumb schedule show"
  std::string description = {};
  std::vector<std::string> examples = {};
  std::vector<std::string> notes = {};  // further lines below the examples
  std::vector<OptionHelp> arguments = {};
  std::vector<OptionHelp> options = {};
  std::vector<OptionHelp> global_options = {};
  std::vector<CommandHelp> commands = {};
};

// Name of the group of options that every command takes.
inline constexpr const char* global_group = "Global options";

// Returns the value that an option takes, as help shows it: its type name, "N" for a whole number; empty for a flag.
[[nodiscard]] std::string value_of(const CLI::Option& option);

// Collects the help of `app` and of its commands. `parent`: the words before its name.
[[nodiscard]] CommandHelp command_help(const CLI::App& app, const std::string& parent = "");

// The text of --help, wrapped at `columns`.
[[nodiscard]] std::string help_text(const CommandHelp& help, std::size_t columns = 100);

// Reference page of the program in Markdown: its global options, and a section for each command.
[[nodiscard]] std::string command_reference(const CommandHelp& help);

// One man page (roff, section 1) of the program with all commands.
[[nodiscard]] std::string man_page(const CommandHelp& help, const std::string& version);

}  // namespace plumb
