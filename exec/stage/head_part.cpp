#include "exec/stage/head_part.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "exec/stage/modules/vocabulary_parts.hpp"

namespace plumb::exec {
namespace {

// Null if it has none of this name.
WeightPtr weight_named(const TorchStage& stage, const std::string& name) {
  const auto found = std::ranges::find(stage.weights(), name, [](const WeightPtr& weight) { return weight->name; });
  return found == stage.weights().end() ? WeightPtr() : *found;
}

// The tokens whose targets this part has, and these: their numbers.
struct OwnTargets {
  at::Tensor tokens;
  at::Tensor rows;
};

OwnTargets own_targets(const PartLogits& part) {
  const at::Tensor mine = part.targets.mine.flatten().nonzero().flatten();
  return {.tokens = mine, .rows = part.targets.index.flatten().index_select(0, mine)};
}

at::Tensor joined(std::span<const Payload> of_parts, std::int64_t tokens) {
  std::vector<at::Tensor> all;
  for (const Payload& of_part : of_parts) {
    if (of_part.size != static_cast<std::size_t>(tokens) * 3 * sizeof(float)) {
      throw RunError("", "a part's statistics have " + std::to_string(of_part.size) + " bytes, of " +
                             std::to_string(tokens) + " tokens");
    }
    all.push_back(at::from_blob(of_part.data, {tokens, 3}, at::kFloat));
  }
  return joined_statistics(at::stack(all));
}

}  // namespace

HeadPart::HeadPart(TorchStageSettings given, std::shared_ptr<const Corpus> corpus, int barriers)
    : TorchStage(std::move(given), std::move(corpus)),
      barriers_(barriers),
      first_row_(first_row_of_part(settings().model, settings().part, head().divided())),
      moves_(head().divided()),
      table_(settings().table ? settings().table : weight_named(*this, "head.weight")),
      bias_(weight_named(*this, "head.bias")) {}

HeadPart::Microbatch& HeadPart::under_way(int microbatch, const char* action) {
  const auto found = microbatches_.find(microbatch);
  if (found != microbatches_.end()) return found->second;
  throw RunError("stage " + std::to_string(settings().stage),
                 std::string(action) + " of microbatch " + std::to_string(microbatch) + " without F before it");
}

HeadPart::Microbatch HeadPart::ended(int microbatch, const char* action) {
  Microbatch of = std::move(under_way(microbatch, action));
  microbatches_.erase(microbatch);
  if (of.of_all.defined()) return of;
  throw RunError("stage " + std::to_string(settings().stage), std::string(action) + " of microbatch " +
                                                                  std::to_string(microbatch) +
                                                                  " before the parts' statistics are joined");
}

// Of a token's loss: that of its microbatch is the mean over its tokens.
double HeadPart::gradient_scale(int microbatch) const {
  const Training& training = settings().training;
  return share_of_update(microbatch) / static_cast<double>(training.microbatch * training.sequence);
}

at::Tensor HeadPart::logits_of(const at::Tensor& x) const {
  return bias_ ? at::addmm(bias_->value, x, table_->value.t()) : at::mm(x, table_->value.t());
}

Payload HeadPart::forward(int microbatch, Payload input) {
  const c10::NoGradGuard no_grad;
  head().begin(Phase::forward, microbatch);
  const at::Tensor x = received(std::move(input), microbatch, "activations");
  Microbatch of{.x = x,
                .part = part_logits(logits_of(moves_.gathered(x, Phase::forward)), targets_of(microbatch), first_row_),
                .softmax = {},
                .gradient = {},
                .target_rows = {},
                .of_all = {}};
  of.part.statistics = moves_.joined(std::move(of.part.statistics));
  if (barriers_ == 1 && moves_.has_group()) {
    of.target_rows = moves_.target_rows(table_->value, of.part.targets, x);
  }
  head().end();
  at::Tensor statistics = of.part.statistics;
  if (microbatches_.emplace(microbatch, std::move(of)).second) {
    return barriers_ == 2 ? to_payload(std::move(statistics)) : Payload{};
  }
  throw RunError("stage " + std::to_string(settings().stage),
                 "F of microbatch " + std::to_string(microbatch) + ", whose F was before it");
}

Payload HeadPart::input_gradient(int microbatch, Payload /*output_gradient*/) {
  const c10::NoGradGuard no_grad;
  Microbatch& of = under_way(microbatch, "I");
  head().begin(Phase::input_gradient, microbatch);
  of.softmax = own_softmax(of.part, of.x.scalar_type());
  of.gradient = moves_.added_up(at::mm(of.softmax, table_->value), of.x);
  head().end();
  return to_payload(of.part.statistics);
}

Payload HeadPart::join_statistics(int microbatch, std::span<const Payload> of_parts) {
  const c10::NoGradGuard no_grad;
  Microbatch& of = under_way(microbatch, "ALLRED");
  of.of_all = joined(of_parts, of.part.statistics.size(0));
  losses_.at(static_cast<std::size_t>(microbatch)) = mean_loss(of.of_all).item<double>();
  if (barriers_ == 2) return {};
  const at::Tensor made = summand(of, gradient_scale(microbatch));
  of.gradient.reset();
  of.target_rows.reset();
  return to_payload(made.to(settings().numerics.compute).contiguous());
}

// Algorithm 2: A · scale − the target's row, of the tokens whose target is here.
at::Tensor HeadPart::summand(const Microbatch& of, double scale) const {
  const at::Tensor of_part = moves_.of_own_tokens(scale_of_part(of.part, of.of_all), of.x);
  at::Tensor gradient = of.gradient.to(wide_type(of.gradient.scalar_type())).mul(of_part);
  if (of.target_rows.defined()) return gradient.sub_(of.target_rows).mul_(scale);
  const auto [mine, targets] = own_targets(of.part);
  const at::Tensor rows_of_targets = at::embedding(table_->value, targets);
  rows(gradient).index_add_(0, mine, rows_of_targets.to(gradient.scalar_type()), -1);
  return gradient.mul_(scale);
}

Payload HeadPart::backward(int microbatch, Payload /*output_gradient*/) {
  const c10::NoGradGuard no_grad;
  Microbatch of = ended(microbatch, "B");
  const at::Tensor scale = at::scalar_tensor(gradient_scale(microbatch), at::kDouble);
  const at::Tensor gradient =
      gradient_of_logits(log_softmax(of.part, of.of_all), of.part.targets, scale).to(settings().numerics.compute);
  head().begin(Phase::input_gradient, microbatch);
  at::Tensor of_x = moves_.added_up(at::mm(gradient, table_->value), of.x);
  head().end();
  head().begin(Phase::weight_gradient, microbatch);
  accumulate_product(table_->gradient, gradient, moves_.gathered(of.x, Phase::weight_gradient));
  if (bias_) accumulate_rows(*bias_, gradient);
  head().end();
  tell_complete();
  return to_payload(std::move(of_x));
}

void HeadPart::weight_gradient(int microbatch) {
  const c10::NoGradGuard no_grad;
  const Microbatch of = ended(microbatch, "W");
  const double scale = gradient_scale(microbatch);
  const at::Tensor of_softmax = scale_of_part(of.part, of.of_all).mul_(scale);
  head().begin(Phase::weight_gradient, microbatch);
  const at::Tensor wide = moves_.gathered(of.x, Phase::weight_gradient).to(of_softmax.scalar_type());
  accumulate_product(table_->gradient, of.softmax, wide.mul(of_softmax).to(of.x.scalar_type()));
  const auto [mine, targets] = own_targets(of.part);
  table_->gradient.index_add_(0, targets, wide.index_select(0, mine), -scale);
  if (bias_) {
    accumulate(*bias_, at::mv(of.softmax.to(of_softmax.scalar_type()).t(), of_softmax.flatten()));
    bias_->gradient.index_add_(0, targets, at::ones_like(targets, bias_->gradient.options()), -scale);
  }
  head().end();
  tell_complete();
}

// Complete, if that was the step's last T.
void HeadPart::tell_complete() {
  for (const auto& block : blocks_) report(*block);
  complete_ = nullptr;
}

void HeadPart::recompute(int microbatch) { refuse("R", microbatch); }
Parcel HeadPart::evict(int microbatch) { refuse("EVICT", microbatch); }
void HeadPart::load(int microbatch, Parcel /*parcel*/) { refuse("LOAD", microbatch); }

void HeadPart::refuse(const char* action, int microbatch) const {
  throw RunError("stage " + std::to_string(settings().stage), std::string(action) + " of microbatch " +
                                                                  std::to_string(microbatch) +
                                                                  " of a head's part, which keeps all that it needs");
}

void HeadPart::end_step() {
  TorchStage::end_step();
  if (microbatches_.empty()) return;
  throw RunError(
      "stage " + std::to_string(settings().stage),
      "the step ended while T of microbatch " + std::to_string(microbatches_.begin()->first) + " is still to come");
}

}  // namespace plumb::exec
