#include "common/base/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/command_help.hpp"
#include "common/base/completion.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/synonyms.hpp"

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

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

// Words of the commands that take an option: "plumb plan".
void find_takers(const CLI::App& app, const std::string& words, const std::string& option,
                 std::vector<std::string>& takers) {
  const std::vector<std::string> names = option_names(app);
  if (std::ranges::count(names, option) > 0) takers.push_back(words);
  for (const CLI::App* command : commands_of(app))
    find_takers(*command, words + " " + command->get_name(), option, takers);
}

// Commands that newcomers look for under another name.
std::string other_name(std::string_view word) {
  for (const auto& [other, name] : {std::pair{"predict", "simulate"},
                                    {"sim", "simulate"},
                                    {"train", "run"},
                                    {"execute", "run"},
                                    {"search", "plan"},
                                    {"optimize", "plan"},
                                    {"tune", "plan"},
                                    {"profile", "calibrate"},
                                    {"models", "list models"},
                                    {"machines", "list machines"},
                                    {"schedules", "list schedules"},
                                    {"info", "show"},
                                    {"inspect", "show"}}) {
    if (word == other) return name;
  }
  return "";
}

// Refuses empty words: most likely a shell variable that is not set.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator filled([](const std::string& word) { return word.empty() ? "is empty" : std::string(); }, "",
                              "filled");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_min() > 0) option->check(filled);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*command);
}

// Keys that scenarios have and command lines do not, by their block.
std::string scenario_key(const std::string& option) {
  const std::string word = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  const std::vector<std::pair<std::string, std::vector<std::string>>> blocks = {
      {"training",
       {"sequence", "global_batch", "microbatch", "precision", "recompute", "offload", "optimizer", "learning_rate"}},
      {"layout", {"pipeline", "tensor", "data", "expert", "context", "sharding"}},
      {"cluster", {"machine", "nodes", "ranks"}}};
  for (const auto& [block, keys] : blocks) {
    std::string key = std::ranges::count(keys, word) > 0 ? word : key_meant(word, keys);
    if (key.empty()) continue;
    if (key == "sharding") key = "data: {sharding";
    return fmt::format("{}: {{{}: …}}{}", block, key, key.find('{') == std::string::npos ? "" : "}");
  }
  return "";
}

[[noreturn]] void report(const CLI::App& app, const CLI::ParseError& error) {
  const Named named = innermost(app);
  const std::string help = "see " + named.words + " --help";
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) throw InputError(named.words, error.what(), help);
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  if (word.starts_with("-")) {
    const std::vector<std::string> own = option_names(*named.app);
    std::vector<std::string> takers;
    find_takers(app, app.get_name(), word, takers);
    if (const std::string key = scenario_key(word); !key.empty() && !nearest_word(word, own)) {
      throw InputError(named.words, "unknown option '" + word + "'", "write it into the scenario, as " + key);
    }
    if (takers.empty() || nearest_word(word, own)) {
      throw InputError(named.words, "unknown option '" + word + "'", did_you_mean(word, own));
    }
    std::string list;
    for (const std::string& taker : takers) list += (list.empty() ? "" : ", ") + taker;
    throw InputError(named.words, "unknown option '" + word + "'", word + " is an option of " + list);
  }
  const std::vector<std::string> commands = command_names(*named.app);
  if (commands.empty()) throw InputError(named.words, "unexpected argument '" + word + "'", help);
  const std::string other = other_name(word);
  if (const std::string first = other.substr(0, other.find(' ')); std::ranges::count(commands, first) > 0) {
    throw InputError(named.words, "unknown command '" + word + "'", "did you mean '" + other + "'?");
  }
  std::error_code none;
  if (std::filesystem::exists(word, none) && !nearest_word(word, commands)) {
    throw InputError(named.words, "'" + word + "' is a file, expected a command",
                     named.words + " " + commands.front() + " " + word + ", for example");
  }
  throw InputError(named.words, "unknown command '" + word + "'", did_you_mean(word, commands));
}

// The file of the generic -o, and the command that it was given to.
struct TextOutput {
  std::string file;
  const CLI::App* command = nullptr;
};
TextOutput text_output;

void add_text_output(CLI::App& command) {
  const std::vector<std::string> names = option_names(command);
  if (command.get_allow_extras() || std::ranges::count(names, "--output") > 0) return;
  command
      .add_option_function<std::string>(
          "-o,--output", [&command](const std::string& file) { text_output = {.file = file, .command = &command}; },
          "Writes to this file instead of standard output.")
      ->type_name("FILE");
}

// Points standard output elsewhere while it lives.
class Redirected {
 public:
  explicit Redirected(std::ostream& to) : before_(std::cout.rdbuf(to.rdbuf())) {}
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;
  ~Redirected() { std::cout.rdbuf(before_); }

 private:
  std::streambuf* before_;
};

// Both programs and each of their commands take these, so that they may stand before or behind the command.
void add_global_options(CLI::App& app) {
  app.add_option_function<std::string>(
         "--color",
         [](const std::string& when) {
           set_colour(when == "always"  ? ColourWhen::always
                      : when == "never" ? ColourWhen::never
                                        : ColourWhen::automatic);
         },
         "Colours: auto colours a terminal, unless NO_COLOR is set.")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group(global_group);
  app.add_flag_callback(
         "-q,--quiet", [] { set_quiet(true); }, "Prints results and errors alone: no progress, no notes.")
      ->group(global_group);
  const std::vector<CLI::App*> commands = app.get_subcommands([](CLI::App*) { return true; });
  if (commands.empty()) add_text_output(app);
  for (CLI::App* command : commands) add_global_options(*command);
}

void use_own_help(CLI::App& app) {
  app.set_help_flag("-h,--help", "Prints this help.");
  app.formatter_fn([](const CLI::App* command, const std::string& name, CLI::AppFormatMode) {
    const std::size_t own = name.ends_with(" " + command->get_name()) ? command->get_name().size() + 1 : name.size();
    return help_text(command_help(*command, name.substr(0, name.size() - own)));
  });
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) use_own_help(*command);
}

}  // namespace

void complete_program(CLI::App& app) {
  // A test may run several command lines in one process.
  text_output = {};
  set_colour(ColourWhen::automatic);
  set_quiet(false);
  if (app.get_option_no_throw("--color") == nullptr) add_global_options(app);
  use_own_help(app);
  refuse_empty_values(app);
}

std::optional<ExitStatus> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  complete_program(app);
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

ExitStatus run_chosen(const std::function<ExitStatus()>& command) {
  if (text_output.file.empty() || text_output.file == standard_stream) return command();
  std::vector<std::string> inputs;
  for (const CLI::Option* option : text_output.command->get_options()) {
    if (option->get_name() == "--output") continue;
    for (const std::string& word : option->results()) inputs.push_back(word);
  }
  require_writable(text_output.file, inputs);
  set_colour(ColourWhen::never);
  std::ostringstream text;
  ExitStatus status = ExitStatus::done;
  {
    const Redirected redirected(text);
    status = command();
  }
  write_file(text_output.file, text.str());
  return status;
}

void require_one_output(const std::string& output, bool json) {
  if (output != standard_stream || !json) return;
  throw InputError("-o -", "--json also writes to standard output", "name a file with -o, or leave --json out");
}

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& example) {
  CLI::App* command = parent.add_subcommand(name, description);
  std::string lines = example;
  for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; at += 3) lines.replace(at, 1, "\n  ");
  command->footer("Example:\n  " + lines);
  return *command;
}

void add_page_commands(CLI::App& program, std::function<ExitStatus()>& chosen, const std::string& version) {
  const std::string name = program.get_name();
  CLI::App& completion =
      add_command(program, "completion", "Prints the completion script of a shell.",
                  "source <(" + name + " completion bash)\n" + name + " completion zsh > ~/.zsh/completions/_" + name);
  const auto shell = std::make_shared<std::string>();
  completion.add_option("bash|zsh", *shell, "The shell.")->required()->check(CLI::IsMember({"bash", "zsh"}));
  completion.callback([&chosen, shell, name] {
    chosen = [shell, name] {
      std::cout << completion_script(*shell, name);
      return ExitStatus::done;
    };
  });
  CLI::App& man = add_command(program, "man", "Prints the man page.", name + " man | man -l -");
  const auto markdown = std::make_shared<bool>(false);
  man.add_flag("--markdown", *markdown, "Prints the reference page in Markdown instead.");
  man.callback([&chosen, &program, markdown, name, version] {
    chosen = [&program, markdown, name, version] {
      const CommandHelp help = command_help(program);
      std::cout << (*markdown ? command_reference(help) : man_page(help, name + " " + version));
      return ExitStatus::done;
    };
  });
}

}  // namespace plumb
