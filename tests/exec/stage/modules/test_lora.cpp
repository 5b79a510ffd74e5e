// LoRA on the executor: gradients against full training's, pipelines against one device, memory, exported files.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "exec/check/check.hpp"
#include "exec/commands/export_weights.hpp"
#include "exec/stage/modules/lora.hpp"
#include "kernels/device/numbers.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"
#include "tests/exec/stage/single_stage.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Lora lora_of(const Model& model, const std::vector<LoraTarget>& targets = {}) {
  return {.rank = 4, .alpha = 6, .targets = targets.empty() ? lora_targets_in(model) : targets};
}

Lora query_and_value(const Model& model) { return lora_of(model, {LoraTarget::query, LoraTarget::value}); }

TorchStage stage_of(const Model& model, const std::optional<Lora>& lora) {
  TorchStageSettings settings = test::whole(model, 32, test::fp64);
  settings.training.lora = lora;
  return TorchStage(settings, test::some_text());
}

std::map<std::string, WeightPtr> by_name(const TorchStage& stage) {
  std::map<std::string, WeightPtr> named;
  for (const WeightPtr& weight : stage.weights()) named[weight->name] = weight;
  return named;
}

std::string owner_of(const std::string& name) { return name.substr(0, name.rfind(".weight")); }

double distance(const at::Tensor& a, const at::Tensor& b) {
  return at::linalg_vector_norm(a - b).item<double>() / (1e-30 + at::linalg_vector_norm(b).item<double>());
}

// B of every adapter with something in it.
void fill_b(const TorchStage& stage) {
  std::uint64_t seed = 1;
  for (const WeightPtr& weight : stage.trained_weights()) {
    const at::Tensor drawn = initial_value({.name = "drawn", .shape = weight->value.sizes().vec()}, seed++);
    if (weight->name.ends_with(".lora_b.weight")) weight->value.copy_(drawn);
  }
}

Plan plan_of(const test::Wanted& wanted, const Lora& lora) {
  Plan plan = test::training_plan(wanted);
  plan.training.lora = lora;
  plan.training.learning_rate = 1e-2;
  return plan;
}

void require_bitwise(const test::Wanted& wanted, const Lora& lora) {
  const Plan plan = plan_of(wanted, lora);
  INFO(plan.name << ", ranks " << wanted.ranks << ", chunks " << wanted.chunks);
  const test::TrainingRun run = test::train(plan, 2);
  for (const auto& [name, values] : run.gradients) {
    CAPTURE(name);
    REQUIRE(name.find(".lora_") != std::string::npos);
    CHECK(std::ranges::any_of(values, [](float value) { return value != 0; }));
  }
  const CheckResult result = check_against_reference(plan, {}, run.losses, run.gradients);
  INFO(result.problem);
  CHECK(result.bitwise_equal);
  CHECK(result.worst_error_ratio <= 1.0);
}

}  // namespace

// With W' = W + s·B·A the loss is that of a model with W' as its weights, so that dA = s·Bᵀ·dW' and dB = s·dW'·Aᵀ,
// where dW' is the gradient of full training (arXiv 2106.09685, equation 3).
TEST_CASE("Adapters compute and learn as their merged matrices would") {
  const Model model =
      GENERATE(test::llama(2), test::mixtral(2), test::gpt2(2, true), test::gptj(2), test::vit(2), test::hybrid());
  for (const Lora& lora : {lora_of(model), query_and_value(model), lora_of(model, {LoraTarget::output})}) {
    TorchStage tuned = stage_of(model, lora);
    TorchStage full = stage_of(model, std::nullopt);
    fill_b(tuned);
    const std::map<std::string, WeightPtr> adapted = by_name(tuned);
    const double scale = lora.alpha / static_cast<double>(lora.rank);
    for (const auto& [name, weight] : by_name(full)) {
      const auto a = adapted.find(owner_of(name) + ".lora_a.weight");
      const at::Tensor base = adapted.at(name)->value;
      if (a == adapted.end()) {
        weight->value.copy_(base);
      } else {
        weight->value.copy_(
            merged(base, a->second->value, adapted.at(owner_of(name) + ".lora_b.weight")->value, scale));
      }
    }
    CAPTURE(model.name, describe(lora));
    CHECK(test::train_step(tuned) == Approx(test::train_step(full)).epsilon(1e-12));
    for (const auto& [name, weight] : by_name(full)) {
      const auto a = adapted.find(owner_of(name) + ".lora_a.weight");
      CHECK_FALSE(adapted.at(name)->is_trained());
      if (a == adapted.end()) continue;
      CAPTURE(name);
      const WeightPtr& b = adapted.at(owner_of(name) + ".lora_b.weight");
      const at::Tensor da = at::matmul(b->value.transpose(-1, -2), weight->gradient) * scale;
      const at::Tensor db = at::matmul(weight->gradient, a->second->value.transpose(-1, -2)) * scale;
      CHECK(distance(a->second->gradient, da) < 1e-10);
      CHECK(distance(b->gradient, db) < 1e-10);
    }
  }
}

TEST_CASE("At the start adapters change nothing") {
  const Model model = test::hybrid();
  TorchStage tuned = stage_of(model, lora_of(model));
  TorchStage full = stage_of(model, std::nullopt);
  CHECK(test::train_step(tuned) == test::train_step(full));
}

TEST_CASE("Every schedule trains adapters like a single device") {
  const Model model = test::hybrid();
  for (const ScheduleEntry& entry : schedule_entries()) {
    const ScheduleShape shape = shape_for(entry, {.chunks = 2, .microbatches = 4, .ranks = 2});
    require_bitwise({.model = model,
                     .schedule = entry.name,
                     .ranks = 2,
                     .chunks = shape.chunks,
                     .microbatches = shape.microbatches,
                     .slices = shape.slices},
                    lora_of(model));
  }
}

TEST_CASE("Adapters of some projections, and stages before the first of them, train like a single device") {
  const Model tied = test::gpt2(4, true);
  require_bitwise({.model = tied, .schedule = "1f1b", .ranks = 4}, query_and_value(tied));
  require_bitwise({.model = tied, .schedule = "zb-h1", .ranks = 2, .precision = ElementType::bf16}, lora_of(tied));
  // Layers without experts come first: two of four stages have no backward.
  Model late = test::llama(4);
  for (std::size_t layer = 2; layer < 4; ++layer) late.layers[layer] = test::mixtral(1).layers.front();
  const Lora experts = lora_of(late, {LoraTarget::experts});
  for (const char* schedule : {"gpipe", "zb-h1", "seq-1f1b", "bpipe"}) {
    const int slices = std::string(schedule) == "seq-1f1b" ? 2 : 1;
    require_bitwise({.model = late, .schedule = schedule, .ranks = 4, .slices = slices}, experts);
  }
  require_bitwise({.model = late, .schedule = "1f1b", .ranks = 4, .recompute = true}, experts);
}

// Here the bits of products over few rows depend on the number of threads.
TEST_CASE("A thread that has computed on several threads checks as the ranks compute") {
  Model late = test::llama(2);
  late.layers.back() = test::mixtral(1).layers.front();
  at::set_num_threads(2);
  (void)at::mm(at::ones({64, 64}), at::ones({64, 64}));
  require_bitwise({.model = late, .schedule = "gpipe", .ranks = 2}, lora_of(late, {LoraTarget::experts}));
  CHECK(at::get_num_threads() == 1);
}

TEST_CASE("LoRA saves fewer activations, as many as predicted") {
  const Model model = test::llama(4);
  const auto kept_of = [&](const std::optional<Lora>& lora) {
    const auto peak = [&](int microbatches) {
      Plan plan = test::training_plan({.model = model, .schedule = "gpipe", .ranks = 1, .microbatches = microbatches});
      plan.training.lora = lora;
      return test::train(plan, 2).peak.front().value;
    };
    return static_cast<double>(peak(9) - peak(1)) / 8;
  };
  const auto predicted = [&](const std::optional<Lora>& lora) {
    Scenario scenario;
    scenario.model = model;
    scenario.training = {.sequence = 32, .lora = lora};
    double sum = 0;
    for (const ComputeCost& block : block_costs(scenario, 2)) sum += static_cast<double>(block.kept_bytes.value);
    return sum;
  };
  const Lora some = query_and_value(model);
  CHECK(kept_of(some) == Approx(predicted(some)).epsilon(0.03));
  CHECK(kept_of(std::nullopt) == Approx(predicted(std::nullopt)).epsilon(0.03));
  CHECK(kept_of(some) < 0.9 * kept_of(std::nullopt));
}

TEST_CASE("Exported weights are the merged ones, adapters have PEFT's names") {
  const Model model = test::mixtral(1);
  const Lora lora = lora_of(model, {LoraTarget::query, LoraTarget::experts});
  const Plan plan = plan_of({.model = model, .schedule = "1f1b", .ranks = 1}, lora);
  const auto stages = make_stages(plan, 0, {});
  NamedGradients weights = kept_weights(stages);
  merge_adapters(plan, weights);
  const std::vector<NamedTensor> tensors = model_tensors(plan, weights);
  // B is zero: merged is the model as it was drawn.
  for (const NamedTensor& tensor : tensors) {
    const Parameter parameter{.name = tensor.name, .shape = tensor.shape};
    if (tensor.shape.size() < 2) continue;
    const at::Tensor drawn = initial_value(parameter, plan.training.seed).contiguous();
    CAPTURE(tensor.name);
    CHECK(std::memcmp(drawn.const_data_ptr(), tensor.values.data(), drawn.nbytes()) == 0);
  }
  const std::string file = to_safetensors(tensors, ElementType::fp32, {{"format", "pt"}});
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  CHECK(header.size() == tensors.size() + 1);
  const NamedTensor& head = *std::ranges::find(tensors, "head.weight", &NamedTensor::name);
  const auto& entry = header.at("head.weight");
  CHECK(entry.at("dtype") == "F32");
  CHECK(entry.at("shape") == std::vector<std::int64_t>{256, 32});
  const std::size_t begin = entry.at("data_offsets").at(0);
  CHECK(std::memcmp(file.data() + 8 + length + begin, head.values.data(), 4 * head.values.size()) == 0);

  const std::vector<NamedTensor> adapters = adapter_tensors(plan, weights);
  CHECK(adapters.size() == 2 * (1 + 3 * 4));
  const std::string prefix = "base_model.model.model.layers.0.";
  const auto shape_of = [&](const std::string& name) {
    const auto found = std::ranges::find(adapters, prefix + name + ".weight", &NamedTensor::name);
    return found == adapters.end() ? std::vector<std::int64_t>{} : found->shape;
  };
  CHECK(shape_of("self_attn.q_proj.lora_A") == std::vector<std::int64_t>{4, 32});
  CHECK(shape_of("self_attn.q_proj.lora_B") == std::vector<std::int64_t>{32, 4});
  CHECK(shape_of("mlp.experts.3.down_proj.lora_A") == std::vector<std::int64_t>{4, 24});
  const auto config = nlohmann::json::parse(adapter_config(plan));
  CHECK(config.at("r") == 4);
  CHECK(config.at("target_modules") == std::vector<std::string>{"down_proj", "gate_proj", "q_proj", "up_proj"});
  Plan full = plan;
  full.training.lora.reset();
  CHECK_THROWS_AS(adapter_tensors(full, weights), InputError);
}

TEST_CASE("bf16 is rounded to the nearest, ties to even") {
  for (const float value : {1.0F, 1.00390625F, 1.01171875F, -3.14159F, 1e-40F, 65504.0F, 3.3e38F}) {
    const at::Tensor rounded = at::full({1}, value, at::kFloat).to(at::kBFloat16);
    std::uint16_t bits = 0;
    std::memcpy(&bits, rounded.const_data_ptr(), sizeof bits);
    CAPTURE(value);
    CHECK(kernels::bf16_bits(value) == bits);
  }
}
