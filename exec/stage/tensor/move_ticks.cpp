#include "exec/stage/tensor/move_ticks.hpp"

#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

std::string text(const std::vector<int>& positions) {
  std::string all;
  for (const int position : positions) all += (all.empty() ? "" : ", ") + std::to_string(position);
  return all;
}

}  // namespace

std::string describe(const PlacedMove& move) {
  return std::string(name_of(*move.move.collective)) + " of the " + std::string(name_of(move.role)) + " " +
         move.tensor + " (site " + move.site + ")";
}

BlockMoves block_moves(std::string block, const PlacedBlock& placed, int position) {
  BlockMoves moves{.block = std::move(block), .by_phase = {}};
  for (const PlacedMove& move : placed.moves) {
    if (!move.move.collective) continue;
    moves.by_phase[static_cast<std::size_t>(move.phase)].push_back(&move);
    moves.groups.try_emplace(move.move.over.bits, group(placed.mesh, position, move.move.over));
  }
  return moves;
}

void MoveTicks::begin(const BlockMoves& of, Phase phase, int microbatch) {
  if (of_ != nullptr) end();  // what the action before has left out
  of_ = &of;
  phase_ = phase;
  microbatch_ = microbatch;
  next_ = 0;
}

void MoveTicks::tick(const PlacedMove& move, Collective executed, const std::vector<int>& among) {
  if (of_ == nullptr) fail("was made outside of an action", move);
  const std::vector<const PlacedMove*>& expected = of_->by_phase[static_cast<std::size_t>(phase_)];
  if (next_ == expected.size()) fail("was made when all moves of this action had been", move);
  if (expected[next_] != &move) fail("was made where this comes next: the " + describe(*expected[next_]), move);
  if (*move.move.collective != executed)
    fail("was made as another collective, " + std::string(name_of(executed)), move);
  const std::vector<int>& group = of_->groups.at(move.move.over.bits);
  if (group != among) fail("was made among the ranks at " + text(among) + " of the group, not " + text(group), move);
  ++next_;
}

void MoveTicks::end() {
  const std::vector<const PlacedMove*>& expected = of_->by_phase[static_cast<std::size_t>(phase_)];
  if (next_ < expected.size()) fail("was not made", *expected[next_]);
  of_ = nullptr;
}

void MoveTicks::fail(const std::string& what, const PlacedMove& move) const {
  const std::string action = of_ == nullptr ? ""
                                            : ", " + std::string(name_of(phase_)) + " of microbatch " +
                                                  std::to_string(microbatch_) + " in " + of_->block;
  throw RunError("rank " + std::to_string(rank_) + action, "the " + describe(move) + " " + what,
                 "the placed block's moves and what the modules do have come apart");
}

}  // namespace plumb::exec
