#include "exec/commands/executed_layout.hpp"

#include "common/base/input_errors.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/plan/plan_features.hpp"
#include "exec/stage/supported.hpp"

namespace plumb::exec {
namespace {

constexpr int largest_named_degree = 64;

Purpose purpose_of(const SessionOptions& options) {
  if (options.device == "cpu") return Purpose::hosts;
  return options.transport == "nccl" ? Purpose::devices : Purpose::shared_device;
}

// Emulated ranks wait in the place of a model's kinds: where they compute, require_executed refuses these.
bool is_of_computing(Feature feature) {
  const FeatureGroup group = facts_of(feature).group;
  return group == FeatureGroup::model || group == FeatureGroup::training;
}

bool is_of_layout(const Refusal& refusal) {
  if (refusal.feature == Feature::recompute_by_layer || !is_of_computing(refusal.feature)) return true;
  return refusal.with && !is_of_computing(*refusal.with);
}

void require_features(const Plan& plan, const SessionOptions& options) {
  InputErrors errors;
  for (const Refusal& refusal : refusals(used_features(plan, /*has_profile=*/false), purpose_of(options))) {
    if (!is_of_layout(refusal)) continue;
    errors.add(InputError(plan.name, "its layout is " + describe(plan.layout) + ": " + refusal.problem, refusal.hint));
  }
  errors.throw_if_any();
}

TensorLayout of_degree(const Plan& plan, int degree) {
  TensorLayout tensor = plan.layout.tensor;
  tensor.degree = degree;
  return tensor;
}

bool divides(const Plan& plan, int degree) {
  try {
    require_divided(plan.model, plan.training, of_degree(plan, degree));
  } catch (const InputError&) {
    return false;
  }
  return true;
}

void require_divisible_parts(const Plan& plan) {
  try {
    require_divided(plan.model, plan.training, plan.layout.tensor);
  } catch (const InputError& error) {
    std::string allowed;
    for (int degree = 1; degree <= largest_named_degree; ++degree) {
      if (divides(plan, degree)) allowed += (allowed.empty() ? "" : ", ") + std::to_string(degree);
    }
    throw InputError(plan.name, error.problem(), "executed: tensor degrees of " + allowed);
  }
}

void require_divided_grid(const Plan& plan) {
  try {
    require_divided(plan.model, plan.training, plan.layout.tensor);
  } catch (const InputError& error) {
    throw InputError(plan.name, error.problem(), error.hint());
  }
}

}  // namespace

void require_executed_layout(const Plan& plan, const SessionOptions& options) {
  require_features(plan, options);
  const TensorLayout& tensor = plan.layout.tensor;
  if (tensor.sequence_parallel && tensor.degree == 1) {
    throw InputError(plan.name,
                     "sequence parallelism divides tokens among the ranks of a tensor group, and its tensor "
                     "degree is 1",
                     "plan with sequence_parallel: false, or a tensor degree of at least 2");
  }
  if (tensor.degree == 1) return;
  if (is_grid(tensor)) return require_divided_grid(plan);
  require_divisible_parts(plan);
}

}  // namespace plumb::exec
