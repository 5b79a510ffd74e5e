// Lists of ranges of a tensor's elements: written short, cut, and what two of them share.
#pragma once

#include <cstdint>
#include <vector>

#include "common/placement/placement.hpp"

namespace plumb {

// A list of ranges says which elements of a whole tensor something has, in the order in which it has them; none twice.
using IndexRanges = std::vector<IndexRange>;
[[nodiscard]] std::int64_t elements(const IndexRanges& ranges);

// Of what a list has, in its order, the elements from `first` up to but without `end`.
[[nodiscard]] IndexRanges part_of(const IndexRanges& ranges, std::int64_t first, std::int64_t end);

// A stretch that two lists share: where it begins in what each has, counted in its elements.
struct SharedStretch {
  std::int64_t in_first = 0;
  std::int64_t in_second = 0;
  std::int64_t count = 0;
  bool operator==(const SharedStretch&) const = default;
};
// All of them, ascending in the whole; each as long as can be.
[[nodiscard]] std::vector<SharedStretch> shared_stretches(const IndexRanges& first, const IndexRanges& second);

// `count` ranges of `size` elements, whose begins stand `stride` apart: a column of a matrix is one run.
struct IndexRun {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t stride = 0;
  std::int64_t count = 1;
  bool operator==(const IndexRun&) const = default;
};
// The same list, shorter: neighbours that touch become one range, ranges of one size at equal distances a run.
[[nodiscard]] std::vector<IndexRun> runs_of(const IndexRanges& ranges);
[[nodiscard]] IndexRanges ranges_of(const std::vector<IndexRun>& runs);
// Whether all of a run lies within a tensor of so many elements and its ranges do not overlap: of runs that others
// wrote, before `ranges_of` makes them.
[[nodiscard]] bool is_within(const IndexRun& run, std::int64_t elements);

}  // namespace plumb
