// Whole models on (emulated) kernels: one training step's loss and gradients against fp64, beside LibTorch's
// operations.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "exec/check/check.hpp"
#include "exec/stage/torch_stage.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/emulated_kernels.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/single_stage.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

template <auto Member>
int kernel_calls = 0;

template <auto Member, class Result, class... Arguments>
void count(KernelTable& table, Result (*KernelTable::*)(Arguments...)) {
  kernel_calls<Member> = 0;
  table.*Member = [](Arguments... arguments) -> Result {
    ++kernel_calls<Member>;
    return (test::emulated_kernels().*Member)(arguments...);
  };
}

template <auto... Members>
KernelTable counting() {
  KernelTable table = test::emulated_kernels();
  (count<Members>(table, Members), ...);
  return table;
}

struct Trained {
  double loss = 0;
  std::vector<at::Tensor> gradients;
};

// The routing is the fp64 run's: near ties flip otherwise.
Trained trained(const TorchStageSettings& settings, RoutingLog& routing) {
  TorchStage stage(settings, test::some_text());
  stage.log_routing(&routing);
  Trained made{.loss = test::train_step(stage), .gradients = {}};
  for (const WeightPtr& weight : stage.trained_weights()) made.gradients.push_back(weight->gradient.to(at::kDouble));
  return made;
}

double stage_distance(const at::Tensor& a, const at::Tensor& b) { return at::linalg_vector_norm(a - b).item<double>(); }

// By CheckResult's ratio of errors (exec/stage/factory.hpp).
void require_as_near_as_aten(TorchStageSettings settings, at::ScalarType type, const KernelTable& table) {
  INFO(settings.model.name << ", " << at::toString(type));
  RoutingLog routing;
  settings.numerics = {.compute = at::kDouble, .gradient = at::kDouble, .rounding = type};
  const Trained truth = trained(settings, routing);
  routing.replay = true;
  settings.numerics = {.compute = type, .gradient = at::kFloat, .rounding = type};
  const Trained aten = trained(settings, routing);
  const test::KernelsOnHost kernels(table);
  const Trained found = trained(settings, routing);
  CHECK(found.loss == Approx(aten.loss).epsilon(type == at::kFloat ? 1e-6 : 1e-2));
  REQUIRE(found.gradients.size() == truth.gradients.size());
  double total = 0;
  double of_aten = 0;
  double of_kernels = 0;
  for (std::size_t i = 0; i < truth.gradients.size(); ++i) {
    total += at::linalg_vector_norm(truth.gradients[i]).square().item<double>();
    of_aten += std::pow(stage_distance(aten.gradients[i], truth.gradients[i]), 2);
    of_kernels += std::pow(stage_distance(found.gradients[i], truth.gradients[i]), 2);
  }
  CHECK(std::sqrt(of_aten) <= 0.1 * std::sqrt(total));  // or being as near to it as that would say nothing
  CHECK(std::sqrt(of_kernels) <= 1.5 * std::max(std::sqrt(of_aten), 8 * 0x1p-24 * std::sqrt(total)));
}

}  // namespace

TEST_CASE("A hybrid model trains on kernels as well as on LibTorch's operations") {
  at::set_num_threads(1);
  Model model = test::hybrid();
  for (Layer& layer : model.layers) {
    if (auto* const delta = std::get_if<GatedDelta>(&layer.mixer)) {
      delta->key_dim = 64;
      delta->value_dim = 32;
    }
  }
  using T = KernelTable;
  const KernelTable table =
      counting<&T::rms_norm_forward, &T::rms_norm_input_gradient, &T::rms_norm_weight_gradient, &T::swiglu_forward,
               &T::swiglu_backward, &T::rotary, &T::moe_plan, &T::moe_permute, &T::moe_unpermute,
               &T::moe_unpermute_backward, &T::gated_delta_forward, &T::gated_delta_backward>();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    require_as_near_as_aten(test::whole(model, 24, {}), type, table);
  }
  // Two microbatches; four layers with two norms, one final; two dense MLPs, one shared expert and two of experts; …
  CHECK(kernel_calls<&T::rms_norm_forward> ==
        2 * 2 * (4 * 2 + 1 + 2 + 2));  // two layers normalise the rule's output, one q and k
  CHECK(kernel_calls<&T::rms_norm_input_gradient> == kernel_calls<&T::rms_norm_forward>);
  CHECK(kernel_calls<&T::rms_norm_weight_gradient> == kernel_calls<&T::rms_norm_forward>);
  CHECK(kernel_calls<&T::swiglu_forward> == 2 * 2 * (2 + 1 + 2 + 2));  // the rule's gate as well
  CHECK(kernel_calls<&T::swiglu_backward> == kernel_calls<&T::swiglu_forward>);
  CHECK(kernel_calls<&T::rotary> == 2 * 2 * 2 * (2 + 2));  // q and k of two layers, there and back
  CHECK(kernel_calls<&T::moe_plan> == 2 * 2 * 2);
  CHECK(kernel_calls<&T::moe_permute> == 2 * 2 * 2);
  CHECK(kernel_calls<&T::moe_unpermute> == 2 * 2 * 2 * 2);  // and as permute's backward
  CHECK(kernel_calls<&T::moe_unpermute_backward> == 2 * 2 * 2);
  CHECK(kernel_calls<&T::gated_delta_forward> == 2 * 2 * 2);
  CHECK(kernel_calls<&T::gated_delta_backward> == 2 * 2 * 2);
}

TEST_CASE("LoRA trains on kernels as well as on LibTorch's operations") {
  at::set_num_threads(1);
  using T = KernelTable;
  const KernelTable table = counting<&T::lora_project, &T::lora_backward, &T::lora_add_parts, &T::lora_gradient>();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    TorchStageSettings settings = test::whole(test::llama(2), 24, {});
    settings.training.lora = Lora{.rank = 8, .alpha = 16, .targets = {LoraTarget::query, LoraTarget::value}};
    require_as_near_as_aten(settings, type, table);
  }
  for (const int count : {kernel_calls<&T::lora_project>, kernel_calls<&T::lora_backward>,
                          kernel_calls<&T::lora_add_parts>, kernel_calls<&T::lora_gradient>}) {
    CHECK(count == 2 * 2 * 2 * 2);  // types, microbatches, layers, projections
  }
}

TEST_CASE("Slices of a sequence hand the gated delta rule's state on through the kernels") {
  at::set_num_threads(1);
  const Model model = test::model(
      "linear", {test::layer(GatedDelta{.key_heads = 2, .value_heads = 2, .key_dim = 64, .value_dim = 32, .chunk = 64},
                             test::swiglu_mlp)});
  const Numerics bf16{.compute = at::kBFloat16, .gradient = at::kFloat, .rounding = at::kBFloat16};
  const KernelTable table = counting<&KernelTable::gated_delta_backward>();
  const test::KernelsOnHost kernels(table);
  TorchStage whole(test::whole(model, 128, bf16), test::some_text());
  TorchStage sliced(test::whole(model, 128, bf16, 2), test::some_text());
  CHECK(test::train_step(sliced, 2) == Approx(test::train_step(whole)).epsilon(1e-3));
  CHECK(kernel_calls<&KernelTable::gated_delta_backward> == 2 + 2 * 2);
  for (std::size_t i = 0; i < whole.weights().size(); ++i) {
    INFO(whole.weights()[i]->name);
    const at::Tensor expected = whole.weights()[i]->gradient.to(at::kDouble);
    CHECK(stage_distance(sliced.weights()[i]->gradient.to(at::kDouble), expected) <=
          0.03 * at::linalg_vector_norm(expected).item<double>());
  }
}
