// The parts that a schedule cuts sequences into, by their tokens.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {

inline constexpr std::int64_t longest_sequence = std::int64_t{1} << 31;  // tokens: products stay below 2^63

// `tokens` of a sequence behind `before` others; 0: all of it.
struct Slice {
  std::int64_t before = 0;
  std::int64_t tokens = 0;
  friend auto operator<=>(const Slice&, const Slice&) = default;
};

// One after the other, of so many tokens each.
[[nodiscard]] std::vector<Slice> slices_of(const std::vector<std::int64_t>& tokens);
// Equal ones. The sequence is a multiple of `count`.
[[nodiscard]] std::vector<Slice> equal_slices(std::int64_t sequence, int count);
// Those of a schedule; of one that cuts nothing the whole sequence.
[[nodiscard]] std::vector<Slice> slices_of(const Schedule& schedule, std::int64_t sequence);
// The same of so many slices, with the tokens of each where they differ.
[[nodiscard]] std::vector<Slice> slices_of(int count, const std::vector<std::int64_t>& tokens, std::int64_t sequence);

// Of what each slice has, or one for all: what the actions with this number have, which count slices.
template <class T>
[[nodiscard]] const T& of_slice(const std::vector<T>& by_slice, int microbatch) {
  return by_slice[static_cast<std::size_t>(microbatch) % by_slice.size()];
}

[[nodiscard]] std::int64_t longest(const std::vector<Slice>& slices);

// Of bytes that `of` tokens have, those of `tokens`; rounded down where they do not divide evenly.
[[nodiscard]] Bytes bytes_of_tokens(Bytes all, std::int64_t tokens, std::int64_t of);

// As a schedule has them: empty where all are equal.
[[nodiscard]] std::vector<std::int64_t> unequal(std::vector<std::int64_t> tokens);

// Throws InputError (`where`) unless each has a token and all make up the sequence; none are equal ones.
void require_slices(const std::vector<std::int64_t>& tokens, std::int64_t sequence, const std::string& where);

// "1536 + 1024 + 896 + 640".
[[nodiscard]] std::string describe_slices(const std::vector<std::int64_t>& tokens);

}  // namespace plumb
