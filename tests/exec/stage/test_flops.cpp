// FLOPs by the model's operation list against what LibTorch was asked to multiply, F, I and W apart.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <string_view>

#include "common/model/operations.hpp"
#include "exec/stage/modules/block.hpp"
#include "exec/stage/torch_stage.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr std::int64_t microbatch = 2;

std::int64_t counted = 0;

// 2·n·k·m of every product of two matrices; batched products (attention, recurrences) have other names.
std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const std::size_t first = name == "aten::mm" ? 0 : name == "aten::addmm" || name == "aten::addmm_" ? 1 : 2;
  if (first < 2) {
    const at::Tensor a = function.inputs()[first].toTensor();
    const at::Tensor b = function.inputs()[first + 1].toTensor();
    counted += 2 * a.size(0) * a.size(1) * b.size(1);
  }
  return nullptr;
}

template <class Work>
double counted_during(const Work& work) {
  counted = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count).needsInputs(true));
  work();
  at::removeCallback(handle);
  return static_cast<double>(counted);
}

struct MatmulFlops {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
};

MatmulFlops listed(const std::vector<Operation>& operations) {
  MatmulFlops sum;
  for (const Operation& operation : operations) {
    if (operation.kind == OperationKind::matmul || operation.kind == OperationKind::expert_matmul) {
      sum.forward += operation.forward.value;
      sum.input_gradient += operation.input_gradient.value;
      sum.weight_gradient += operation.weight_gradient.value;
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("Every block multiplies what its operations say") {
  const Model model =
      GENERATE(test::llama(1), test::gpt2(1, true), test::mixtral(1), test::hybrid(), test::gptj(1), test::vit(1));
  const std::int64_t sequence = model.vision ? tokens(*model.vision) : 48;
  const OperationContext context{.sequence = sequence, .activations = ElementType::fp32};
  for (int number = model.vision ? 0 : 1; number < static_cast<int>(model.layers.size()) + 2; ++number) {
    const bool head = number == static_cast<int>(model.layers.size()) + 1;
    const bool patches = number == 0;
    INFO(model.name << ", block " << number);
    const MatmulFlops expected =
        listed(patches ? embedding_operations(model, context)
               : head  ? head_operations(model, context)
                       : layer_operations(model, static_cast<std::size_t>(number - 1), context));
    Block block(model, number, {.sequence = sequence, .seed = 1}, Numerics{});
    const at::Tensor x = patches ? at::randn({microbatch, sequence - 1, embedding_parameters(model)[0].shape[1]})
                                 : at::randn({microbatch, sequence, model.hidden});
    const at::Tensor targets =
        model.vision ? at::zeros({microbatch}, at::kLong) : at::zeros({microbatch, sequence}, at::kLong);
    const Pass pass{.microbatch = 0, .queue = {}, .targets = targets, .routing = nullptr};
    at::Tensor y;
    const auto all_tokens = static_cast<double>(sequence * microbatch);
    CHECK(counted_during([&] { y = block.forward(x, pass, true); }) == Approx(expected.forward * all_tokens));
    CHECK(counted_during([&] { (void)block.input_gradient(0, at::ones_like(y)); }) ==
          Approx(expected.input_gradient * all_tokens));
    CHECK(counted_during([&] { block.weight_gradient(0); }) == Approx(expected.weight_gradient * all_tokens));
  }
}
