#include "exec/stage/head_part_moves.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "exec/stage/primitives/weights.hpp"
#include "exec/stage/tensor/vocabulary.hpp"

namespace plumb::exec {

PartMoves::PartMoves(const Divided* divided) : statistics_(statistics_of(divided, "loss")) {
  if (divided == nullptr) return;
  group_ = divided->group;
  gather_ = divided->find(Phase::forward, Role::input, "input");
  gather_again_ = divided->find(Phase::weight_gradient, Role::input, "input");
  sum_ = divided->find(Phase::input_gradient, Role::input_gradient, "input");
  sum_of_rows_ = divided->find(Phase::forward, Role::output, "target_rows");
}

at::Tensor PartMoves::gathered(const at::Tensor& x, Phase phase) const {
  if (!has_group()) return rows(x);
  return rows(group_->moved(x, phase == Phase::forward ? gather_ : gather_again_));
}

TokenStatistics PartMoves::joined(TokenStatistics own) const {
  return statistics_.group ? group_->joined_statistics(own, statistics_.forward) : std::move(own);
}

at::Tensor PartMoves::added_up(const at::Tensor& gradient, const at::Tensor& x) const {
  const at::Tensor by_sequence = gradient.view({x.size(0), -1, x.size(2)});
  return has_group() ? group_->moved(by_sequence, sum_) : by_sequence;
}

at::Tensor PartMoves::target_rows(const at::Tensor& table, const LocalIndices& targets, const at::Tensor& x) const {
  const at::Tensor own = at::embedding(table, targets.index.flatten()).mul_(targets.mine);
  const at::Tensor by_sequence = own.view({x.size(0), -1, x.size(2)});
  return has_group() ? group_->moved(by_sequence, sum_of_rows_) : by_sequence;
}

at::Tensor PartMoves::of_own_tokens(const at::Tensor& of_all, const at::Tensor& x) const {
  const at::Tensor by_sequence = of_all.view({x.size(0), -1, 1});
  const int position = has_group() ? group_->position() : 0;
  return by_sequence.narrow(1, first_own_token(position, x.size(1), by_sequence.size(1)), x.size(1));
}

}  // namespace plumb::exec
