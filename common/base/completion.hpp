// Completion of a command line: candidates for the word under the cursor, and the scripts of bash and zsh that ask for
// them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace plumb {

struct CompletedWord {
  std::string word = {};
  std::string description = {};
};

struct Completions {
  std::vector<CompletedWord> words = {};  // in the order of the help
  bool files = false;                     // the shell adds files
};

// Names for a kind of value as help prints it: "MACHINE", "NAME".
using NamesOfValue = std::map<std::string, std::function<std::vector<CompletedWord>()>>;

// Returns the candidates for the last of `words`, without the program's name. A value "A|B" takes the names of both;
// capital letters without names are files, small letters are the words themselves.
[[nodiscard]] Completions completions(const CLI::App& app, const std::vector<std::string>& words,
                                      const NamesOfValue& names);

// A line for each candidate, "word<TAB>description"; ":files" comes first where the shell adds files.
[[nodiscard]] std::string to_text(const Completions& found);

// First word of the hidden call that the scripts make.
inline constexpr const char* completion_command = "__complete";

// Throws InputError for another shell than bash and zsh.
[[nodiscard]] std::string completion_script(const std::string& shell, const std::string& program);

}  // namespace plumb
