#include "common/base/document/toml.hpp"

#include <sstream>

#include "common/base/error.hpp"

namespace plumb {

void require_no_toml(std::string_view text, const std::string& file) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const std::string_view rest = std::string_view(line).substr(begin);
    const std::size_t word = rest.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.",
                                                    rest.front() == '[' ? 1 : 0);
    if (word == std::string_view::npos || word == 0) return;
    const std::string_view behind = rest.substr(word);
    const bool head = rest.front() == '[' && behind.front() == ']' && lines.peek() != EOF;
    const bool value = rest.front() != '[' && (behind.starts_with(" = ") || behind.front() == '=');
    if (!head && !value) return;
    throw InputError(file, "looks like TOML; plumb reads YAML or JSON",
                     "the same as YAML: `[training]` and `sequence = 4096` become `training: {sequence: 4096}`");
  }
}

}  // namespace plumb
