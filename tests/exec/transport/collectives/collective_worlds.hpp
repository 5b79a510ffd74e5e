// What tests of the collectives share: transports of every kind and size, groups, values, and ranks as threads.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "exec/launch/launch.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec::test {

struct WorldKind {
  TransportKind kind;
  int ranks = 1;
};

// Every kind with 1 to 4 ranks; threads of one process also with 8 and 16.
inline std::vector<WorldKind> world_kinds() {
  std::vector<WorldKind> worlds;
  for (const TransportKind& kind : transport_kinds()) {
    for (const int ranks : {1, 2, 3, 4, 8, 16}) {
      if (ranks <= 4 || kind.name == "local") worlds.push_back({.kind = kind, .ranks = ranks});
    }
  }
  return worlds;
}

// A test case runs once in each.
inline WorldKind each_world() { return world_kinds()[GENERATE(range(std::size_t{0}, world_kinds().size()))]; }

// None, one, fewer than ranks, primes, multiples of all.
inline const std::vector<std::size_t>& element_counts() {
  static const std::vector<std::size_t> counts{0, 1, 2, 3, 7, 13, 48, 1009, 4800};
  return counts;
}

inline std::vector<int> all_ranks(int ranks) {
  std::vector<int> group(static_cast<std::size_t>(ranks));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

// body(collectives, rank) of every rank on a thread of its own; Catch's assertions are not for several threads.
template <class Body>
void on_ranks(const std::vector<std::unique_ptr<Transport>>& transports, const Body& body) {
  run_on_threads(transports, [&](Transport& transport) {
    Collectives collectives(transport);
    body(collectives, static_cast<std::size_t>(transport.rank()));
  });
}

// By rank: from 2⁻²⁰ to 2²⁰ in size, so that the order in which they are added shows.
template <class Element>
std::vector<std::vector<Element>> random_values(int ranks, std::size_t count, unsigned seed) {
  constexpr int mantissa_bits = 52;
  std::mt19937_64 random(seed);
  std::vector<std::vector<Element>> values(static_cast<std::size_t>(ranks), std::vector<Element>(count));
  for (auto& of_rank : values) {
    for (Element& value : of_rank) {
      // One draw for each of millions: its last bits are the mantissa, those before it exponent and sign.
      const std::uint64_t bits = random();
      const auto mantissa = static_cast<double>(bits & ((std::uint64_t{1} << mantissa_bits) - 1));
      const int exponent = static_cast<int>(bits >> mantissa_bits & 0x3ff) % 40 - 20;
      const double size = std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent);
      value = static_cast<Element>(bits >> 63 != 0 ? -size : size);
    }
  }
  return values;
}

// Neighbours are added, then the neighbours of these sums, until there is one; an odd one out goes on as it is.
template <class Element>
std::vector<Element> pairwise_sum(std::vector<std::vector<Element>> values) {
  while (values.size() > 1) {
    std::vector<std::vector<Element>> sums;
    for (std::size_t first = 0; first < values.size(); first += 2) {
      sums.push_back(values[first]);
      if (first + 1 == values.size()) continue;
      for (std::size_t i = 0; i < sums.back().size(); ++i) sums.back()[i] += values[first + 1][i];
    }
    values = std::move(sums);
  }
  return values.front();
}

// Whole numbers: their products and sums are exact.
inline std::vector<std::vector<double>> whole_numbers(int ranks, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> uniform(-1000, 1000);
  std::vector<std::vector<double>> values(static_cast<std::size_t>(ranks), std::vector<double>(count));
  for (auto& of_rank : values) {
    for (double& value : of_rank) value = uniform(random);
  }
  return values;
}

template <class Element>
std::span<std::byte> bytes(std::vector<Element>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <class Element>
std::span<const std::byte> const_bytes(const std::vector<Element>& values) {
  return std::as_bytes(std::span(values));
}

// `values` cut behind each other into parts of so many elements.
template <class Byte>
std::vector<std::span<Byte>> cut(std::span<Byte> values, const std::vector<std::size_t>& elements, std::size_t width) {
  std::vector<std::span<Byte>> parts;
  std::size_t at = 0;
  for (const std::size_t count : elements) {
    parts.push_back(values.subspan(at, count * width));
    at += count * width;
  }
  return parts;
}

inline std::vector<float> floats_of(const Payload& payload) {
  const auto* const first = reinterpret_cast<const float*>(payload.data);
  return {first, first + payload.size / sizeof(float)};
}

}  // namespace plumb::exec::test
