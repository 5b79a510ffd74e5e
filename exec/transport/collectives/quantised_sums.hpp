// Sums over a group of ranks whose values travel as int4, in two all-to-alls (ZeRO++, arXiv 2306.10209, section 4.3).
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Reduce-scatters of fp32 values into equal_parts, one for each rank in the order of the group. Part a·k + i goes to
// the i-th neighbour first, of k that are neighbours, which adds up what these have of it; and from there to the rank
// at that place in group a, which adds up those sums. Before each way each part is quantised, also the own one, and
// made back into fp32 behind it; sums are in the order of the ranks. Where k is 1 or all there is one way.
//
// Received: int4 of (k−1) · what one neighbour's parts are, and (n/k−1) · the own part, each in whole blocks' scales.
//
// Of one rank, on its thread, like its transport. All ranks of the group start the same sums in the same order;
// meanwhile they make no other collectives with each other.
class QuantisedSums {
 public:
  // Ascending ranks: the neighbours, and those at this one's place among theirs; this rank is in both. `transport`,
  // whose Channel::collective this uses, must outlive this.
  QuantisedSums(Transport& transport, std::vector<int> inside, std::vector<int> across);

  // The own part is the sum behind `finish`, with which the first `count` of all that were started end; until then
  // nobody else touches the values. `start` never waits. `finish` throws as Collectives, naming group and peer.
  void start(std::span<float> values);
  [[nodiscard]] std::size_t started() const { return ended_ + sums_.size(); }  // so many so far
  void finish(std::size_t count, Clock::time_point deadline);
  void finish(Clock::time_point deadline) { finish(started(), deadline); }

  // When the last of what neighbours have sent had come: beside that `finish` sends the rest. None where one is all.
  [[nodiscard]] Clock::time_point last_arrival() const { return last_arrival_; }

 private:
  using Part = std::span<float>;

  [[nodiscard]] std::vector<Part> parts_of(std::span<float> values) const;
  // In the order of the groups across, what the neighbour at this place is given of the parts.
  [[nodiscard]] std::vector<Part> given_to(const std::vector<Part>& parts, std::size_t place) const;
  [[nodiscard]] std::vector<std::vector<float>> summed_inside(const std::vector<Part>& parts,
                                                              Clock::time_point deadline);
  void sum_across(const std::vector<std::vector<float>>& sums, Part own, Clock::time_point deadline);
  [[nodiscard]] Received receive(const std::vector<int>& group, std::size_t from, Clock::time_point deadline);

  Transport& transport_;
  std::vector<int> inside_;
  std::vector<int> across_;
  PlaceInGroup place_inside_;
  PlaceInGroup place_across_;
  std::deque<std::span<float>> sums_;  // that have not ended
  std::size_t ended_ = 0;              // before these
  Clock::time_point last_arrival_ = {};
};

}  // namespace plumb::exec
