// Products of a grid in panels: broadcasts and sums of blocks beside them.
#include <ATen/ATen.h>

#include <deque>
#include <utility>

#include "common/base/error.hpp"
#include "exec/host/pauses.hpp"
#include "exec/stage/tensor/tensor_group.hpp"
#include "exec/transport/collectives/panels.hpp"
#include "exec/transport/collectives/payloads.hpp"

namespace plumb::exec {

// Of one group of products: what is begun of a panel, and ended behind the products beside it.
class PanelsUnderWay {
 public:
  PanelsUnderWay(TensorGroup& group, const TensorGroup::PanelMoves& moves, const std::vector<at::Tensor>& own)
      : group_(group), moves_(moves), own_(own) {}

  // The operands' blocks of a panel, from the ranks that have them.
  void begin_operands(int panel) {
    for (std::size_t i = 0; i < moves_.before.size(); ++i) {
      const LocalMove& move = moves_.before[i];
      group_.ticks_.tick_panel(*move.move, Collective::all_gather, move.group, panel);
      blocks_.emplace_back(transport(), group_.ranks_at(move.group), static_cast<std::size_t>(panel),
                           const_bytes(own_[i]));
    }
  }

  // In memory of their own: bits of products may depend on where that begins, and a message's begins anywhere.
  [[nodiscard]] std::vector<at::Tensor> end_operands() {
    std::vector<at::Tensor> operands;
    for (const at::Tensor& own : own_) {
      BlockFromRoot& block = blocks_.front();
      operands.push_back(block.is_root() ? own : at::empty(own.sizes(), own.options()));
      if (!block.is_root()) {
        copy(bytes_in(block.receive(group_.deadline())), bytes(operands.back()));
        beside_.arrived = std::max(beside_.arrived, block.last_arrival());
      }
      blocks_.pop_front();
    }
    return operands;
  }

  // What is made of a panel, to the ranks that keep it.
  void begin_sums(int panel, std::vector<at::Tensor> made) {
    if (made.size() != moves_.behind.size()) throw RunError("tensor group", "a panel gives one part for each sum");
    for (std::size_t i = 0; i < made.size(); ++i) {
      const LocalMove& move = moves_.behind[i];
      group_.ticks_.tick_panel(*move.move, Collective::reduce_scatter, move.group, panel);
      sums_.emplace_back(transport(), group_.ranks_at(move.group), static_cast<std::size_t>(panel), bytes(made[i]));
      if (!sums_.back().is_root()) made[i].reset();  // a copy is sent
    }
    made_ = std::move(made);
  }

  void end_sums() {
    for (at::Tensor& part : made_) {
      if (sums_.front().is_root()) {
        sums_.front().finish(bytes(part), element_type(part), group_.deadline());
        beside_.arrived = std::max(beside_.arrived, sums_.front().last_arrival());
        kept_.push_back(part);
      }
      sums_.pop_front();
    }
    made_.clear();
  }

  [[nodiscard]] std::vector<at::Tensor> take_sums() { return std::move(kept_); }

  // As time of the rank: what is begun, what it does meanwhile, and what is ended then.
  template <class Begin, class Work, class End>
  void beside(const Begin& begin, const Work& work, const End& end) {
    beside_ = {.begun = Clock::now()};
    begin();
    beside_.started = Clock::now();
    work();
    beside_.wanted = Clock::now();
    end();
    beside_.ended = Clock::now();
    group_.collectives_->within_actions().tensor += time_of(beside_);
  }

 private:
  [[nodiscard]] Transport& transport() const { return group_.collectives_->transport(); }

  static std::span<std::byte> bytes(const at::Tensor& x) {
    return {static_cast<std::byte*>(x.mutable_data_ptr()), x.nbytes()};
  }
  static std::span<const std::byte> const_bytes(const at::Tensor& x) {
    return {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
  }

  TensorGroup& group_;
  const TensorGroup::PanelMoves& moves_;
  const std::vector<at::Tensor>& own_;
  std::deque<BlockFromRoot> blocks_ = {};
  std::deque<SumAtRoot> sums_ = {};
  std::vector<at::Tensor> made_ = {};  // what is under way
  std::vector<at::Tensor> kept_ = {};
  TimesBeside beside_ = {};
};

std::vector<at::Tensor> TensorGroup::in_panels(const PanelMoves& moves, const std::vector<at::Tensor>& own,
                                               const MakePanel& make) {
  if (!collectives_) throw RunError("tensor group", "moves panels between hosts alone");
  const int side = static_cast<int>(moves.before.front().group.size());
  const auto nothing = [] {};
  PanelsUnderWay under_way(*this, moves, own);
  std::vector<at::Tensor> blocks;
  std::vector<at::Tensor> made;
  under_way.beside([&] { under_way.begin_operands(0); }, nothing, [&] { blocks = under_way.end_operands(); });
  for (int panel = 0; panel < side; ++panel) {
    const bool is_last = panel + 1 == side;
    const auto begin = [&] {
      if (panel > 0) under_way.begin_sums(panel - 1, std::move(made));
      if (!is_last) under_way.begin_operands(panel + 1);
    };
    const auto work = [&] {
      made = make(panel, blocks);
      ticks_.tick_products(panel);
      blocks.clear();
    };
    under_way.beside(begin, work, [&] {
      under_way.end_sums();
      if (!is_last) blocks = under_way.end_operands();
    });
  }
  under_way.beside([&] { under_way.begin_sums(side - 1, std::move(made)); }, nothing, [&] { under_way.end_sums(); });
  return under_way.take_sums();
}

}  // namespace plumb::exec
