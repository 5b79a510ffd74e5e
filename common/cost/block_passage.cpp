#include "common/cost/block_passage.hpp"

#include <algorithm>

#include "common/schedule/move_order.hpp"

namespace plumb {
namespace {

// What the stream has still to do.
class MoveStream {
 public:
  MoveStream(std::span<const PassedBlock> blocks, int prefetch, std::vector<Seconds>& reduced)
      : blocks_(blocks), order_(prefetch), reduced_(reduced), left_(work(0)) {}

  // Of the first `count` moves, from now on.
  [[nodiscard]] Seconds left_of(std::size_t count) const {
    if (count <= ended_) return {};
    Seconds sum = left_;
    for (std::size_t n = ended_ + 1; n < count; ++n) sum += work(n);
    return sum;
  }

  // The first `count` have ended by then.
  void end(std::size_t count, Seconds now) {
    Seconds sum;
    while (ended_ < count) {
      sum += left_;
      end_next(now + sum);
    }
  }

  // Goes on for so long with what is issued: the first `count`.
  void go_on(std::size_t count, Seconds span, Seconds now) {
    while (ended_ < count && left_ <= span) {
      span -= left_;
      now += left_;
      end_next(now);
    }
    if (ended_ < count) left_ -= span;
  }

 private:
  [[nodiscard]] Seconds work(std::size_t n) const {
    const MoveOrder::Move move = order_.at(n);
    if (move.block >= blocks_.size()) return {};
    return move.gathers ? blocks_[move.block].gathering : blocks_[move.block].reducing;
  }

  void end_next(Seconds at) {
    const MoveOrder::Move move = order_.at(ended_);
    if (!move.gathers && move.block < reduced_.size()) reduced_[move.block] = at;
    left_ = work(++ended_);
  }

  std::span<const PassedBlock> blocks_;
  MoveOrder order_;
  std::vector<Seconds>& reduced_;
  std::size_t ended_ = 0;
  Seconds left_;  // of the next
};

}  // namespace

BlockPassage passage(std::span<const PassedBlock> blocks, int prefetch, Seconds begun) {
  BlockPassage result{.waits = {}, .reduced = std::vector<Seconds>(blocks.size())};
  result.waits.reserve(blocks.size());
  const MoveOrder order(prefetch);
  MoveStream stream(blocks, prefetch, result.reduced);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::size_t awaited = order.ended_behind(i);
    const Seconds moving = stream.left_of(awaited);
    const Seconds longest = std::max(moving, blocks[i].copying);
    const Seconds span = std::max(blocks[i].computing, longest);
    result.waits.push_back(std::max(longest - blocks[i].computing, Seconds{}));
    stream.end(awaited, begun);
    stream.go_on(order.issued(i), span - moving, begun + moving);
    begun += span;
  }
  const std::size_t all = order.issued(blocks.size());
  result.behind = stream.left_of(all);
  stream.end(all, begun);
  return result;
}

}  // namespace plumb
