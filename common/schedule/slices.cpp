#include "common/schedule/slices.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "common/base/error.hpp"

namespace plumb {

std::vector<Slice> slices_of(const std::vector<std::int64_t>& tokens) {
  std::vector<Slice> slices;
  std::int64_t before = 0;
  for (const std::int64_t own : tokens) {
    slices.push_back({.before = before, .tokens = own});
    before += own;
  }
  return slices;
}

std::vector<Slice> equal_slices(std::int64_t sequence, int count) {
  return slices_of(std::vector<std::int64_t>(static_cast<std::size_t>(count), sequence / count));
}

std::vector<Slice> slices_of(const Schedule& schedule, std::int64_t sequence) {
  return slices_of(schedule.slices, schedule.slice_tokens, sequence);
}

std::vector<Slice> slices_of(int count, const std::vector<std::int64_t>& tokens, std::int64_t sequence) {
  return tokens.empty() ? equal_slices(sequence, count) : slices_of(tokens);
}

std::int64_t longest(const std::vector<Slice>& slices) { return std::ranges::max(slices, {}, &Slice::tokens).tokens; }

// In two steps, for the product may not fit 63 bits.
Bytes bytes_of_tokens(Bytes all, std::int64_t tokens, std::int64_t of) {
  return {all.value / of * tokens + all.value % of * tokens / of};
}

std::vector<std::int64_t> unequal(std::vector<std::int64_t> tokens) {
  const bool differ = std::ranges::adjacent_find(tokens, std::not_equal_to<>()) != tokens.end();
  return differ ? std::move(tokens) : std::vector<std::int64_t>{};
}

void require_slices(const std::vector<std::int64_t>& tokens, std::int64_t sequence, const std::string& where) {
  if (tokens.empty()) return;
  if (std::ranges::min(tokens) < 1) {
    throw InputError(where, "slices of " + describe_slices(tokens) + " tokens: each must have at least 1");
  }
  const auto sum = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  if (sum == sequence) return;
  std::vector<std::int64_t> right = tokens;
  right.back() += sequence - sum;
  throw InputError(where,
                   "slices of " + describe_slices(tokens) + " = " + std::to_string(sum) +
                       " tokens do not make up a sequence of " + std::to_string(sequence),
                   right.back() > 0 ? "the last one of " + std::to_string(right.back()) + " tokens would"
                                    : "slices: " + std::to_string(tokens.size()) + ", slices_by: work");
}

std::string describe_slices(const std::vector<std::int64_t>& tokens) {
  std::string text;
  for (const std::int64_t own : tokens) text += (text.empty() ? "" : " + ") + std::to_string(own);
  return text;
}

}  // namespace plumb
