#include "common/base/document/json_place.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace plumb {
namespace {

constexpr std::string_view spaces = " \t\r\n";

// Walks over text that has been parsed before: only what tells values apart is looked at.
class JsonWalk {
 public:
  explicit JsonWalk(std::string_view text) : text_(text) { skip_spaces(); }

  [[nodiscard]] std::size_t at() const { return at_; }

  // To the value of this key; of two equal ones the last counts, as for the parser. False: where it was.
  bool enter_key(std::string_view wanted) {
    std::optional<std::size_t> found;
    walk_items('{', [&](std::size_t) {
      const std::size_t begin = at_ + 1;
      skip_string();
      const std::string_view key = text_.substr(begin, at_ - begin - 1);
      skip_spaces();
      skip_one();  // the colon
      skip_spaces();
      if (key == wanted) found = at_;
    });
    return go(found);
  }

  bool enter_index(std::size_t wanted) {
    std::optional<std::size_t> found;
    walk_items('[', [&](std::size_t index) {
      if (index == wanted) found = at_;
    });
    return go(found);
  }

 private:
  bool go(std::optional<std::size_t> found) {
    if (found) at_ = *found;
    return found.has_value();
  }

  // Calls `look` with each item's number, in front of it; then stands where it began.
  template <class Look>
  void walk_items(char opening, const Look& look) {
    const std::size_t begin = at_;
    if (!stands_at(opening)) return;
    skip_one();
    skip_spaces();
    for (std::size_t index = 0; at_ < text_.size() && !stands_at('}') && !stands_at(']'); ++index) {
      look(index);
      skip_value();
      skip_spaces();
      if (stands_at(',')) skip_one();
      skip_spaces();
    }
    at_ = begin;
  }

  [[nodiscard]] bool stands_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void skip_one() { at_ = std::min(at_ + 1, text_.size()); }
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(spaces, at_), text_.size()); }

  void skip_string() {
    for (skip_one(); at_ < text_.size() && text_[at_] != '"'; skip_one()) {
      if (text_[at_] == '\\') skip_one();
    }
    skip_one();
  }

  void skip_value() {
    if (!stands_at('{') && !stands_at('[')) {
      if (stands_at('"')) return skip_string();
      at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
      return;
    }
    int depth = 0;
    do {
      if (stands_at('"')) {
        skip_string();
        continue;
      }
      if (stands_at('{') || stands_at('[')) ++depth;
      if (stands_at('}') || stands_at(']')) --depth;
      skip_one();
    } while (depth > 0 && at_ < text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Place place_of_byte(std::string_view text, std::size_t byte, const std::string& file) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0: the first line
  return {
      .file = file, .line = static_cast<int>(lines) + 1, .column = static_cast<int>(before.size() - line_start) + 1};
}

Place place_in_json(std::string_view text, std::string_view path, const std::string& file) {
  JsonWalk walk(text);
  bool found = true;
  while (found && !path.empty()) {
    const bool index = path.front() == '[';
    if (index || path.front() == '.') path.remove_prefix(1);
    const std::size_t end = std::min(path.find_first_of(index ? "]" : ".["), path.size());
    const std::string_view step = path.substr(0, end);
    path.remove_prefix(index ? std::min(end + 1, path.size()) : end);
    std::size_t number = 0;
    if (index) std::from_chars(step.data(), step.data() + step.size(), number);
    found = index ? walk.enter_index(number) : walk.enter_key(step);
  }
  return place_of_byte(text, walk.at(), file);
}

std::optional<OverflowingNumber> overflowing_number(std::string_view text) {
  std::string key;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      const std::size_t begin = at + 1;
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
      const std::size_t behind = text.find_first_not_of(spaces, at + 1);
      const bool is_key = behind != std::string_view::npos && text[behind] == ':';
      if (is_key) key = text.substr(begin, at - begin);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      const std::size_t end = std::min(text.find_first_of(",]} \t\r\n", at), text.size());
      std::string number(text.substr(at, end - at));
      if (std::isinf(std::strtod(number.c_str(), nullptr))) return OverflowingNumber{at, std::move(number), key};
      at = end - 1;
    }
  }
  return std::nullopt;
}

}  // namespace plumb
