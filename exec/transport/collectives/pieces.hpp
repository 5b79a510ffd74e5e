// All-gathers and reduce-scatters between hosts whose parts are handed over one by one, with work of the rank between
// them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/units.hpp"
#include "exec/transport/collectives/call.hpp"

namespace plumb::exec {

// Of one rank, on its thread: the messages, the bytes received and the sums of Collectives. From the first part to the
// last the rank makes no other collective with these ranks. `group`: ascending, this one among them; each has a part of
// as many bytes. `transport` must outlive both. They throw as Collectives, and for parts that are not handed over once
// each.

// Around the ring: what has come goes on to the next rank before the caller has it.
class GatherInPieces {
 public:
  // Sends the own part; never waits.
  GatherInPieces(Transport& transport, std::vector<int> group, std::span<const std::byte> own);
  GatherInPieces(const GatherInPieces&) = delete;
  GatherInPieces& operator=(const GatherInPieces&) = delete;

  // Waits for the part of the rank before, then that of the one before it, and so on. Others may read it meanwhile: it
  // must not be changed.
  [[nodiscard]] Payload next(Clock::time_point deadline);

  // When the last of these had come.
  [[nodiscard]] Clock::time_point last_arrival() const { return call_.last_arrival(); }

 private:
  std::vector<int> group_;
  Call call_;
  std::size_t bytes_;         // of a part
  std::size_t distance_ = 1;  // of the rank whose part comes next
};

class ScatterInPieces {
 public:
  // Of so many bytes each.
  ScatterInPieces(Transport& transport, std::vector<int> group, std::size_t bytes);
  ScatterInPieces(const ScatterInPieces&) = delete;
  ScatterInPieces& operator=(const ScatterInPieces&) = delete;

  // A copy to the rank at this position in the group; never waits.
  void give(std::size_t to, std::span<const std::byte> part);
  // Waits for what the others have given, and adds it up with the own part. Precondition: each has been given its own.
  void finish(std::span<const std::byte> own, std::span<std::byte> sum, ElementType type, Clock::time_point deadline);

  // When the last of what the others have given had come.
  [[nodiscard]] Clock::time_point last_arrival() const { return call_.last_arrival(); }

 private:
  std::vector<int> group_;
  Call call_;
  std::size_t bytes_;
  std::vector<bool> given_;  // by position
};

}  // namespace plumb::exec
