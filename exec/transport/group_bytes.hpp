// Payload bytes that collectives between hosts have brought to a rank, by group.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

using GroupBytes = std::map<std::vector<int>, Bytes>;  // by ascending ranks of the run

// Of these, what groups have brought whose ranks are all among `ranks`, which ascend.
[[nodiscard]] inline Bytes bytes_within(const std::vector<int>& ranks, const GroupBytes& received) {
  Bytes sum;
  for (const auto& [group, bytes] : received) {
    if (std::ranges::includes(ranks, group)) sum += bytes;
  }
  return sum;
}

// What counts them, whoever makes the calls: a transport.
class CountsGroups {
 public:
  // Since the start, by the calls that have ended well.
  [[nodiscard]] const GroupBytes& received_in_groups() const { return received_; }
  void count_received(const std::vector<int>& group, Bytes bytes) { received_[group] += bytes; }

 private:
  GroupBytes received_;
};

}  // namespace plumb::exec
