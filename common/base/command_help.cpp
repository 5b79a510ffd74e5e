#include "common/base/command_help.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "common/base/text.hpp"

namespace plumb {
namespace {

OptionHelp help_of(const CLI::Option& option) {
  OptionHelp help{.value = value_of(option),
                  .description = option.get_description(),
                  .default_text = option.get_default_str(),
                  .required = option.get_required(),
                  .repeated = option.get_expected_max() > 1};
  if (!option.nonpositional()) {
    help.names = option.get_name();
    help.value.clear();
    return help;
  }
  for (const std::string& name : option.get_snames()) help.names += (help.names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) help.names += (help.names.empty() ? "--" : ", --") + name;
  return help;
}

// The footer has "Example:" with indented lines, then notes.
void read_footer(const std::string& footer, CommandHelp& help) {
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) {
      help.examples.push_back(line.substr(2));
    } else if (!line.starts_with("Example") && !line.empty()) {
      help.notes.push_back(line);
    }
  }
}

// Breaks `text` between words into lines of at most `width` columns; a longer word has a line of its own.
std::vector<std::string> broken(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && text_width(lines.back()) + 1 + text_width(word) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string usage(const CommandHelp& help) {
  std::string text = help.words;
  if (!help.options.empty() || !help.global_options.empty()) text += " [OPTIONS]";
  for (const OptionHelp& argument : help.arguments) {
    const std::string name = argument.names + (argument.repeated ? "..." : "");
    text += argument.required ? " " + name : " [" + name + "]";
  }
  return help.commands.empty() ? text : text + " COMMAND";
}

std::string heading_of(const OptionHelp& option) {
  return option.names + (option.value.empty() ? "" : " " + option.value) +
         (option.repeated && !option.value.empty() ? "..." : "");
}

std::string described(const OptionHelp& option) {
  std::string text = option.description;
  const bool ended =
      text.empty() || text.ends_with("…") || std::string_view(".?!:").find(text.back()) != std::string_view::npos;
  if (!ended) text += ".";
  if (!option.default_text.empty()) text += " Default: " + option.default_text + ".";
  return text;
}

constexpr std::size_t widest_heading = 26;

std::string entry(const std::string& heading, const std::string& description, std::size_t left, std::size_t columns) {
  std::string text = "  " + heading;
  const std::size_t taken = text_width(text);
  const std::size_t column = left + 4;
  if (taken + 2 > column) {
    text += "\n" + std::string(column, ' ');
  } else {
    text += std::string(column - taken, ' ');
  }
  bool first = true;
  for (const std::string& line : broken(description, columns > column + 20 ? columns - column : 20)) {
    text += (first ? "" : "\n" + std::string(column, ' ')) + line;
    first = false;
  }
  return text + "\n";
}

std::string entries(const std::string& title, const std::vector<OptionHelp>& options, std::size_t columns) {
  if (options.empty()) return "";
  std::size_t left = 0;
  for (const OptionHelp& option : options) {
    const std::size_t width = text_width(heading_of(option));
    if (width <= widest_heading) left = std::max(left, width);
  }
  std::string text = "\n" + title + ":\n";
  for (const OptionHelp& option : options) text += entry(heading_of(option), described(option), left, columns);
  return text;
}

void add_markdown(std::string& text, const std::string& title, const std::vector<OptionHelp>& options) {
  if (options.empty()) return;
  text += title.empty() ? "\n" : "\n" + title + ":\n\n";
  for (const OptionHelp& option : options) text += "- `" + heading_of(option) + "`: " + described(option) + "\n";
}

std::string section(const CommandHelp& help, int level) {
  std::string text = std::string(static_cast<std::size_t>(level), '#') + " " + help.words + "\n\n" + help.description +
                     "\n\n```\n" + usage(help) + "\n```\n";
  add_markdown(text, "", help.arguments);
  add_markdown(text, help.arguments.empty() ? "" : "Options", help.options);
  if (!help.examples.empty()) {
    text += help.examples.size() == 1 ? "\nExample:\n\n```\n" : "\nExamples:\n\n```\n";
    for (const std::string& line : help.examples) text += line + "\n";
    text += "```\n";
  }
  for (const std::string& line : help.notes) text += "\n" + line + "\n";
  for (const CommandHelp& command : help.commands) text += "\n" + section(command, level + 1);
  return text;
}

// A leading dot or quote is a request of roff, a backslash an escape; a hyphen may be copied as a minus.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\') {
      escaped += "\\e";
    } else if (letter == '-') {
      escaped += "\\-";
    } else {
      escaped += letter;
    }
  }
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

void add_roff(std::string& text, const std::vector<OptionHelp>& options) {
  for (const OptionHelp& option : options) {
    text += ".TP\n\\fB" + roff(option.names) + "\\fR" + (option.value.empty() ? "" : " " + roff(option.value)) + "\n" +
            roff(described(option)) + "\n";
  }
}

void add_roff(std::string& text, const CommandHelp& help) {
  text +=
      ".SS \"" + roff(help.words) + "\"\n" + roff(help.description) + "\n.PP\n.nf\n" + roff(usage(help)) + "\n.fi\n";
  add_roff(text, help.arguments);
  add_roff(text, help.options);
  if (!help.examples.empty()) {
    text += ".PP\nExample:\n.PP\n.nf\n.RS\n";
    for (const std::string& line : help.examples) text += roff(line) + "\n";
    text += ".RE\n.fi\n";
  }
  for (const CommandHelp& command : help.commands) add_roff(text, command);
}

}  // namespace

std::string value_of(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  if (option.get_items_expected_min() == 0) return "";
  std::string type = option.get_type_name();
  type = type.substr(0, type.find(':'));  // validators stand behind
  if (type == "INT" || type == "UINT") return "N";
  if (type == "FLOAT") return "NUMBER";
  // CLI11's form of a choice: TEXT:{a,b}.
  const std::string whole = option.get_type_name();
  const std::size_t open = whole.find('{');
  if (open == std::string::npos || whole.back() != '}') return type;
  std::string words = whole.substr(open + 1, whole.size() - open - 2);
  std::ranges::replace(words, ',', '|');
  return words;
}

CommandHelp command_help(const CLI::App& app, const std::string& parent) {
  CommandHelp help{.words = parent + (parent.empty() ? "" : " ") + app.get_name(),
                   .description = app.get_description()};
  read_footer(app.get_footer(), help);
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    std::vector<OptionHelp>& list = !option->nonpositional()              ? help.arguments
                                    : option->get_group() == global_group ? help.global_options
                                                                          : help.options;
    list.push_back(help_of(*option));
  }
  // Help comes last, behind what somebody looks for in it.
  std::stable_partition(help.options.begin(), help.options.end(), [](const OptionHelp& one) {
    return one.names.find("--help") == std::string::npos && one.names.find("--version") == std::string::npos;
  });
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) help.commands.push_back(command_help(*command, help.words));
  }
  return help;
}

std::string help_text(const CommandHelp& help, std::size_t columns) {
  std::string text;
  for (const std::string& line : broken(help.description, columns)) text += line + "\n";
  text += "\nUsage: " + usage(help) + "\n";
  if (!help.commands.empty()) {
    std::size_t left = 0;
    std::vector<std::string> names;
    for (const CommandHelp& command : help.commands) {
      names.push_back(command.words.substr(help.words.size() + 1));
      left = std::max(left, text_width(names.back()));
    }
    text += "\nCommands:\n";
    for (std::size_t i = 0; i < names.size(); ++i) text += entry(names[i], help.commands[i].description, left, columns);
  }
  text += entries("Arguments", help.arguments, columns) + entries("Options", help.options, columns) +
          entries(global_group, help.global_options, columns);
  if (!help.examples.empty()) text += help.examples.size() == 1 ? "\nExample:\n" : "\nExamples:\n";
  for (const std::string& line : help.examples) text += "  " + line + "\n";
  for (const std::string& line : help.notes) text += "\n" + line + "\n";
  return text;
}

std::string command_reference(const CommandHelp& help) {
  std::string text = "# Commands of " + help.words + "\n\n`" + help.words +
                     " man --markdown` makes this page from the program's help.\n\n" + help.description + "\n";
  add_markdown(text, "Options", help.options);
  add_markdown(text, "Options of every command", help.global_options);
  for (const std::string& note : help.notes) text += "\n" + note + "\n";
  for (const CommandHelp& command : help.commands) text += "\n" + section(command, 2);
  return text;
}

std::string man_page(const CommandHelp& help, const std::string& version) {
  std::string title = help.words;
  std::ranges::transform(title, title.begin(), [](char letter) {
    return letter >= 'a' && letter <= 'z' ? char(letter - 'a' + 'A') : letter;
  });
  std::string text = R"(.TH ")" + title + R"(" 1 "" ")" + version + "\"\n.SH NAME\n" + roff(help.words) + " \\- " +
                     roff(help.description) + "\n.SH SYNOPSIS\n" + roff(usage(help)) + "\n.SH OPTIONS\n";
  add_roff(text, help.options);
  add_roff(text, help.global_options);
  text += ".SH COMMANDS\n";
  for (const CommandHelp& command : help.commands) add_roff(text, command);
  return text +
         ".SH EXIT STATUS\n"
         "0 done; 1 the answer is no; 2 the input or the usage is wrong; 3 the run failed.\n";
}

}  // namespace plumb
