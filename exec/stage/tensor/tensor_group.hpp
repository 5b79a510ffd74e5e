// The ranks that share out each block of a stage, and the collectives between them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/layout/layout.hpp"
#include "exec/stage/tensor/local_move.hpp"
#include "exec/stage/tensor/move_ticks.hpp"
#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {

// All ranks of a group go through the same actions in the same order, and autograd's backward runs on the thread that
// calls it (begin_rank_thread): so each collective is made where a module meets it, on the rank's own thread. This one
// is of tensors of the host; where they are a device's, StreamTensorGroup. Reference-counted by LibTorch, because
// autograd nodes hold it.
class TensorGroup : public torch::CustomClassHolder {
 public:
  struct Place {
    TensorLayout layout;
    std::vector<int> ranks;  // of the run, ascending
    int position = 0;        // of this rank among them
    Seconds patience{60};    // how long a collective waits for its peers
  };
  TensorGroup(std::shared_ptr<Collectives> collectives, Place place)
      : collectives_(std::move(collectives)),
        place_(std::move(place)),
        ticks_(place_.ranks.at(static_cast<std::size_t>(place_.position))) {}

  [[nodiscard]] const TensorLayout& layout() const { return place_.layout; }
  [[nodiscard]] const std::vector<int>& ranks() const { return place_.ranks; }
  [[nodiscard]] int position() const { return place_.position; }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(place_.ranks.size()); }

  // Of the action that runs: all that is made below but `sum_in_place` is ticked off there.
  [[nodiscard]] MoveTicks& ticks() { return ticks_; }

  // As a move of the block says, among its ranks: x summed over them, in memory of its own; along the move's dimension
  // the parts of all, in their order; of a sum this rank's part. Of no move x itself.
  // Throws RunError where MoveTicks does, for an all-to-all, for a dimension that the ranks do not divide, for a type
  // that is not added, and where a peer does not come in time.
  [[nodiscard]] at::Tensor moved(const at::Tensor& x, const LocalMove& move);
  // An all-gather or a reduce-scatter of tokens [batch, tokens, …] of an asynchronous layout, in pieces of one rank's
  // tokens each beside what is made of them (common/program/decomposed.hpp); `whose`: by its place among the move's
  // ranks. `use` has its own piece while the first one comes, and each that comes while the next does; `make` gives,
  // contiguous and of `bytes`, what goes to that rank, or stays, and is sent while the next is made. The sum has the
  // bits that `moved` gives it. Throw as `moved`. Between hosts.
  using UsePiece = std::function<void(std::int64_t whose, const at::Tensor& piece)>;
  void gather_in_pieces(const at::Tensor& x, const LocalMove& move, const UsePiece& use);
  using MakePiece = std::function<at::Tensor(std::int64_t whose)>;
  [[nodiscard]] at::Tensor scatter_in_pieces(const LocalMove& move, std::size_t bytes, const MakePiece& make);
  // Products of a grid in panels (common/program/decomposed.hpp). `own`: contiguous, this rank's block of each operand,
  // which `before` gathers whole of it. `make` has all operands' blocks of a panel, the next one's are under way
  // meanwhile, and gives, contiguous, what `behind` adds up of the panel, which is under way while the next one's is
  // made. Returned: those sums of this rank's own panel, with the bits that `moved` gives them. Throws as `moved`.
  // Between hosts.
  struct PanelMoves {
    std::vector<LocalMove> before = {};
    std::vector<LocalMove> behind = {};
  };
  using MakePanel = std::function<std::vector<at::Tensor>(int panel, const std::vector<at::Tensor>& blocks)>;
  [[nodiscard]] std::vector<at::Tensor> in_panels(const PanelMoves& moves, const std::vector<at::Tensor>& own,
                                                  const MakePanel& make);
  // Once a step: in place, of contiguous values, over the ranks at these positions.
  void sum_in_place(const at::Tensor& x, const std::vector<int>& positions);

  // Of logits whose columns the ranks share out: rows [n, 3] of each token's maximum, its sum of exponentials less that
  // maximum, and the target's logit (0 where another rank has it), in fp32 or fp64; then of all columns, in the order
  // of the group, the same bits on every rank. Each rank joins some of the rows: received as by an all-reduce.
  [[nodiscard]] at::Tensor joined_statistics(const at::Tensor& rows, const LocalMove& move);

 protected:
  // Of the run, at these positions.
  [[nodiscard]] std::vector<int> ranks_at(const std::vector<int>& positions) const;
  // Where this rank stands among them.
  [[nodiscard]] std::int64_t place_among(const std::vector<int>& positions) const;

 private:
  // What travels for the moves above.
  [[nodiscard]] virtual at::Tensor summed(const at::Tensor& x, const LocalMove& move);
  [[nodiscard]] virtual at::Tensor gathered(const at::Tensor& x, const LocalMove& move);
  [[nodiscard]] virtual at::Tensor summed_part(const at::Tensor& x, const LocalMove& move);
  [[nodiscard]] virtual at::Tensor joined_rows(const at::Tensor& rows, const std::vector<int>& positions);
  // Contiguous x, in place.
  virtual void sum_over(const std::vector<int>& positions, const at::Tensor& x);

  // Whose pieces a move's are, in the order of its program.
  [[nodiscard]] std::vector<std::int64_t> begin_pieces(const LocalMove& move, Collective executed);
  [[nodiscard]] Clock::time_point deadline() const;
  friend class PanelsUnderWay;  // of `in_panels`

  std::shared_ptr<Collectives> collectives_;  // of the rank: several stages share it
  Place place_;
  MoveTicks ticks_;
};
using TensorGroupPtr = c10::intrusive_ptr<TensorGroup>;

// As what a sum adds it. Throws RunError for a type that is not added.
[[nodiscard]] ElementType element_type(const at::Tensor& x);

}  // namespace plumb::exec
