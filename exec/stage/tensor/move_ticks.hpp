// What an action of a block must move between the ranks of a tensor group, ticked off as it is moved.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/placement/placed_block.hpp"
#include "exec/stage/tensor/program_moves.hpp"

namespace plumb::exec {

// The collectives of one block by phase, in their order. They point into the placed block, which must outlive this.
struct BlockMoves {
  std::string block;  // "block 3"
  std::array<std::vector<const PlacedMove*>, 3> by_phase;
  std::map<std::uint16_t, std::vector<int>> groups = {};  // by the bits of a move's axes: positions in the tensor group
  int position = 0;                                       // this rank's
  std::set<const PlacedMove*> in_pieces = {};             // those that the block's program has so
  std::optional<PanelSteps> panels = {};                  // of a grid whose products go in panels: all that moves
};
// "all-reduce of the output attention.out (site attention.out)".
[[nodiscard]] std::string describe(const PlacedMove& move);
// `position`: of the rank in its tensor group.
[[nodiscard]] BlockMoves block_moves(std::string block, const PlacedBlock& placed, int position);

// Of one rank. It compares a pointer and a few ranks for each move, so it is always on.
class MoveTicks {
 public:
  explicit MoveTicks(int rank) : rank_(rank) {}

  // The action F, I or W of a microbatch in a block begins. `of` must live until it ends.
  void begin(const BlockMoves& of, Phase phase, int microbatch);
  // What is moved next. Throws RunError that names rank, action, site and tensor where it is not this move, or is
  // executed by another collective than the move's, or among other ranks than its axes say (positions in the group).
  void tick(const PlacedMove& move, Collective executed, const std::vector<int>& among);
  // The same of one that goes in pieces; then each, when its products are made, by the place in the move's group of the
  // rank whose tokens they are: in the order of common/program/decomposed.hpp. Both throw as `tick`, which throws for a
  // move that the program has in pieces, as this does for one that it has whole; and where a piece is left.
  void tick_in_pieces(const PlacedMove& move, Collective executed, const std::vector<int>& among);
  void tick_piece(int whose);
  // Of products in panels: a panel of this move is begun; the products of a panel are made. Throw the same.
  void tick_panel(const PlacedMove& move, Collective executed, const std::vector<int>& among, int panel);
  void tick_products(int panel);
  // The action has ended. Throws the same where a move is left.
  void end();

 private:
  void tick_next(const PlacedMove& move, Collective executed, const std::vector<int>& among, bool in_pieces);
  void require_made_as(const PlacedMove& move, Collective executed, const std::vector<int>& among,
                       bool in_pieces) const;
  void require_all_pieces() const;
  // What comes next of the action; none: nothing is left.
  [[nodiscard]] std::optional<PanelStep> next() const;
  [[noreturn]] void fail(const std::string& what, const PlacedMove& move) const;
  [[noreturn]] void fail_before_next(const std::string& what) const;
  [[noreturn]] void stop(const std::string& problem) const;

  int rank_;
  const BlockMoves* of_ = nullptr;  // between two actions none
  Phase phase_ = Phase::forward;
  int microbatch_ = 0;
  std::size_t next_ = 0;
  std::vector<int> pieces_ = {};  // of the move before `next_`, that are still to be made
};

}  // namespace plumb::exec
