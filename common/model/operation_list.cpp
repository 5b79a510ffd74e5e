#include "common/model/operation_list.hpp"

#include <stdexcept>

namespace plumb {
namespace {

// fp32 reciprocal deviation; LayerNorm also the mean.
double statistics_bytes(NormKind kind) { return kind == NormKind::layernorm ? 2 * fp32_bytes : fp32_bytes; }

}  // namespace

OperationList::OperationList(const Model& model, const OperationContext& context, std::string prefix,
                             std::vector<Parameter> parameters)
    : element_(real(element_bytes(context.activations))),
      hidden_(real(model.hidden)),
      sequence_(real(context.sequence)),
      prefix_(std::move(prefix)),
      parameters_(std::move(parameters)) {}

Operation& OperationList::add(Operation operation) {
  operations_.push_back(std::move(operation));
  return operations_.back();
}

Operation& OperationList::matmul(const std::string& name, std::int64_t top_k, double share) {
  const std::string wanted = prefix_ + name + ".weight";
  for (const Parameter& parameter : parameters_) {
    if (parameter.name != wanted) continue;
    const bool of_experts = parameter.role == ParameterRole::expert_matmul;
    const double times = share * real(top_k);
    const double outputs = real(parameter.shape[of_experts ? 1 : 0]);
    const double inputs = real(parameter.shape.back());
    const Flops flops = {2 * times * outputs * inputs};
    return add(Operation{.name = name,
                         .kind = of_experts ? OperationKind::expert_matmul : OperationKind::matmul,
                         .forward = flops,
                         .input_gradient = flops,
                         .weight_gradient = flops,
                         .kept_for_weight_bytes = element_ * times * outputs});
  }
  throw std::logic_error("no parameter " + wanted);
}

Operation& OperationList::norm(const std::string& name, NormKind kind) {
  return pass(name, OperationKind::norm,
              {.until_input_gradient = 2 * element_ * hidden_ + statistics_bytes(kind),
               .until_weight_gradient = element_ * hidden_});
}

Operation& OperationList::post_norm(const std::string& name, NormKind kind) {
  return pass(name, OperationKind::norm, {.until_input_gradient = element_ * hidden_ + statistics_bytes(kind)});
}

Operation& OperationList::core(const std::string& name, OperationKind kind, CoreFlops flops, KeptBytes kept) {
  return add(Operation{.name = name,
                       .kind = kind,
                       .forward = {flops.forward},
                       .input_gradient = {flops.backward},
                       .kept_bytes = kept.until_input_gradient,
                       .kept_for_weight_bytes = kept.until_weight_gradient});
}

Operation& OperationList::pass(const std::string& name, OperationKind kind, KeptBytes kept) {
  return core(name, kind, {}, kept);
}

Operation& OperationList::convolution(const std::string& name, double channels, double kernel) {
  const Flops flops = {2 * kernel * channels};
  return add(Operation{.name = name,
                       .kind = OperationKind::convolution,
                       .forward = flops,
                       .input_gradient = flops,
                       .weight_gradient = flops,
                       .kept_bytes = 2 * element_ * channels,
                       .kept_for_weight_bytes = 2 * element_ * channels});
}

OperationMessage reduced_over_tensor(double bytes) {
  return {.axis = OperationMessage::Axis::tensor,
          .collective = OperationMessage::Collective::all_reduce,
          .bytes_per_token = bytes};
}

}  // namespace plumb
