#include "common/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace plumb {
namespace {

struct Scale {
  double factor;
  const char* unit;
};

// Four significant digits in the largest unit that leaves at least 1; the last scale takes what is smaller.
template <std::size_t count>
std::string scaled(double value, const std::array<Scale, count>& scales) {
  const Scale* scale = &scales.back();
  for (const Scale& candidate : scales) {
    if (std::abs(value) >= candidate.factor * 0.9999) {
      scale = &candidate;
      break;
    }
  }
  const double number = value / scale->factor;
  if (!std::isfinite(number)) return fmt::format("{}{}", number, scale->unit);
  const double magnitude = std::abs(number);
  const int decimals = magnitude == 0       ? 0
                       : magnitude < 9.9995 ? 3
                       : magnitude < 99.995 ? 2
                       : magnitude < 999.95 ? 1
                                            : 0;
  return fmt::format("{:.{}f}{}", number, decimals, scale->unit);
}

}  // namespace

std::string to_text(Seconds time) {
  constexpr std::array<Scale, 4> scales{{{1.0, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}}};
  return time.value == 0 ? "0 s" : scaled(time.value, scales);
}

std::string to_text(Bytes amount) {
  constexpr double kibi = 1024;
  constexpr std::array<Scale, 4> scales{
      {{kibi * kibi * kibi * kibi, " TiB"}, {kibi * kibi * kibi, " GiB"}, {kibi * kibi, " MiB"}, {kibi, " KiB"}}};
  const auto value = static_cast<double>(amount.value);
  return std::abs(value) < kibi ? fmt::format("{} B", amount.value) : scaled(value, scales);
}

std::string to_text(Flops work) {
  constexpr std::array<Scale, 5> scales{
      {{1e18, " EFLOP"}, {1e15, " PFLOP"}, {1e12, " TFLOP"}, {1e9, " GFLOP"}, {1e6, " MFLOP"}}};
  return work.value == 0 ? "0" : scaled(work.value, scales);
}

std::string count_text(double count) {
  constexpr std::array<Scale, 4> scales{{{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}}};
  if (std::abs(count) >= 1e3) return scaled(count, scales);
  return count == std::round(count) ? fmt::format("{:.0f}", count) : fmt::format("{:.1f}", count);
}

std::string percent_text(double fraction) { return fmt::format("{:.1f}%", fraction * 100); }

std::string change_text(double fraction) {
  const double percent = std::round(fraction * 1000) / 10;
  return fmt::format("{:+.1f}%", percent == 0 ? 0 : percent);
}

std::string without_numbers(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    const bool number = end > at && (end == text.size() || !is_letter(text[end]));
    end = std::max(end, at + 1);
    result += number ? "#" : text.substr(at, end - at);
    at = end;
  }
  return result;
}

std::size_t text_width(std::string_view text) {
  const auto starts_code_point = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

std::string to_text(const Table& table, bool bold) {
  std::vector<std::size_t> widths;
  for (const std::string& title : table.header) widths.push_back(text_width(title));
  for (const auto& row : table.rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - text_width(cells[i]), ' ');
      const bool left = i < table.left_columns || (table.left_last && i + 1 == widths.size());
      text += (left ? "  " + cells[i] + padding : "  " + padding + cells[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::string text = bold ? "\033[1m" + line(table.header) + "\033[0m\n" : line(table.header) + "\n";
  for (const auto& row : table.rows) text += line(row) + "\n";
  return text;
}

std::string wrapped(const std::vector<std::string>& entries, const std::vector<std::size_t>& widths,
                    std::size_t width) {
  std::string text;
  std::size_t column = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool fits = column + 3 + widths[i] <= width;
    if (column > 0) text += fits ? "   " : "\n";
    column = (column > 0 && fits ? column + 3 : 0) + widths[i];
    text += entries[i];
  }
  return text + "\n";
}

}  // namespace plumb
