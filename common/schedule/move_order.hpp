// The order in which one stream moves what the blocks of an action gather and reduce, and what computing waits for.
#pragma once

#include <algorithm>
#include <cstddef>

namespace plumb {

// Of how many blocks gradients are on their way while another one computes, where `prefetch` blocks are gathered ahead:
// one, as in FSDP2. From a depth of three on one less than the depth: with one alone the next block would wait for a
// reduction that stands behind the gathering of a block further ahead.
[[nodiscard]] constexpr int reductions_under_way(int prefetch) { return std::max(prefetch - 1, std::min(prefetch, 1)); }

// Blocks count in the order in which the action goes through them, and `prefetch` ≥ 1 of them are gathered ahead of the
// one at work (FSDP2: set_modules_to_forward_prefetch, set_modules_to_backward_prefetch). All moves go over one stream,
// one after the other, as those of one NCCL communicator do. Block 0 is gathered before anything is computed, and is no
// part of the order. When it begins, the gatherings of blocks 1 to `prefetch` are issued; when block i > 0 begins,
// those of block i + prefetch and the reduction of block i − 1: first what block i + 1 waits for, of two such the
// gathering.
class MoveOrder {
 public:
  explicit constexpr MoveOrder(int prefetch)
      : ahead_(static_cast<std::size_t>(prefetch)),
        reductions_(static_cast<std::size_t>(reductions_under_way(prefetch))) {}

  struct Move {
    bool gathers = false;  // else reduces
    std::size_t block = 0;
  };
  // The n-th; also of blocks that there are not.
  [[nodiscard]] constexpr Move at(std::size_t n) const {
    if (n < ahead_) return {.gathers = true, .block = n + 1};
    const std::size_t pair = (n - ahead_) / 2;
    const bool gathers = ((n - ahead_) % 2 == 0) == (ahead_ == 1);
    return {.gathers = gathers, .block = gathers ? pair + 1 + ahead_ : pair};
  }

  // So many, from the first on, are issued when a block begins; and have ended before the next one does.
  [[nodiscard]] constexpr std::size_t issued(std::size_t block) const { return ahead_ + 2 * block; }
  [[nodiscard]] constexpr std::size_t ended_behind(std::size_t block) const {
    if (ahead_ == 1) return issued(block);
    const std::size_t gathered = block < ahead_ ? block + 1 : issued(block + 1 - ahead_);
    return std::max(gathered, block < reductions_ ? 0 : issued(block - reductions_) + 1);
  }

 private:
  std::size_t ahead_;
  std::size_t reductions_;
};

}  // namespace plumb
