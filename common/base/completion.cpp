#include "common/base/completion.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "common/base/command_help.hpp"
#include "common/base/error.hpp"

namespace plumb {
namespace {

const CLI::Option* option_named(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() && option->check_name(word)) return option;
  }
  return nullptr;
}

const CLI::App* command_named(const CLI::App& app, const std::string& word) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return command;
  }
  return nullptr;
}

const CLI::Option* argument_at(const CLI::App& app, std::size_t position) {
  const CLI::Option* last = nullptr;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) continue;
    last = option;
    if (position == 0 || option->get_expected_max() > 1) return option;
    --position;
  }
  return last != nullptr && last->get_expected_max() > 1 ? last : nullptr;
}

// Position of the cursor in the words.
struct Cursor {
  const CLI::App* app;
  const CLI::Option* option = nullptr;  // the option that takes the next word
  std::size_t arguments = 0;            // before it
};

Cursor cursor_behind(const CLI::App& app, const std::vector<std::string>& words) {
  Cursor cursor{.app = &app};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "=") continue;  // bash splits --color=auto
    if (cursor.option != nullptr) {
      cursor.option = nullptr;
    } else if (word.starts_with("-") && word.size() > 1) {
      const CLI::Option* option = option_named(*cursor.app, word);
      if (option != nullptr && option->get_items_expected_min() > 0) cursor.option = option;
    } else if (const CLI::App* command = command_named(*cursor.app, word)) {
      cursor.app = command;
      cursor.arguments = 0;
    } else if (word != "help") {
      ++cursor.arguments;
    }
  }
  return cursor;
}

void add_values(Completions& found, const std::string& value, const NamesOfValue& names) {
  std::istringstream kinds(value);
  for (std::string kind; std::getline(kinds, kind, '|');) {
    if (const auto known = names.find(kind); known != names.end()) {
      for (CompletedWord& word : known->second()) found.words.push_back(std::move(word));
    }
    constexpr std::array<std::string_view, 6> no_files = {"N", "NUMBER", "TEXT", "NAME", "TIMES", "PLANNER"};
    if (std::ranges::any_of(kind, [](char letter) { return letter >= 'a' && letter <= 'z'; })) {
      found.words.push_back({kind, ""});
    } else if (std::ranges::count(no_files, kind) == 0) {
      found.files = true;
    }
  }
}

void add_options(Completions& found, const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional() || option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames())
      found.words.push_back({"--" + name, option->get_description()});
    for (const std::string& name : option->get_snames()) found.words.push_back({"-" + name, option->get_description()});
  }
}

void keep_prefixed(Completions& found, const std::string& prefix) {
  std::erase_if(found.words, [&](const CompletedWord& one) { return !one.word.starts_with(prefix); });
}

constexpr const char* bash_script =
    R"(# Completion of PROGRAM for bash; source it, or install it as PROGRAM in bash-completion's folder.
_PROGRAM_complete() {
  local word=${COMP_WORDS[COMP_CWORD]} line
  [[ $word == "=" ]] && word=
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == ":files" ]]; then
      compopt -o filenames 2>/dev/null
      while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word")
    else
      COMPREPLY+=("${line%%$'\t'*}")
    fi
  done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _PROGRAM_complete PROGRAM
)";

constexpr const char* zsh_script = R"(#compdef PROGRAM
# Completion of PROGRAM for zsh; install it as _PROGRAM in a folder of $fpath.
_PROGRAM_complete() {
  local line
  local -a described
  local files=0
  while IFS= read -r line; do
    if [[ $line == ":files" ]]; then
      files=1
    else
      described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    fi
  done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#described} )) && _describe 'PROGRAM' described
  (( files )) && _files
}
if [[ ${funcstack[1]} == _PROGRAM ]]; then _PROGRAM_complete "$@"; else compdef _PROGRAM_complete PROGRAM; fi
)";

}  // namespace

Completions completions(const CLI::App& app, const std::vector<std::string>& words, const NamesOfValue& names) {
  Completions found;
  if (words.empty()) return found;
  const Cursor cursor = cursor_behind(app, words);
  const std::string last = words.back() == "=" ? "" : words.back();
  if (cursor.option != nullptr) {
    add_values(found, value_of(*cursor.option), names);
    keep_prefixed(found, last);
    return found;
  }
  if (const std::size_t equals = last.find('='); last.starts_with("--") && equals != std::string::npos) {
    const CLI::Option* option = option_named(*cursor.app, last.substr(0, equals));
    if (option == nullptr) return found;
    add_values(found, value_of(*option), names);
    for (CompletedWord& one : found.words) one.word.insert(0, last.substr(0, equals + 1));
    keep_prefixed(found, last);
    return found;
  }
  if (last.starts_with("-")) {
    add_options(found, *cursor.app);
    keep_prefixed(found, last);
    return found;
  }
  if (cursor.arguments == 0) {
    for (const CLI::App* command : cursor.app->get_subcommands([](const CLI::App*) { return true; })) {
      if (!command->get_group().empty()) found.words.push_back({command->get_name(), command->get_description()});
    }
  }
  if (const CLI::Option* argument = argument_at(*cursor.app, cursor.arguments)) {
    add_values(found, argument->get_name(), names);
  }
  keep_prefixed(found, last);
  return found;
}

std::string to_text(const Completions& found) {
  std::string text = found.files ? ":files\n" : "";
  for (const CompletedWord& one : found.words) {
    std::string line = one.description.substr(0, one.description.find('\n'));
    text += one.word + "\t" + line + "\n";
  }
  return text;
}

std::string completion_script(const std::string& shell, const std::string& program) {
  if (shell != "bash" && shell != "zsh") throw InputError("completion", "expected bash or zsh, found '" + shell + "'");
  std::string text = shell == "bash" ? bash_script : zsh_script;
  constexpr std::string_view name = "PROGRAM";
  const auto as_word = [&](std::size_t at) {  // functions have no hyphen
    std::string word = program;
    if (at > 0 && text[at - 1] == '_') std::ranges::replace(word, '-', '_');
    return word;
  };
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
    const std::string word = as_word(at);
    text.replace(at, name.size(), word);
    at += word.size();
  }
  return text;
}

}  // namespace plumb
