#include "exec/check/check.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "common/base/error.hpp"
#include "common/layout/tensor_grid.hpp"
#include "exec/check/error_ratios.hpp"
#include "exec/check/updates_reference.hpp"
#include "exec/check/whole_model_reference.hpp"
#include "exec/run/step_name.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec {
namespace {

bool same_values(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof *a) == 0;
}

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

std::string describe(const Trained& run, const std::vector<double>& expected, std::size_t step) {
  std::ostringstream text;
  text.precision(17);
  text << "loss of " << step_name(static_cast<std::int64_t>(step), run.warm_up) << " is " << run.losses[step]
       << ", on a single device " << expected[step];
  return text.str();
}

}  // namespace

struct Reference::State {
  Plan plan;
  std::shared_ptr<const Corpus> corpus;
  std::vector<double> losses = {};
  std::unique_ptr<UpdatesReference> updates = {};   // of several a step
  std::unique_ptr<WholeModelReference> whole = {};  // else
};

Reference::Reference(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, const Trained& like,
                     const std::string& device, const CheckWatch& watch)
    : state_(new State{.plan = plan, .corpus = corpus}) {
  if (like.losses.empty()) {
    throw RunError("check", "there is no step to check");
  }
  compute_on_one_thread();
  const c10::Device place(device);
  if (plan.schedule.update_every > 0) {
    state_->updates = std::make_unique<UpdatesReference>(state_->plan, state_->corpus, place, like.start);
    state_->losses = state_->updates->train(like.losses.size(), watch);
  } else {
    state_->whole = std::make_unique<WholeModelReference>(state_->plan, state_->corpus, place, like, watch);
    state_->losses = state_->whole->train(like);
  }
}

Reference::~Reference() = default;

CheckResult Reference::compare(const Trained& run) {
  const Plan& plan = state_->plan;
  const std::vector<double>& losses = run.losses;
  const std::vector<double>& expected = state_->losses;
  if (losses.size() != expected.size()) throw RunError("check", "the run has another number of steps");
  CheckResult result;
  std::vector<std::string> different_gradients;
  ErrorRatios ratios;
  if (state_->updates) {
    different_gradients = differing(state_->updates->weights(), run.gradients);
  } else {
    WholeModelReference& whole = *state_->whole;
    different_gradients = differing(whole.weights(), run.gradients);
    ratios = whole.error_ratios(run.gradients);
    result.worst_error_ratio = ratios.worst().ratio;
    result.worst_tensor = ratios.worst().tensor;
    result.mean_error_ratio = ratios.mean();
    result.problem = whole.problem();
  }
  const bool divided = divides_tensors(plan.layout);
  result.error_ratio_limit = largest_error_ratio(divided);
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
  if (!same_losses) add(describe(run, expected, different));
  if (one_order && !different_gradients.empty()) {
    add(std::to_string(different_gradients.size()) + " gradients differ from the single device's, the first is " +
        different_gradients.front());
  }
  if (!far_off.empty()) add(far_off);
  return result;
}

CheckResult check(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, const Trained& run,
                  const std::string& device, const CheckWatch& watch) {
  return Reference(plan, corpus, run, device, watch).compare(run);
}

CheckResult check_against_reference(const Plan& plan, const StageOptions& options, const Trained& run,
                                    const CheckWatch& watch) {
  return check(plan, corpus_of(plan, options), run, options.device, watch);
}

CheckResult check_against_reference(const Plan& plan, const StageOptions& options, const std::vector<double>& losses,
                                    const NamedGradients& gradients, const CheckWatch& watch) {
  return check_against_reference(plan, options, {.losses = losses, .gradients = gradients}, watch);
}

}  // namespace plumb::exec
