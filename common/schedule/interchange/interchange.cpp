#include "common/schedule/interchange/interchange.hpp"

#include "common/base/error.hpp"

namespace plumb {

std::string to_text(const std::vector<Action>& actions) {
  std::string text;
  text.reserve(actions.size() * 6);
  for (const Action& action : actions) {
    if (!text.empty()) text += ' ';
    append_text(text, action);
  }
  return text;
}

std::vector<Action> parse_actions(std::string_view text) {
  constexpr std::string_view separators = " \t\r\n";
  std::vector<Action> actions;
  for (std::size_t start = text.find_first_not_of(separators); start != std::string_view::npos;) {
    const std::size_t end = text.find_first_of(separators, start);
    try {
      actions.push_back(parse_action(text.substr(start, end - start)));
    } catch (const InputError& error) {
      throw InputError("action " + std::to_string(actions.size() + 1), error.problem(), error.hint());
    }
    start = end == std::string_view::npos ? end : text.find_first_not_of(separators, end);
  }
  return actions;
}

}  // namespace plumb
