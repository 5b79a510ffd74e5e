#include "exec/check.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>

#include "common/base/error.hpp"
#include "common/base/program.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {
namespace {

// One step on one device: F, I and W of one microbatch after the other.
void run_step(TorchStage& stage, std::int64_t step, int microbatches) {
  stage.begin_step(step);
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    (void)stage.forward(microbatch, {});
    (void)stage.input_gradient(microbatch, {});
    stage.weight_gradient(microbatch);
  }
  stage.end_step();
  stage.sum_tied_gradients();
}

// Unit in the last place of the training's precision, relative.
double epsilon_of(ElementType precision) {
  return precision == ElementType::bf16 ? 0x1p-7 : static_cast<double>(std::numeric_limits<float>::epsilon());
}

bool same_bits(const float* a, const float* b, std::size_t count) { return std::memcmp(a, b, count * sizeof *a) == 0; }

at::Tensor wide(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())}, at::kFloat)
      .to(at::kDouble);
}

double frobenius(const at::Tensor& x) { return at::linalg_vector_norm(x, 2).item<double>(); }

// ‖g − g64‖ / max(‖g1 − g64‖, 8·ε·‖g64‖); infinite if g is not finite.
double error_ratio(const at::Tensor& g, const at::Tensor& g1, const at::Tensor& g64, double epsilon) {
  const double error = frobenius(g - g64);
  const double allowed = std::max(frobenius(g1 - g64), 8 * epsilon * frobenius(g64));
  if (error == 0) {
    return 0;
  }
  const double ratio = error / allowed;
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

class Comparison {
 public:
  Comparison(const Plan& plan, const std::shared_ptr<const Corpus>& corpus)
      : plan_(plan),
        corpus_(corpus),
        reference_(whole_model_settings(plan, numerics_of(plan.training.precision)), corpus) {
    reference_.log_routing(&routing_);
  }

  // Trains the reference up to and without the last optimizer step; losses of each step.
  std::vector<double> train(std::size_t steps) {
    std::vector<double> losses;
    Progress progress("checking against a single device: steps");
    for (std::size_t step = 0; step < steps; ++step) {
      if (step > 0) {
        reference_.optimizer_step();
      }
      run_step(reference_, static_cast<std::int64_t>(step), plan_.schedule.microbatches);
      losses.push_back(reference_.loss());
      progress.update(static_cast<int>(step) + 1, static_cast<int>(steps));
    }
    return losses;
  }

  // Names whose bits differ, in the order of the model; every tensor must be there in its size.
  std::vector<std::string> differing(const NamedGradients& gradients) const {
    std::vector<std::string> names;
    for (const WeightPtr& weight : reference_.weights()) {
      const auto found = gradients.find(weight->name);
      if (found == gradients.end()) {
        throw RunError("check", "the run has no gradient of " + weight->name);
      }
      const auto count = static_cast<std::size_t>(weight->gradient.numel());
      if (found->second.size() != count) {
        throw RunError("check", "the run's gradient of " + weight->name + " has another size");
      }
      if (!same_bits(found->second.data(), weight->gradient.const_data_ptr<float>(), count)) {
        names.push_back(weight->name);
      }
    }
    return names;
  }

  // Sets worst_error_ratio and worst_tensor, from a step in fp64 with the reference's weights and routing.
  void weigh_errors(std::size_t last_step, const NamedGradients& gradients, CheckResult& result) {
    Numerics numerics = numerics_of(ElementType::fp64);
    TorchStage exact(whole_model_settings(plan_, numerics), corpus_);
    for (std::size_t index = 0; index < exact.weights().size(); ++index) {
      exact.weights()[index]->value.copy_(reference_.weights()[index]->value);
    }
    routing_.replay = true;
    exact.log_routing(&routing_);
    run_step(exact, static_cast<std::int64_t>(last_step), plan_.schedule.microbatches);
    const double epsilon = epsilon_of(plan_.training.precision);
    for (std::size_t index = 0; index < exact.weights().size(); ++index) {
      const Weight& weight = *exact.weights()[index];
      const double ratio =
          error_ratio(wide(gradients.at(weight.name)), reference_.weights()[index]->gradient.flatten().to(at::kDouble),
                      weight.gradient.flatten(), epsilon);
      if (result.worst_tensor.empty() || ratio > result.worst_error_ratio) {
        result.worst_error_ratio = ratio;
        result.worst_tensor = weight.name;
      }
    }
  }

 private:
  const Plan& plan_;
  const std::shared_ptr<const Corpus>& corpus_;
  RoutingLog routing_;
  TorchStage reference_;
};

std::string describe(const std::vector<double>& losses, const std::vector<double>& expected, std::size_t step) {
  std::ostringstream text;
  text.precision(17);
  text << "loss of step " << step << " is " << losses[step] << ", on a single device " << expected[step];
  return text.str();
}

}  // namespace

CheckResult check(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, const std::vector<double>& losses,
                  const NamedGradients& gradients) {
  if (losses.empty()) {
    throw RunError("check", "there is no step to check");
  }
  Comparison comparison(plan, corpus);
  const std::vector<double> expected = comparison.train(losses.size());
  const std::vector<std::string> differing = comparison.differing(gradients);
  CheckResult result;
  const auto different = std::mismatch(losses.begin(), losses.end(), expected.begin(), [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
  });
  const bool same_losses = different.first == losses.end();
  result.bitwise_equal = differing.empty() && same_losses;
  result.passed = result.bitwise_equal;  // every layout that is executed yet only pipelines
  comparison.weigh_errors(losses.size() - 1, gradients, result);
  if (!same_losses) {
    result.problem = describe(losses, expected, static_cast<std::size_t>(different.first - losses.begin()));
  }
  if (!differing.empty()) {
    result.problem += (result.problem.empty() ? "" : "; ") + std::to_string(differing.size()) +
                      " gradients differ from the single device's, the first is " + differing.front();
  }
  return result;
}

}  // namespace plumb::exec
