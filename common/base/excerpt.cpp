#include "common/base/excerpt.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace plumb {
namespace {

// 0: a byte that is no character, or a control character.
std::size_t bytes_of_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const std::size_t length = first >= 0xC2 && first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (first < 0xC2 || length == 0) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // Overlong forms, halves of UTF-16 pairs, what is beyond Unicode; and its own control characters.
  const unsigned second = byte(1);
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return wrong || (first == 0xC2 && second < 0xA0) ? 0 : length;
}

// Up to `most` characters; an escaped byte counts as one.
std::string escaped(std::string_view text, std::size_t most, bool lines) {
  std::string result;
  for (std::size_t count = 0; !text.empty(); ++count) {
    if (count == most) return result + "…";
    const std::size_t length = bytes_of_character(text);
    if (length > 0 || (lines && text.front() == '\n')) {
      result += text.substr(0, std::max<std::size_t>(1, length));
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    }
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, std::string_view::npos, true); }

std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 40;
  return escaped(text, longest, false);
}

}  // namespace plumb
