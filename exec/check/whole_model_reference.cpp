#include "exec/check/whole_model_reference.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <limits>
#include <span>
#include <sstream>

#include "common/base/error.hpp"
#include "exec/check/microbatch_sums.hpp"
#include "exec/check/pairwise_tensors.hpp"
#include "exec/check/replayed_routing.hpp"
#include "exec/stage/primitives/optimizer.hpp"
#include "exec/stage/sharding/shared_out.hpp"

namespace plumb::exec {
namespace {

constexpr double most_gap = 16;  // of replayed experts, in units of the last place

at::Tensor wide(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())}, at::kFloat)
      .to(at::kDouble);
}

at::Tensor wide(const at::Tensor& gradient) { return gradient.cpu().flatten().to(at::kDouble); }

// Of a flat fp64 tensor on the host.
std::span<const double> numbers(const at::Tensor& flat) {
  return {flat.const_data_ptr<double>(), static_cast<std::size_t>(flat.numel())};
}

}  // namespace

double epsilon_of(ElementType precision) {
  return precision == ElementType::bf16 ? 0x1p-7 : static_cast<double>(std::numeric_limits<float>::epsilon());
}

WholeModelReference::WholeModelReference(const Plan& plan, const std::shared_ptr<const Corpus>& corpus,
                                         c10::Device device, const Trained& like, const CheckWatch& watch)
    : plan_(plan),
      corpus_(corpus),
      device_(device),
      all_{.end = plan.schedule.microbatches * plan.layout.data.degree, .slices = plan.schedule.slices},
      progress_((static_cast<std::int64_t>(like.losses.size()) + 1) * all_.end, watch),  // and one step in fp64
      steps_(like.losses.size()),
      start_(like.start),
      reference_(settings(plan.training.precision), corpus) {
  reference_.log_routing(&routing_);
  if (replicas(plan.schedule) == 2) {
    second_ = std::make_unique<TorchStage>(settings(plan.training.precision), corpus);
    second_->log_routing(&routing_);
  }
}

TorchStageSettings WholeModelReference::settings(ElementType precision) const {
  TorchStageSettings made = whole_model_settings(plan_, numerics_of(precision, device_));
  made.weights = start_;
  return made;
}

std::vector<double> WholeModelReference::train(const Trained& run) {
  std::vector<double> losses;
  for (std::size_t step = 0; step < steps_; ++step) {
    if (step > 0) {
      restore_weights();
      reference_.optimizer_step();
      if (second_) second_->optimizer_step();
    }
    if (step + 1 == steps_) take_over(run);
    round_weights();
    losses.push_back(train_step(static_cast<std::int64_t>(step)));
    clip();
  }
  return losses;
}

// As ranks that share them out get them in blocks of integers.
void WholeModelReference::round_weights() {
  if (!plan_.layout.data.quantized_weights) return;
  for (const WeightPtr& weight : reference_.weights()) {
    kept_.push_back(weight->value.clone());
    round_in_parts(weight->value, state_shards(plan_.layout));
  }
}

void WholeModelReference::restore_weights() {
  for (std::size_t index = 0; index < kept_.size(); ++index) {
    reference_.weights()[index]->value.copy_(kept_[index]);
  }
  kept_.clear();
}

void WholeModelReference::clip() {
  const double limit = plan_.training.gradient_clipping;
  if (limit == 0) return;
  reference_.find_squares();
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  const double scale = clipping_scale(std::sqrt(reference_.squares().sum()), limit);
  if (scale == 1) return;
  reference_.scale_gradients(scale);
  if (second_) second_->scale_gradients(scale);
}

std::string WholeModelReference::problem() const {
  std::ostringstream text;
  if (!other_start_.empty()) text << "the run began with other values of " << other_start_;
  if (!text.str().empty()) return text.str();
  const double allowed = most_gap * epsilon_of(plan_.training.precision);
  if (takes_routing_ && !(routing_gap_ <= allowed)) {
    text << "tokens went to experts that are less likely than others by a part of " << routing_gap_
         << ", expected at most " << allowed;
  }
  return text.str();
}

ErrorRatios WholeModelReference::error_ratios(const NamedGradients& gradients) {
  if (exact_.empty()) make_exact();
  const double epsilon = epsilon_of(plan_.training.precision);
  ErrorRatios ratios;
  for (std::size_t index = 0; index < exact_.size(); ++index) {
    const Weight& weight = *exact_[index];
    const at::Tensor run = wide(gradients.at(weight.name));
    const at::Tensor one_device = wide(reference_.trained_weights()[index]->gradient);
    const at::Tensor fp64 = wide(weight.gradient);
    ratios.add(weight.name, error_ratio(numbers(run), numbers(one_device), numbers(fp64), epsilon));
  }
  return ratios;
}

// With the reference's weights and routing.
void WholeModelReference::make_exact() {
  TorchStage exact(settings(ElementType::fp64), corpus_);
  for (std::size_t index = 0; index < exact.weights().size(); ++index) {
    exact.weights()[index]->value.copy_(reference_.weights()[index]->value);
  }
  routing_gap_ = routing_.worst_gap;
  routing_.replay = true;
  exact.log_routing(&routing_);
  run_step(exact, static_cast<std::int64_t>(steps_) - 1, all_);
  exact.sum_tied_gradients();
  exact_ = exact.trained_weights();
  const double limit = plan_.training.gradient_clipping;
  if (limit == 0) return;
  double squares = 0;
  for (const WeightPtr& weight : exact_) squares += weight->gradient.square().sum().item<double>();
  exact.scale_gradients(clipping_scale(std::sqrt(squares), limit));
}

// The run's weights and experts of its last step. Of its only one the weights must be those that the seed gives.
void WholeModelReference::take_over(const Trained& run) {
  takes_routing_ = !run.routing.empty();
  if (takes_routing_) {
    routing_ = replayed(plan_, run.routing);
  }
  if (run.weights.empty()) return;
  for (const WeightPtr& weight : reference_.weights()) {
    const auto found = run.weights.find(weight->name);
    if (found == run.weights.end()) throw RunError("check", "the run has no weights of " + weight->name);
    const at::Tensor value = wide(found->second).view(weight->value.sizes()).to(weight->value.options());
    if (steps_ == 1 && !at::equal(value, weight->value) && other_start_.empty()) other_start_ = weight->name;
    weight->value.copy_(value);
  }
}

double WholeModelReference::train_step(std::int64_t step) {
  const bool last = step + 1 == static_cast<std::int64_t>(steps_);
  // What was rounded on its way is no rounding of sums in another order: it is made here, too.
  const bool as_ranks = !last || plan_.layout.data.quantized_gradients > 0;
  if (plan_.layout.data.degree > 1 && as_ranks) {
    return reduces_in_actions(plan_.layout) ? MicrobatchSums(reference_, plan_).train(step, progress_)
                                            : run_by_shares(step);
  }
  if (!second_) {
    run_step(reference_, step, all_);
    reference_.sum_tied_gradients();
    return reference_.loss();
  }
  Microbatches half = all_;
  half.end /= 2;
  run_step(reference_, step, half);
  half = {.first = half.end, .end = all_.end, .slices = all_.slices};
  run_step(*second_, step, half);
  reference_.sum_with_replica(*second_);
  return reference_.loss() + second_->loss();
}

// Sums as data-parallel ranks do, each share of the batch first, so that the weights of the step that is compared are
// those of the run by bits: an optimizer makes much of little where a gradient is near nothing. Where there are several
// copies of the states, the shares of each copy first.
double WholeModelReference::run_by_shares(std::int64_t step) {
  Microbatches share = all_;
  share.stride = plan_.layout.data.degree;
  const int of_copy = state_shards(plan_.layout) > 1 ? state_shards(plan_.layout) : share.stride;
  std::vector<PairwiseTensors> sums(weights().size());
  std::vector<PairwiseTensors> over_copies(weights().size());
  double loss = 0;
  for (int number = 1; number <= share.stride; ++number, share.first += share.slices) {
    run_step(reference_, step, share);
    reference_.sum_tied_gradients();
    loss += reference_.loss();
    for (std::size_t index = 0; index < sums.size(); ++index) {
      sums[index].add(weights()[index]->gradient);
      if (number % of_copy == 0) over_copies[index].add(sums[index].total());
    }
  }
  for (std::size_t index = 0; index < sums.size(); ++index) {
    weights()[index]->gradient.copy_(over_copies[index].total());
  }
  return loss;
}

// One step on one device: one sequence after the other, F of its slices, then I and W of them in reverse.
void WholeModelReference::run_step(TorchStage& stage, std::int64_t step, const Microbatches& of) {
  const int slices = of.slices;
  stage.begin_step(step);
  for (int sequence = of.first; sequence < of.end; sequence += slices * of.stride) {
    for (int slice = 0; slice < slices; ++slice) {
      (void)stage.forward(sequence + slice, {});
    }
    for (int slice = slices; slice-- > 0;) {
      (void)stage.input_gradient(sequence + slice, {});
      stage.weight_gradient(sequence + slice);
    }
    progress_.add(slices);
  }
  stage.end_step();
}

}  // namespace plumb::exec
