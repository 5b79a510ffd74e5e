#include "common/model/operation_list.hpp"

#include <algorithm>
#include <stdexcept>

namespace plumb {
namespace {

// fp32 reciprocal deviation; LayerNorm also the mean.
double statistics_bytes(NormKind kind) { return kind == NormKind::layernorm ? 2 * fp32_bytes : fp32_bytes; }

bool is_composed(const OperationContext& context, NormKind kind) {
  return context.eager_norms && kind == NormKind::rmsnorm;
}

// Elements read and written for each that is normalised. A kernel reads and writes; I reads input and output's gradient
// three times in all, and writes two. Composed, as Llama's reference RMSNorm, with fp32 and 16-bit bytes f and e:
//   F  copy to fp32 e+f, square 2f, mean f, product 2f, copy back f+e, weight 2e
//   I  weight 2e, its own gradient 4e, copy e+f, product 2f, reciprocal deviation 4f, square 7f, their sum 3f, copy f+e
OperationList::Elements norm_elements(const OperationContext& context, NormKind kind, double element) {
  if (!is_composed(context, kind)) return {2, 5};
  const double f = fp32_bytes;
  const double copies = element < f ? 2 * (element + f) : 0;
  return {(copies + 5 * f + 2 * element) / element, (copies + 16 * f + 6 * element) / element};
}

// What a composed one keeps beside a kernel's input and output: the input in fp32 in the input's place, and what is
// multiplied by the weight. In fp32 the input itself.
double composed_bytes(double element) { return (element < fp32_bytes ? fp32_bytes - element : 0) + element; }

}  // namespace

// RMSNorm's I of a framework's operations, of 16-bit values: the output's gradient, the normalised input, and their
// product, in fp32.
constexpr double wide_in_gradient = 3;

OperationList::OperationList(const Model& model, const OperationContext& context, std::string prefix,
                             std::vector<Parameter> parameters)
    : context_(context),
      rotary_(model.positions == Positions::rope),
      element_(real(element_bytes(context.activations))),
      hidden_(real(model.hidden)),
      sequence_(real(context.sequence)),
      prefix_(std::move(prefix)),
      parameters_(std::move(parameters)) {}

Operation& OperationList::add(Operation operation) {
  if (!is_matmul(operation.kind)) latest_ = operation.name;
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
                         .kept_for_weight_bytes = element_ * times * outputs,
                         .shape = {.outputs = parameter.shape[of_experts ? 1 : 0],
                                   .inputs = parameter.shape.back(),
                                   .matrices = of_experts ? parameter.shape.front() : 1,
                                   .times = times,
                                   .bias = has_bias(name)},
                         .input = normed_});
  }
  throw std::logic_error("no parameter " + wanted);
}

bool OperationList::has_bias(const std::string& name) const {
  return std::ranges::any_of(parameters_, [wanted = prefix_ + name + ".bias"](const Parameter& parameter) {
    return parameter.name == wanted;
  });
}

Operation& OperationList::matmul_of_latest(const std::string& name, std::int64_t top_k) {
  Operation& operation = matmul(name, top_k);
  operation.input = latest_;
  return operation;
}

Operation& OperationList::norm(const std::string& name, NormKind kind) {
  Operation& operation = norm_pass(name, kind,
                                   {.until_input_gradient = 2 * element_ * hidden_ + statistics_bytes(kind),
                                    .until_weight_gradient = element_ * hidden_,
                                    .as_input = element_ * hidden_});
  normed_ = name;
  return operation;
}

Operation& OperationList::post_norm(const std::string& name, NormKind kind) {
  return norm_pass(name, kind, {.until_input_gradient = element_ * hidden_ + statistics_bytes(kind)});
}

Operation& OperationList::norm_pass(const std::string& name, NormKind kind, KeptBytes kept) {
  const Elements each = norm_elements(context_, kind, element_);
  if (is_composed(context_, kind)) kept.until_input_gradient += composed_bytes(element_) * hidden_;
  Operation& operation = pass(name, OperationKind::norm, {each.forward * hidden_, each.backward * hidden_}, kept);
  if (context_.framework_on_host && kind == NormKind::rmsnorm && element_ < fp32_bytes) {
    operation.working = {operation.kept_bytes, wide_in_gradient * fp32_bytes * hidden_};
  }
  return operation;
}

Operation& OperationList::core(const std::string& name, OperationKind kind, CoreFlops flops, KeptBytes kept) {
  return add(Operation{.name = name,
                       .kind = kind,
                       .forward = {flops.forward},
                       .input_gradient = {flops.backward},
                       .kept_bytes = kept.until_input_gradient,
                       .kept_for_weight_bytes = kept.until_weight_gradient,
                       .kept_as_input_bytes = kept.as_input});
}

Operation& OperationList::pass(const std::string& name, OperationKind kind, Elements elements, KeptBytes kept) {
  Operation& operation = core(name, kind, {}, kept);
  operation.streamed = {.forward = element_ * elements.forward, .input_gradient = element_ * elements.backward};
  return operation;
}

// F reads both summands and writes their sum; I adds the gradients of residual and branch. Dropout also writes a mask
// of bytes, and I reads it with the gradient that it writes anew.
Operation& OperationList::residual(const std::string& name) {
  Operation& operation = pass(name, OperationKind::residual, {3 * hidden_, 3 * hidden_}, {});
  if (!context_.dropout) return operation;
  operation.streamed.forward += hidden_;
  operation.streamed.input_gradient += (2 * element_ + 1) * hidden_;
  operation.kept_bytes = hidden_;
  return operation;
}

Operation& OperationList::convolution(const std::string& name, double channels, double kernel) {
  const Flops flops = {2 * kernel * channels};
  return add(Operation{.name = name,
                       .kind = OperationKind::convolution,
                       .forward = flops,
                       .input_gradient = flops,
                       .weight_gradient = flops,
                       .kept_bytes = 2 * element_ * channels,
                       .kept_for_weight_bytes = 2 * element_ * channels,
                       .streamed = {.forward = 2 * element_ * channels,
                                    .input_gradient = 3 * element_ * channels,
                                    .weight_gradient = 2 * element_ * channels},
                       .kept_as_input_bytes = element_ * channels});
}

}  // namespace plumb
