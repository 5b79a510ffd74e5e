#include "common/base/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {
namespace {

// The innermost command that was named, and the words up to it: "plumb schedule show".
struct Named {
  const CLI::App* app = nullptr;
  std::string words;
};

Named innermost(const CLI::App& app) {
  Named named{.app = &app, .words = app.get_name()};
  while (!named.app->get_subcommands().empty()) {
    named.app = named.app->get_subcommands().front();
    named.words += " " + named.app->get_name();
  }
  return named;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// An empty word is most likely a shell variable that is not set, never what was meant.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator filled([](const std::string& word) { return word.empty() ? "is empty" : std::string(); }, "",
                              "filled");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_min() > 0) option->check(filled);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*command);
}

[[noreturn]] void report(const CLI::App& app, const CLI::ParseError& error) {
  const Named named = innermost(app);
  const std::string help = "see " + named.words + " --help";
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) throw InputError(named.words, error.what(), help);
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  if (word.starts_with("-")) {
    throw InputError(named.words, "unknown option '" + word + "'", did_you_mean(word, option_names(*named.app)));
  }
  const std::vector<std::string> commands = command_names(*named.app);
  if (commands.empty()) throw InputError(named.words, "unexpected argument '" + word + "'", help);
  throw InputError(named.words, "unknown command '" + word + "'", did_you_mean(word, commands));
}

}  // namespace

std::optional<ExitStatus> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  refuse_empty_values(app);
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {  // "help plan" is "plan --help"
    words.erase(words.begin() + 1);
    // An unknown command is refused as one; with "--help" behind it the program's own help would be printed.
    if (argc == 2 || !app.get_subcommands([&](CLI::App* command) { return command->get_name() == argv[2]; }).empty())
      words.push_back("--help");
  }
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::Success& success) {
    app.exit(success, std::cout, std::cerr);
    return ExitStatus::done;
  } catch (const CLI::ParseError& error) {
    report(app, error);
  }
  return std::nullopt;
}

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& example) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->footer("Example:\n  " + example);
  return *command;
}

}  // namespace plumb
