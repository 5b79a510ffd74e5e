#include "common/placement/index_ranges.hpp"

#include <algorithm>

namespace plumb {
namespace {

// A range with the number of elements that stand before it in its list.
struct Placed {
  IndexRange range;
  std::int64_t before = 0;
};

std::vector<Placed> ascending(const IndexRanges& ranges) {
  std::vector<Placed> placed;
  std::int64_t before = 0;
  for (const IndexRange& range : ranges) {
    if (range.begin < range.end) placed.push_back({range, before});
    before += range.end - range.begin;
  }
  std::ranges::sort(placed, {}, [](const Placed& each) { return each.range.begin; });
  return placed;
}

IndexRanges joined(const IndexRanges& ranges) {
  IndexRanges made;
  for (const IndexRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (!made.empty() && made.back().end == range.begin) {
      made.back().end = range.end;
    } else {
      made.push_back(range);
    }
  }
  return made;
}

}  // namespace

std::int64_t elements(const IndexRanges& ranges) {
  std::int64_t all = 0;
  for (const IndexRange& range : ranges) all += range.end - range.begin;
  return all;
}

IndexRanges part_of(const IndexRanges& ranges, std::int64_t first, std::int64_t end) {
  IndexRanges part;
  std::int64_t before = 0;
  for (const IndexRange& range : ranges) {
    const std::int64_t size = range.end - range.begin;
    const std::int64_t from = std::clamp<std::int64_t>(first - before, 0, size);
    const std::int64_t to = std::clamp<std::int64_t>(end - before, 0, size);
    if (from < to) part.push_back({range.begin + from, range.begin + to});
    before += size;
  }
  return part;
}

std::vector<SharedStretch> shared_stretches(const IndexRanges& first, const IndexRanges& second) {
  const std::vector<Placed> a = ascending(first);
  const std::vector<Placed> b = ascending(second);
  std::vector<SharedStretch> found;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    const std::int64_t begin = std::max(x->range.begin, y->range.begin);
    const std::int64_t end = std::min(x->range.end, y->range.end);
    if (begin < end) {
      const SharedStretch next{x->before + begin - x->range.begin, y->before + begin - y->range.begin, end - begin};
      SharedStretch* const last = found.empty() ? nullptr : &found.back();
      if (last != nullptr && last->in_first + last->count == next.in_first &&
          last->in_second + last->count == next.in_second) {
        last->count += next.count;
      } else {
        found.push_back(next);
      }
    }
    (x->range.end < y->range.end ? x : y)++;
  }
  return found;
}

std::vector<IndexRun> runs_of(const IndexRanges& ranges) {
  std::vector<IndexRun> runs;
  for (const IndexRange& range : joined(ranges)) {
    const std::int64_t size = range.end - range.begin;
    if (!runs.empty() && runs.back().size == size) {
      IndexRun& last = runs.back();
      const std::int64_t stride = range.begin - last.begin - (last.count - 1) * last.stride;
      if (stride > 0 && (last.count == 1 || stride == last.stride)) {
        last.stride = stride;
        ++last.count;
        continue;
      }
    }
    runs.push_back({.begin = range.begin, .size = size, .stride = size, .count = 1});
  }
  return runs;
}

IndexRanges ranges_of(const std::vector<IndexRun>& runs) {
  IndexRanges ranges;
  for (const IndexRun& run : runs) {
    for (std::int64_t number = 0; number < run.count; ++number) {
      const std::int64_t begin = run.begin + number * run.stride;
      ranges.push_back({begin, begin + run.size});
    }
  }
  return ranges;
}

bool is_within(const IndexRun& run, std::int64_t elements) {
  if (run.begin < 0 || run.size < 1 || run.count < 1 || run.stride < run.size) return false;
  if (run.size > elements || run.begin > elements - run.size) return false;
  return run.count - 1 <= (elements - run.size - run.begin) / run.stride;
}

}  // namespace plumb
