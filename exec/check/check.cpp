#include "exec/check/check.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>

#include "common/base/error.hpp"
#include "common/base/program.hpp"
#include "exec/check/error_ratios.hpp"
#include "exec/check/replayed_routing.hpp"
#include "exec/stage/factory.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {
namespace {

constexpr double most_gap = 16;  // of replayed experts, in units of the last place

// Of all that one device does: its steps are as long as those of all ranks together.
class CheckProgress {
 public:
  CheckProgress(std::int64_t microbatches, const Progress::Clock& clock)
      : progress_("checking against a single device: microbatches", clock), total_(microbatches) {}
  void add(int microbatches) { progress_.update(done_ += microbatches, total_); }

 private:
  Progress progress_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

// Of a step, as the whole model's stage counts them: sequences of so many slices, every `stride`-th from `first` up to
// but without `end`.
struct Microbatches {
  int first = 0;
  int end = 0;
  int slices = 1;
  int stride = 1;
};

// One step on one device: one sequence after the other, F of its slices, then I and W of them in reverse.
void run_step(TorchStage& stage, std::int64_t step, const Microbatches& of, CheckProgress& progress) {
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
    progress.add(slices);
  }
  stage.end_step();
}

// Unit in the last place of the training's precision, relative.
double epsilon_of(ElementType precision) {
  return precision == ElementType::bf16 ? 0x1p-7 : static_cast<double>(std::numeric_limits<float>::epsilon());
}

bool same_values(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof *a) == 0;
}

at::Tensor wide(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())}, at::kFloat)
      .to(at::kDouble);
}

at::Tensor wide(const at::Tensor& gradient) { return gradient.cpu().flatten().to(at::kDouble); }

// Of a flat fp64 tensor on the host.
std::span<const double> numbers(const at::Tensor& flat) {
  return {flat.const_data_ptr<double>(), static_cast<std::size_t>(flat.numel())};
}

// Several updates a step, by their rule alone: microbatch after microbatch through all stages on one device.
class UpdatesReference {
 public:
  UpdatesReference(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, c10::Device device)
      : schedule_(plan.schedule) {
    for (int stage = 0; stage < stages(plan.schedule); ++stage) {
      stages_.push_back(std::make_unique<TorchStage>(stage_settings(plan, stage, device), corpus));
    }
  }

  std::vector<double> train(std::size_t steps, const Progress::Clock& clock) {
    std::vector<double> losses;
    CheckProgress progress(static_cast<std::int64_t>(steps) * schedule_.microbatches, clock);
    for (std::size_t step = 0; step < steps; ++step) {
      for (const auto& stage : stages_) stage->begin_step(static_cast<std::int64_t>(step));
      for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) {
        run(microbatch);
        progress.add(1);
      }
      for (const auto& stage : stages_) stage->end_step();
      losses.push_back(stages_.back()->loss());
    }
    return losses;
  }

  [[nodiscard]] std::vector<WeightPtr> weights() const {
    std::vector<WeightPtr> all;
    for (const auto& stage : stages_) {
      all.insert(all.end(), stage->trained_weights().begin(), stage->trained_weights().end());
    }
    return all;
  }

 private:
  void run(int microbatch) {
    Payload value;
    for (const auto& stage : stages_) value = stage->forward(microbatch, std::move(value));
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      value = (*stage)->input_gradient(microbatch, std::move(value));
      (*stage)->weight_gradient(microbatch);
    }
    const bool ends_update = (microbatch + 1) % schedule_.update_every == 0 || microbatch + 1 == schedule_.microbatches;
    if (!ends_update) return;
    for (const auto& stage : stages_) stage->optimizer_step();
  }

  const Schedule& schedule_;
  std::vector<std::unique_ptr<TorchStage>> stages_;
};

// Names whose bits differ, in the order of the model; every tensor must be there in its size.
std::vector<std::string> differing(const std::vector<WeightPtr>& weights, const NamedGradients& gradients) {
  std::vector<std::string> names;
  for (const WeightPtr& weight : weights) {
    const auto found = gradients.find(weight->name);
    if (found == gradients.end()) {
      throw RunError("check", "the run has no gradient of " + weight->name);
    }
    const auto count = static_cast<std::size_t>(weight->gradient.numel());
    if (found->second.size() != count) {
      throw RunError("check", "the run's gradient of " + weight->name + " has another size");
    }
    if (!same_values(found->second.data(), weight->gradient.cpu().const_data_ptr<float>(), count)) {
      names.push_back(weight->name);
    }
  }
  return names;
}

class Comparison {
 public:
  Comparison(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, c10::Device device, const Trained& run,
             const Progress::Clock& clock)
      : plan_(plan),
        corpus_(corpus),
        device_(device),
        all_{.end = plan.schedule.microbatches * plan.layout.data.degree, .slices = plan.schedule.slices},
        progress_((static_cast<std::int64_t>(run.losses.size()) + 1) * all_.end, clock),  // and one step in fp64
        run_(run),
        steps_(run.losses.size()),
        reference_(whole_model_settings(plan, numerics_of(plan.training.precision, device)), corpus) {
    reference_.log_routing(&routing_);
    if (replicas(plan.schedule) == 2) {
      second_ = std::make_unique<TorchStage>(whole_model_settings(plan, numerics_of(plan.training.precision, device)),
                                             corpus);
      second_->log_routing(&routing_);
    }
  }

  // Trains the reference for all steps, up to and without the last optimizer step; losses of each step.
  std::vector<double> train() {
    std::vector<double> losses;
    for (std::size_t step = 0; step < steps_; ++step) {
      if (step > 0) {
        reference_.optimizer_step();
        if (second_) second_->optimizer_step();
      }
      if (step + 1 == steps_) take_over();
      losses.push_back(train_step(static_cast<std::int64_t>(step)));
    }
    return losses;
  }
  // Of what the run has from itself; empty: nothing.
  [[nodiscard]] std::string problem() const {
    std::ostringstream text;
    if (!other_start_.empty()) text << "the run began with other values of " << other_start_;
    if (!text.str().empty()) return text.str();
    const double allowed = most_gap * epsilon_of(plan_.training.precision);
    if (!run_.routing.empty() && !(routing_gap_ <= allowed)) {
      text << "tokens went to experts that are less likely than others by a part of " << routing_gap_
           << ", expected at most " << allowed;
    }
    return text.str();
  }

  [[nodiscard]] const std::vector<WeightPtr>& weights() const { return reference_.trained_weights(); }

  // From a step in fp64 with the reference's weights and routing.
  [[nodiscard]] ErrorRatios error_ratios(const NamedGradients& gradients) {
    TorchStage exact(whole_model_settings(plan_, numerics_of(ElementType::fp64, device_)), corpus_);
    for (std::size_t index = 0; index < exact.weights().size(); ++index) {
      exact.weights()[index]->value.copy_(reference_.weights()[index]->value);
    }
    routing_gap_ = routing_.worst_gap;
    routing_.replay = true;
    exact.log_routing(&routing_);
    run_step(exact, static_cast<std::int64_t>(steps_) - 1, all_, progress_);
    exact.sum_tied_gradients();
    const double epsilon = epsilon_of(plan_.training.precision);
    ErrorRatios ratios;
    for (std::size_t index = 0; index < exact.trained_weights().size(); ++index) {
      const Weight& weight = *exact.trained_weights()[index];
      const at::Tensor run = wide(gradients.at(weight.name));
      const at::Tensor one_device = wide(reference_.trained_weights()[index]->gradient);
      const at::Tensor fp64 = wide(weight.gradient);
      ratios.add(weight.name, error_ratio(numbers(run), numbers(one_device), numbers(fp64), epsilon));
    }
    return ratios;
  }

 private:
  // The run's weights and experts of its last step. Of its only one the weights must be those that the seed gives.
  void take_over() {
    if (!run_.routing.empty()) {
      routing_ = replayed(plan_, run_.routing);
    }
    if (run_.weights.empty()) return;
    for (const WeightPtr& weight : reference_.weights()) {
      const auto found = run_.weights.find(weight->name);
      if (found == run_.weights.end()) throw RunError("check", "the run has no weights of " + weight->name);
      const at::Tensor value = wide(found->second).view(weight->value.sizes()).to(weight->value.options());
      if (steps_ == 1 && !at::equal(value, weight->value) && other_start_.empty()) other_start_ = weight->name;
      weight->value.copy_(value);
    }
  }

  double train_step(std::int64_t step) {
    const bool last = step + 1 == static_cast<std::int64_t>(steps_);
    if (plan_.layout.data.degree > 1 && !last) return run_by_shares(step);
    if (!second_) {
      run_step(reference_, step, all_, progress_);
      reference_.sum_tied_gradients();
      return reference_.loss();
    }
    Microbatches half = all_;
    half.end /= 2;
    run_step(reference_, step, half, progress_);
    half = {.first = half.end, .end = all_.end, .slices = all_.slices};
    run_step(*second_, step, half, progress_);
    reference_.sum_with_replica(*second_);
    return reference_.loss() + second_->loss();
  }

  // Sums as data-parallel ranks do, each share of the batch first, so that the weights of the step that is compared are
  // those of the run by bits: an optimizer makes much of little where a gradient is near nothing.
  double run_by_shares(std::int64_t step) {
    Microbatches share = all_;
    share.stride = plan_.layout.data.degree;
    std::vector<at::Tensor> sums;
    double loss = 0;
    for (; share.first < share.stride * share.slices; share.first += share.slices) {
      run_step(reference_, step, share, progress_);
      reference_.sum_tied_gradients();
      loss += reference_.loss();
      for (std::size_t index = 0; index < weights().size(); ++index) {
        const at::Tensor& gradient = weights()[index]->gradient;
        if (share.first == 0) {
          sums.push_back(gradient.clone());
        } else {
          sums[index].add_(gradient);
        }
      }
    }
    for (std::size_t index = 0; index < sums.size(); ++index) weights()[index]->gradient.copy_(sums[index]);
    return loss;
  }

  const Plan& plan_;
  const std::shared_ptr<const Corpus>& corpus_;
  c10::Device device_;
  Microbatches all_;
  CheckProgress progress_;  // from before the model is made
  const Trained& run_;
  std::size_t steps_;
  RoutingLog routing_;
  double routing_gap_ = 0;
  std::string other_start_;
  TorchStage reference_;
  std::unique_ptr<TorchStage> second_;  // the second replica, if the plan has one
};

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Of losses, which are means of fp32 values; where the logits are of another precision, of values as exact as these.
bool near(double a, double b, double epsilon) {
  constexpr double most_ulps = 8;
  const auto size = static_cast<float>(std::abs(b));
  const double ulp = static_cast<double>(std::nextafter(size, std::numeric_limits<float>::infinity()) - size);
  const double wider = epsilon / static_cast<double>(std::numeric_limits<float>::epsilon());
  return same_bits(a, b) || std::abs(a - b) <= most_ulps * ulp * wider;
}

std::string describe(const std::vector<double>& losses, const std::vector<double>& expected, std::size_t step) {
  std::ostringstream text;
  text.precision(17);
  text << "loss of step " << step << " is " << losses[step] << ", on a single device " << expected[step];
  return text.str();
}

}  // namespace

CheckResult check(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, const Trained& run,
                  const std::string& device, const Progress::Clock& clock) {
  const std::vector<double>& losses = run.losses;
  if (losses.empty()) {
    throw RunError("check", "there is no step to check");
  }
  compute_on_one_thread();
  CheckResult result;
  std::vector<double> expected;
  std::vector<std::string> different_gradients;
  ErrorRatios ratios;
  if (plan.schedule.update_every > 0) {
    UpdatesReference reference(plan, corpus, c10::Device(device));
    expected = reference.train(losses.size(), clock);
    different_gradients = differing(reference.weights(), run.gradients);
  } else {
    Comparison comparison(plan, corpus, c10::Device(device), run, clock);
    expected = comparison.train();
    different_gradients = differing(comparison.weights(), run.gradients);
    ratios = comparison.error_ratios(run.gradients);
    result.worst_error_ratio = ratios.worst().ratio;
    result.worst_tensor = ratios.worst().tensor;
    result.mean_error_ratio = ratios.mean();
    result.problem = comparison.problem();
  }
  const bool divided = plan.layout.tensor.degree > 1;
  const bool one_order = plan.layout.data.degree == 1 && !divided;  // else sums are in another order than on one device
  const double epsilon = epsilon_of(divided ? plan.training.precision : ElementType::fp32);
  const auto same = [&](double a, double b) { return one_order ? same_bits(a, b) : near(a, b, epsilon); };
  // A divided run's first and last step begin with the reference's weights. Between them each goes its own way: an
  // optimizer makes much of little where a gradient is near nothing.
  std::size_t different = 0;
  for (; different < losses.size(); ++different) {
    const bool compared = !divided || different == 0 || different + 1 == losses.size();
    if (compared && !same(losses[different], expected[different])) break;
  }
  const bool same_losses = different == losses.size();
  result.bitwise_equal =
      different_gradients.empty() && std::equal(losses.begin(), losses.end(), expected.begin(), same_bits);
  const std::string far_off = one_order ? "" : ratios.problem(divided);
  result.passed = one_order ? result.bitwise_equal : same_losses && far_off.empty();
  result.passed = result.passed && result.problem.empty();
  if (result.passed) return result;
  const auto add = [&](const std::string& problem) {
    result.problem += (result.problem.empty() ? "" : "; ") + problem;
  };
  if (!same_losses) add(describe(losses, expected, different));
  if (one_order && !different_gradients.empty()) {
    add(std::to_string(different_gradients.size()) + " gradients differ from the single device's, the first is " +
        different_gradients.front());
  }
  if (!far_off.empty()) add(far_off);
  return result;
}

CheckResult check_against_reference(const Plan& plan, const StageOptions& options, const Trained& run,
                                    const Progress::Clock& clock) {
  return check(plan, corpus_of(plan, options), run, options.device, clock);
}

CheckResult check_against_reference(const Plan& plan, const StageOptions& options, const std::vector<double>& losses,
                                    const NamedGradients& gradients, const Progress::Clock& clock) {
  return check_against_reference(plan, options, {.losses = losses, .gradients = gradients}, clock);
}

}  // namespace plumb::exec
