#include "common/schedule/action.hpp"

#include <array>
#include <charconv>

#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"

namespace plumb {
namespace {

// Indexed by ActionKind.
constexpr std::array<std::string_view, 20> all_letters = {
    "F",    "B",     "I",      "W",      "R",           "SEND_F",      "RECV_F",  "SEND_B",  "RECV_B", "EVICT",
    "LOAD", "BCAST", "ALLRED", "REDUCE", "REDUCE_TIED", "REDUCE_GRAD", "UNSHARD", "RESHARD", "CLIP",   "STEP"};

void append_number(std::string& text, std::int32_t number) {
  std::array<char, 12> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

[[noreturn]] void refuse(std::string_view text, const std::string& problem) {
  throw InputError("action", "'" + excerpt(text) + "': " + problem,
                   "an action is a stage, letters and a microbatch, such as 0F3, 2W0, 1SEND_F3 or 0STEP");
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The number at the front of `rest`, which it is cut from.
std::int32_t take_number(std::string_view& rest, std::string_view text, const char* what) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error == std::errc::result_out_of_range) refuse(text, std::string("the ") + what + " is too large");
  if (error != std::errc{} || !is_digit(rest.front())) refuse(text, std::string("expected a ") + what);
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return number;
}

ActionKind kind_of(std::string_view name, std::string_view text) {
  for (std::size_t i = 0; i < all_letters.size(); ++i) {
    if (all_letters[i] == name) return static_cast<ActionKind>(i);
  }
  std::string known;
  for (const std::string_view letters : all_letters) known += (known.empty() ? "" : ", ") + std::string(letters);
  refuse(text, name.empty() ? "expected letters after the stage" : "expected one of " + known);
}

}  // namespace

std::string_view letters(ActionKind kind) { return all_letters[static_cast<std::size_t>(kind)]; }

void append_text(std::string& text, const Action& action) {
  append_number(text, action.stage);
  text += letters(action.kind);
  if (action.microbatch != no_microbatch) append_number(text, action.microbatch);
}

std::string to_string(const Action& action) {
  std::string text;
  append_text(text, action);
  return text;
}

Action parse_action(std::string_view text) {
  std::string_view rest = text;
  Action action;
  if (rest.empty()) refuse(text, "expected an action");
  action.stage = take_number(rest, text, "stage");
  std::size_t length = 0;
  while (length < rest.size() && !is_digit(rest[length])) ++length;
  action.kind = kind_of(rest.substr(0, length), text);
  rest.remove_prefix(length);
  if (has_microbatch(action.kind)) {
    if (rest.empty()) refuse(text, "expected a microbatch after " + std::string(letters(action.kind)));
    action.microbatch = take_number(rest, text, "microbatch");
  } else if (action.kind == ActionKind::optimizer_step && !rest.empty()) {
    action.microbatch = take_number(rest, text, "number of the update");
  }
  if (!rest.empty()) refuse(text, "nothing may follow, but there is '" + excerpt(rest) + "'");
  return action;
}

}  // namespace plumb
