#include "exec/stage/tensor/move_ticks.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/program/decomposed.hpp"

namespace plumb::exec {
namespace {

std::string text(const std::vector<int>& positions) {
  std::string all;
  for (const int position : positions) all += (all.empty() ? "" : ", ") + std::to_string(position);
  return all;
}

std::string text(const PanelStep& step) {
  const std::string panel = "panel " + std::to_string(step.panel);
  if (step.move == nullptr) return "the products of " + panel;
  return (step.panel == PanelStep::whole ? "" : panel + " of ") + "the " + describe(*step.move);
}

}  // namespace

std::string describe(const PlacedMove& move) {
  return std::string(name_of(*move.move.collective)) + " of the " + std::string(name_of(move.role)) + " " +
         move.tensor + " (site " + move.site + ")";
}

BlockMoves block_moves(std::string block, const PlacedBlock& placed, int position) {
  BlockMoves moves{.block = std::move(block), .by_phase = {}, .position = position};
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
  pieces_.clear();
}

void MoveTicks::tick(const PlacedMove& move, Collective executed, const std::vector<int>& among) {
  tick_next(move, executed, among, false);
}

void MoveTicks::tick_in_pieces(const PlacedMove& move, Collective executed, const std::vector<int>& among) {
  tick_next(move, executed, among, true);
  const int ranks = static_cast<int>(among.size());
  const auto position = static_cast<int>(std::ranges::find(among, of_->position) - among.begin());
  for (int number = 0; number < ranks; ++number) pieces_.push_back(whose_piece(executed, ranks, position, number));
  std::ranges::reverse(pieces_);  // the next one last
}

void MoveTicks::tick_piece(int whose) {
  if (of_ == nullptr || next_ == 0) throw RunError("rank " + std::to_string(rank_), "a piece of no move was made");
  const PlacedMove& move = *of_->by_phase[static_cast<std::size_t>(phase_)][next_ - 1];
  const std::string piece = "had its products of the piece of rank " + std::to_string(whose) + " of its group made ";
  if (pieces_.empty()) fail(piece + "when all pieces had been", move);
  if (pieces_.back() != whose)
    fail(piece + "where that of rank " + std::to_string(pieces_.back()) + " comes next", move);
  pieces_.pop_back();
}

void MoveTicks::require_all_pieces() const {
  if (pieces_.empty()) return;
  fail("had no products of the piece of rank " + std::to_string(pieces_.back()) + " of its group made",
       *of_->by_phase[static_cast<std::size_t>(phase_)][next_ - 1]);
}

void MoveTicks::tick_panel(const PlacedMove& move, Collective executed, const std::vector<int>& among, int panel) {
  if (of_ == nullptr) fail("was made outside of an action", move);
  const std::optional<PanelStep> expected = next();
  if (expected != PanelStep{.move = &move, .panel = panel}) {
    fail_before_next(text(PanelStep{.move = &move, .panel = panel}) + " was begun");
  }
  require_made_as(move, executed, among, true);
  ++next_;
}

void MoveTicks::tick_products(int panel) {
  if (of_ == nullptr) throw RunError("rank " + std::to_string(rank_), "products of a panel of no move were made");
  if (next() != PanelStep{.move = nullptr, .panel = panel}) {
    fail_before_next(text(PanelStep{.panel = panel}) + " were made");
  }
  ++next_;
}

void MoveTicks::tick_next(const PlacedMove& move, Collective executed, const std::vector<int>& among, bool in_pieces) {
  if (of_ == nullptr) fail("was made outside of an action", move);
  require_all_pieces();
  const std::optional<PanelStep> expected = next();
  if (expected != PanelStep{.move = &move}) fail_before_next(text(PanelStep{.move = &move}) + " was made");
  require_made_as(move, executed, among, in_pieces);
  ++next_;
}

void MoveTicks::require_made_as(const PlacedMove& move, Collective executed, const std::vector<int>& among,
                                bool in_pieces) const {
  if (*move.move.collective != executed)
    fail("was made as another collective, " + std::string(name_of(executed)), move);
  const std::vector<int>& group = of_->groups.at(move.move.over.bits);
  if (group != among) fail("was made among the ranks at " + text(among) + " of the group, not " + text(group), move);
  if (of_->in_pieces.contains(&move) != in_pieces) {
    fail(in_pieces ? "was made in pieces, and its program has it whole"
                   : "was made whole, and its program has it in pieces beside products",
         move);
  }
}

std::optional<PanelStep> MoveTicks::next() const {
  const auto phase = static_cast<std::size_t>(phase_);
  if (of_->panels) {
    const std::vector<PanelStep>& steps = (*of_->panels)[phase];
    return next_ < steps.size() ? std::optional(steps[next_]) : std::nullopt;
  }
  const std::vector<const PlacedMove*>& moves = of_->by_phase[phase];
  return next_ < moves.size() ? std::optional(PanelStep{.move = moves[next_]}) : std::nullopt;
}

void MoveTicks::end() {
  require_all_pieces();
  if (const std::optional<PanelStep> left = next())
    stop(text(*left) + (left->move == nullptr ? " were" : " was") + " not made");
  of_ = nullptr;
}

void MoveTicks::fail(const std::string& what, const PlacedMove& move) const {
  stop("the " + describe(move) + " " + what);
}

void MoveTicks::fail_before_next(const std::string& what) const {
  const std::optional<PanelStep> expected = next();
  stop(what + (expected ? " where this comes next: " + text(*expected) : " when all moves of this action had been"));
}

void MoveTicks::stop(const std::string& problem) const {
  const std::string action = of_ == nullptr ? ""
                                            : ", " + std::string(name_of(phase_)) + " of microbatch " +
                                                  std::to_string(microbatch_) + " in " + of_->block;
  throw RunError("rank " + std::to_string(rank_) + action, problem,
                 "the placed block's moves and what the modules do have come apart");
}

}  // namespace plumb::exec
