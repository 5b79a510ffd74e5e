// Which rows of embedding and head one rank of a pipeline has, where their vocabulary is divided over its ranks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/model/model.hpp"
#include "common/model/parameters.hpp"
#include "common/placement/index_ranges.hpp"

namespace plumb::exec {

// One of so many equal parts, in the order of the pipeline's ranks.
struct VocabularyPart {
  int index = 0;
  int count = 1;
};

// Whether the parts share out this parameter: tables, and the head's bias; all have its rows in their first dimension.
[[nodiscard]] bool has_rows_of_vocabulary(std::string_view name);

// The model with the part's rows alone, of which a tensor group has places in turn.
[[nodiscard]] Model with_rows_of_part(Model model, const VocabularyPart& part);

// Of a parameter the shape of a part, and which elements it has in the order of their memory; of one that the parts do
// not share out, all. RunError for a vocabulary that `count` does not divide.
[[nodiscard]] std::vector<std::int64_t> shape_of_part(const Parameter& whole, const VocabularyPart& part);
[[nodiscard]] IndexRanges elements_of_part(const Parameter& whole, const VocabularyPart& part);
// The same of so many elements that a part holds of a parameter of this name; and which of the whole some of these are,
// such as a rank of a tensor group has.
[[nodiscard]] IndexRanges elements_of_part(std::string_view name, std::int64_t held, const VocabularyPart& part);
[[nodiscard]] IndexRanges elements_within_part(IndexRanges some, std::string_view name, std::int64_t held,
                                               const VocabularyPart& part);

}  // namespace plumb::exec
