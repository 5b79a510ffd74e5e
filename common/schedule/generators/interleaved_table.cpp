#include "common/schedule/generators/interleaved_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.hpp"

namespace plumb {
namespace {

// A rank reads its next group's first chunk while the last p microbatches of this one come round: fewer would not be
// there yet.
bool allowed_group(int p, int m, int group) { return p <= group && group <= m && (m % group == 0 || m % group >= p); }

int default_group(const std::string& name, int p, int m) {
  const int groups = std::max(1, m / p);
  if (m % groups != 0) {
    throw InputError(
        "schedule " + name,
        fmt::format("{} microbatches on {} ranks would go in {} groups, which do not divide them", m, p, groups),
        fmt::format("take {} or {} microbatches, multiples of the ranks", m / p * p, (m / p + 1) * p));
  }
  return m / groups;
}

int asked_group(const std::string& name, int p, int m, int group) {
  if (allowed_group(p, m, group)) return group;
  const std::string where = "schedule " + name;
  if (m < p) {
    throw InputError(where, fmt::format("a group of {}, but {} microbatches on {} ranks go in none", group, m, p),
                     fmt::format("leave the group out, or take at least {} microbatches", p));
  }
  // m itself is always allowed, so there is one on at least one side.
  const auto nearest = [&](int step) {
    int g = std::clamp(group, p - 1, m + 1);
    while (p - 1 <= g && g <= m + 1 && !allowed_group(p, m, g)) g += step;
    return p <= g && g <= m ? fmt::format("{}", g) : std::string{};
  };
  const std::string below = nearest(-1);
  const std::string above = nearest(1);
  throw InputError(where,
                   fmt::format("a group of {} with {} ranks and {} microbatches: it must lie between them, and the "
                               "last group may not be smaller than the ranks",
                               group, p, m),
                   fmt::format("take {}", below.empty() || above.empty() ? below + above : below + " or " + above));
}

}  // namespace

Action InterleavedTable::forward(int r, int k) const {
  const InterleavedEntry& entry = entries[static_cast<std::size_t>(k)];
  return {ActionKind::forward, entry.chunk * ranks + r, entry.microbatch};
}

Action InterleavedTable::gradient(ActionKind kind, int r, int k) const {
  const InterleavedEntry& entry = entries[static_cast<std::size_t>(k)];
  return {kind, (chunks - 1 - entry.chunk) * ranks + r, entry.microbatch};
}

InterleavedTable interleaved_table(const std::string& name, const ScheduleShape& shape) {
  const int m = shape.microbatches;
  InterleavedTable table{.ranks = shape.ranks, .chunks = shape.chunks, .entries = {}};
  table.group = shape.group == 0 ? default_group(name, shape.ranks, m) : asked_group(name, shape.ranks, m, shape.group);
  table.entries.reserve(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape.chunks));
  for (int first = 0; first < m; first += table.group) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int k = first; k < std::min(m, first + table.group); ++k) table.entries.push_back({k, chunk});
    }
  }
  return table;
}

}  // namespace plumb
