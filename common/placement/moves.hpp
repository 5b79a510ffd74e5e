// The collectives that turn one placement of a tensor into another, with what each rank sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/placement/collective.hpp"
#include "common/placement/placement.hpp"

namespace plumb {

// One of the ways from a placement to the next. Both say the rest: which dimension is gathered, scattered, or both.
struct Move {
  std::optional<Collective> collective;  // none: each rank takes its part of what it has (or fills up with zeros)
  Axes over = {};                        // the group
  Placement from;
  Placement to;
  std::int64_t elements_from = 0;  // as one rank holds them before …
  std::int64_t elements_to = 0;    // … and behind
  bool operator==(const Move&) const = default;
};

// In this order: what is partial and wanted split is scattered while it is added, what changes dimensions is exchanged,
// what is partial and wanted whole is added, what is split and wanted whole is gathered; so sums go over the smallest
// parts (HSDP: shards are added over the copies). Empty if nothing needs to move. Axes of one rank do not count.
// Throws InputError (where = the tensor's name) where a part is not whole, and for partial sums of copies.
[[nodiscard]] std::vector<Move> moves(const Mesh& mesh, const NamedShape& whole, const Placement& from,
                                      const Placement& to);

// Elements that a rank receives by a ring of its group, or direct exchange (facts: all-gather and reduce-scatter
// (P−1)/P of the whole, all-reduce twice that, all-to-all (P−1)/P of what a rank holds).
[[nodiscard]] double received_elements(const Mesh& mesh, const Move& move);
[[nodiscard]] double received_elements(const Mesh& mesh, const std::vector<Move>& all);

}  // namespace plumb
