// Broadcasts and sums at one rank between hosts that are begun, and ended when the rank has worked meanwhile.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "common/base/units.hpp"
#include "exec/transport/collectives/call.hpp"

namespace plumb::exec {

// Of one rank, on its thread: the messages, the bytes received and the sums of Collectives. Several may be under way
// between the same ranks, which begin and end them in one order. `group`: ascending, this one among them. `transport`
// must outlive both. They throw as Collectives.

// `root`: by its position in the group.
class AtRoot {
 public:
  AtRoot(const AtRoot&) = delete;
  AtRoot& operator=(const AtRoot&) = delete;

  [[nodiscard]] bool is_root() const { return call_.position() == root_; }
  // When the last of what this rank receives had come.
  [[nodiscard]] Clock::time_point last_arrival() const { return call_.last_arrival(); }

 protected:
  AtRoot(Transport& transport, std::vector<int> group, std::size_t root, std::size_t bytes)
      : group_(std::move(group)), call_(transport, group_), root_(root), bytes_(bytes) {}
  ~AtRoot() = default;

  std::vector<int> group_;
  Call call_;
  std::size_t root_;
  std::size_t bytes_;
};

// The root gives a block that all then have.
class BlockFromRoot : public AtRoot {
 public:
  // The root sends a copy of its `own` block to each other, who expect as many bytes as their own has; never waits.
  BlockFromRoot(Transport& transport, std::vector<int> group, std::size_t root, std::span<const std::byte> own);
  // Waits for the block. Precondition: not the root.
  [[nodiscard]] Payload receive(Clock::time_point deadline);
};

// What all have is added up at the root.
class SumAtRoot : public AtRoot {
 public:
  // Others send a copy of their `part` to the root, which expects as many bytes as its own has; never waits.
  SumAtRoot(Transport& transport, std::vector<int> group, std::size_t root, std::span<const std::byte> part);
  // Waits for what the others have sent, and adds it up with `part`, in place: the bits of a reduce-scatter.
  // Precondition: the root.
  void finish(std::span<std::byte> part, ElementType type, Clock::time_point deadline);
};

}  // namespace plumb::exec
