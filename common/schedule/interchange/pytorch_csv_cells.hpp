// The cells of a PyTorch CSV, before it is known what they make together.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/schedule/interchange/pytorch_csv.hpp"

namespace plumb {

// One action, or the two of an OVERLAP_F_B, and where the cell begins.
struct CsvCell {
  std::vector<Action> actions;
  Place place;
};

struct CsvCells {
  std::vector<std::vector<CsvCell>> rows;  // without blanks; none is empty
  CsvAlphabet alphabet = CsvAlphabet::today;
  std::string alphabet_because = {};  // proof of an alphabet other than today's
};

// Throws InputError for a cell that cannot be read or belongs to another alphabet than the file's, and for an empty
// row.
[[nodiscard]] CsvCells read_csv_cells(std::string_view text, const std::string& file, std::optional<CsvAlphabet> asked);

}  // namespace plumb
