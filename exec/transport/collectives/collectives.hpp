// Collectives between hosts, of any group of ranks, made of a transport's messages: the same code, bits and counts on
// every transport.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "common/base/units.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Memory by position in the group. What ranks have may stand anywhere, and may have any sizes, also none.
using Parts = std::span<const std::span<std::byte>>;
using ConstParts = std::span<const std::span<const std::byte>>;

// Elements of one of so many parts as near to equal as can be: the first ones have one more.
[[nodiscard]] constexpr std::size_t elements_of_part(std::size_t elements, std::size_t parts, std::size_t part) {
  return elements / parts + (part < elements % parts ? 1 : 0);
}

// Of all elements before it.
[[nodiscard]] constexpr std::size_t begin_of_part(std::size_t elements, std::size_t parts, std::size_t part) {
  return elements / parts * part + std::min(part, elements % parts);
}

// `values` cut into parts of so many elements, of `width` bytes each. `Byte`: std::byte or const std::byte.
template <class Byte>
[[nodiscard]] std::vector<std::span<Byte>> equal_parts(std::span<Byte> values, std::size_t parts, std::size_t width) {
  const std::size_t elements = values.size() / width;
  std::vector<std::span<Byte>> cut;
  for (std::size_t part = 0, at = 0; part < parts; at += cut[part++].size()) {
    cut.push_back(values.subspan(at, width * elements_of_part(elements, parts, part)));
  }
  return cut;
}

// Of one rank, on its thread. `group`: ascending ranks of the run, this one among them; all of them make the same calls
// for it, and a rank of several groups makes its calls in an order that all members of these see alike. Groups that
// share no rank do not wait for each other.
//
// An element's sum depends on its values and their places in the group alone (collectives/sum.hpp): not on the length
// of the buffer that it is in or how that is cut, and it has the same bits on every rank, whichever collective makes
// it. `received` below: payload bytes of this rank, where n is what the whole has and P the ranks of the group (a
// ring's bytes: Thakur, Rabenseifner and Gropp 2005).
//
// When a call returns its memory is the caller's again: what peers still read is a copy. Memory that is written must
// not overlap with other memory of the call, but may be the same as that at its position.
//
// Throws as Transport::receive, naming collective, group, peer and bytes; Stopped as it is. Ranks that state different
// sizes: a RunError that names both, of what one gives and the other expects. After an error the run is over.
class Collectives {
 public:
  // `transport`, whose Channel::collective this uses, must outlive this.
  explicit Collectives(Transport& transport) : transport_(transport) {}

  // The element-wise sum, in place. Received: 2(P−1)/P·n where P divides the elements, else as those two that it is
  // made of: a reduce-scatter into equal_parts and an all-gather of these.
  void all_reduce(std::span<const int> group, std::span<std::byte> values, ElementType type,
                  Clock::time_point deadline);

  // All have all parts: those of others are written, the own one is given. Around the ring. Received: all but the own.
  void all_gather(std::span<const int> group, Parts parts, Clock::time_point deadline);

  // `sum`: of what all ranks have as this one's part. Each exchanges with each. Received: (P−1)·`sum`.
  void reduce_scatter(std::span<const int> group, ConstParts parts, std::span<std::byte> sum, ElementType type,
                      Clock::time_point deadline);

  // `root`, a rank of the group, gives. Received: n, by others than the root.
  void broadcast(std::span<const int> group, int root, std::span<std::byte> values, Clock::time_point deadline);

  // The sum, in place at `root`; the others' values stay. Received: (P−1)·n, by the root. Others do not wait for it.
  void reduce(std::span<const int> group, int root, std::span<std::byte> values, ElementType type,
              Clock::time_point deadline);

  // give[i] goes to the group's rank at i, and take[i] comes from it. Received: all that is taken but the own part.
  void all_to_all(std::span<const int> group, ConstParts give, Parts take, Clock::time_point deadline);

  // The same with equal parts, in the order of the group: (P−1)/P of `take`. RunError if P does not divide both.
  void all_to_all(std::span<const int> group, std::span<const std::byte> give, std::span<std::byte> take,
                  Clock::time_point deadline);

  // Of the transport, whoever has made the calls.
  [[nodiscard]] const GroupBytes& received() const { return transport_.received_in_groups(); }
  [[nodiscard]] TimesWithin& within_actions() { return transport_.within_actions(); }

  // For collectives in pieces (collectives/pieces.hpp).
  [[nodiscard]] Transport& transport() { return transport_; }

 private:
  template <class Body>
  void run(const char* name, std::span<const int> group, Clock::time_point deadline, const Body& body);

  Transport& transport_;
};

}  // namespace plumb::exec
