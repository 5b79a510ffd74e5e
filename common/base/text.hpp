// Numbers with their units and aligned tables, as people read them on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/units.hpp"

namespace plumb {

// Three to four significant digits and the fitting unit: "12.35 ms", "1.500 GiB", "3.210 TFLOP", "80.25 B", "12.3%".
[[nodiscard]] std::string to_text(Seconds time);
[[nodiscard]] std::string to_text(Bytes amount);
[[nodiscard]] std::string to_text(Flops work);
[[nodiscard]] std::string count_text(double count);
[[nodiscard]] std::string percent_text(double fraction);
// "+1.2%", "-10.0%", never "-0.0%": t / t_ref − 1, by what part of its reference something is more.
[[nodiscard]] std::string change_text(double fraction);

// Each number as "#": messages that differ in numbers alone become the same. Digits before a letter are a name's, as in
// 2d and 1f1b.
[[nodiscard]] std::string without_numbers(std::string_view text);

// Columns of the terminal that UTF-8 text takes: its code points.
[[nodiscard]] std::size_t text_width(std::string_view text);

// Columns are as wide as their widest cell; the first `left_columns` and, if wanted, the last lean left, the others
// right. A row may be shorter than the header.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  std::size_t left_columns = 1;
  bool left_last = false;
};

// One line per row, each indented by two spaces; with `bold` the header is set in bold by escape codes.
[[nodiscard]] std::string to_text(const Table& table, bool bold = false);

// Entries beside each other, three columns apart, on as many lines of `width` columns as they need; `widths` are the
// columns that each takes.
[[nodiscard]] std::string wrapped(const std::vector<std::string>& entries, const std::vector<std::size_t>& widths,
                                  std::size_t width);

}  // namespace plumb
