// LoRA: what is trained, what each block then does and keeps, and the split that follows.
#include "common/model/lora.hpp"

#include <algorithm>

#include "common/block_cost/block_costs.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/plan/steps.hpp"
#include "tests/common/split/all_splits.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// hidden 4096, 32 heads, 8 of keys and values, three matrices of 14336: llama-3-8b.
Model llama(int layers, std::int64_t kv_heads = 8, std::int64_t width = 14336) {
  const SoftmaxAttention attention{.heads = 32, .kv_heads = kv_heads, .head_dim = 128, .value_dim = 128};
  return {.name = "llama",
          .vocabulary = 128256,
          .hidden = 4096,
          .layers = std::vector<Layer>(static_cast<std::size_t>(layers),
                                       Layer{.mixer = attention, .mlp = DenseMlp{.width = width}})};
}

// Of llama, in formulas: hidden, what keys and values are, an MLP matrix; and the rank of the adapters.
constexpr double h = 4096;
constexpr double kv = 1024;
constexpr double f = 14336;
constexpr double r = 16;

Lora lora_of(std::int64_t rank, const std::vector<std::string>& names, const Model& model) {
  Lora lora{.rank = rank, .alpha = 2.0 * static_cast<double>(rank), .targets = {}};
  for (const std::string& name : names) {
    for (const LoraTarget target : lora_targets_of(name)) {
      const std::vector<LoraTarget> in_model = lora_targets_in(model);
      if (std::ranges::find(in_model, target) != in_model.end()) lora.targets.push_back(target);
    }
  }
  std::ranges::sort(lora.targets);
  return lora;
}

OperationTotals layer_totals(const Model& model, const std::optional<Lora>& lora, bool below) {
  const std::vector<Operation> operations = layer_operations(model, 0, {.sequence = 1024});
  return totals(lora ? with_adapters(operations, *lora, 2, below) : operations);
}

std::string model_text(const std::string& layers, const std::string& more = "") {
  return "model:\n  vocabulary: 512\n  hidden: 256\n  heads: 4\n  kv_heads: 2\n  ffn: 512\n  window: 64\n" + more +
         "  experts: {count: 8, top_k: 2, ffn: 512, shared: 1}\n  layers: \"" + layers + "\"\n";
}

std::string scenario_of(const std::string& layers, const std::string& lora, int ranks, const std::string& more = "") {
  return model_text(layers, more) + "cluster: {machine: local-cpu, ranks: " + std::to_string(ranks) +
         ", cores: " + std::to_string(ranks) + "}\nlayout: {pipeline: " + std::to_string(ranks) +
         "}\nschedule: 1f1b\ntraining: {sequence: 256, global_batch: 8, microbatch: 1, precision: fp32" + lora + "}\n";
}

Step step_with(const Scenario& scenario, const SplitChoice& split) {
  PlanChoice choice = only_choice(scenario);
  choice.split = split;
  return step_of(make_plan(scenario, choice));
}

}  // namespace

TEST_CASE("trainable parameters are those that other programs print") {
  // PEFT's print_trainable_parameters for Llama 3 8B: "trainable params: 6,815,744 || all params: 8,037,076,992" at
  // rank 16 on q_proj and v_proj; rank 16 on all seven projections is printed as 41,943,040.
  const Model llama_3 = llama(32);
  const Lora two = lora_of(16, {"q_proj", "v_proj"}, llama_3);
  CHECK(trained_parameters(llama_3, two) == 6'815'744);
  CHECK(trained_parameters(llama_3, two) + count_parameters(llama_3).total == 8'037'076'992);
  CHECK(trained_parameters(llama_3, lora_of(16, {"all"}, llama_3)) == 41'943'040);
  // Llama 2 7B, rank 8 on q_proj and v_proj: 4,194,304.
  const Model llama_2 = llama(32, 32, 11008);
  CHECK(trained_parameters(llama_2, lora_of(8, {"query", "value"}, llama_2)) == 4'194'304);
  // arXiv 2106.09685, section 5.5 and table 4: 2 · L · d · r parameters for L adapted d × d matrices, GPT-3 175B with
  // rank 1 on query and value: 4.7 M, rank 8: 37.7 M.
  Model gpt_3 = llama(96);
  gpt_3.hidden = 12288;
  for (Layer& layer : gpt_3.layers)
    layer.mixer = SoftmaxAttention{.heads = 96, .kv_heads = 96, .head_dim = 128, .value_dim = 128};
  CHECK(trained_parameters(gpt_3, lora_of(1, {"q", "v"}, gpt_3)) == 2 * (2 * 96) * 12288 * 1);
  CHECK(trained_parameters(gpt_3, lora_of(8, {"q", "v"}, gpt_3)) == 37'748'736);
}

TEST_CASE("every adapted matrix has rank times the sum of its sides, experts each") {
  const Model model = read_text(scenario_of("linear/dense, full/moe", "", 2)).model;
  for (const LoraTarget target : lora_targets_in(model)) {
    const Lora lora{.rank = 5, .alpha = 5, .targets = {target}};
    std::int64_t expected = 0;
    for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
      for (const Parameter& parameter : layer_parameters(model, layer)) {
        const std::string name = parameter.name.substr(9, parameter.name.size() - 9 - 7);  // "layers.0." … ".weight"
        if (parameter.shape.size() < 2 || !adapts(lora, name)) continue;
        const std::int64_t sides = parameter.shape.back() + parameter.shape[parameter.shape.size() - 2];
        expected += 5 * sides * (parameter.shape.size() == 3 ? parameter.shape.front() : 1);
      }
    }
    CAPTURE(lora_target_names()[static_cast<std::size_t>(target)]);
    CHECK(expected > 0);
    CHECK(trained_parameters(model, lora) == expected);
  }
}

TEST_CASE("F and I have the adapters on top, W has nothing else") {
  const Model model = llama(2);
  const double sides = (h + h) + (h + kv);  // of query and value
  const OperationTotals full = layer_totals(model, std::nullopt, true);
  const OperationTotals tuned = layer_totals(model, lora_of(16, {"query", "value"}, model), true);
  CHECK(tuned.forward.value == full.forward.value + 2 * r * sides);
  CHECK(tuned.input_gradient.value == full.input_gradient.value + 2 * r * sides);
  CHECK(tuned.weight_gradient.value == 2 * r * sides);
}

TEST_CASE("the first layer with adapters passes no gradient on to what is before them") {
  const Model model = llama(2);
  const double full = layer_totals(model, std::nullopt, true).input_gradient.value;
  // Of q, k and v nothing goes on: only dy · B of the adapters is made.
  const double attention_inputs = 2 * h * (h + 2 * kv);
  CHECK(layer_totals(model, lora_of(16, {"query", "value"}, model), false).input_gradient.value ==
        full - attention_inputs + 2 * r * (h + kv));
  // Adapters of the down projection alone: neither attention nor the up projection has a backward.
  CHECK(layer_totals(model, lora_of(16, {"down_proj"}, model), false).input_gradient.value == 2 * r * h);
  // Of the output projection: the whole MLP, and of attention nothing.
  CHECK(layer_totals(model, lora_of(16, {"o_proj"}, model), false).input_gradient.value == 2 * h * 3 * f + 2 * r * h);
  // Without an adapter: nothing at all, and nothing kept.
  const OperationTotals none = layer_totals(model, Lora{.targets = {LoraTarget::experts}}, false);
  CHECK(none.input_gradient.value == 0);
  CHECK(none.weight_gradient.value == 0);
  CHECK(none.kept_bytes == 0);
  CHECK(none.kept_for_weight_bytes == 0);
}

TEST_CASE("kept is what the adapters' W and the frozen layers' I need") {
  const Model model = llama(2);
  // bf16: inputs of both norms and their statistics; the first norm's output, which query and value multiply; q, k, v,
  // the attention's output and its sums; gate and up, not their product; x · A of both.
  const double common = 2 * 2 * h + 8 + (2 * h + 2 * 2 * kv + 2 * h + 4 * 32) + 4 * f;
  const OperationTotals two = layer_totals(model, lora_of(16, {"query", "value"}, model), true);
  CHECK(two.kept_bytes == common + 2 * h + 2 * 2 * r);
  // Until W: the norm's output, the gradients of q and v, x · A and dy · B of both.
  CHECK(two.kept_for_weight_bytes == 2 * h + 2 * h + 2 * kv + 2 * 2 * 2 * r);
  // The down projection: the product of gate and up, not the norms' outputs.
  const OperationTotals down = layer_totals(model, lora_of(16, {"down"}, model), true);
  CHECK(down.kept_bytes == common + 2 * f + 2 * r);
  CHECK(down.kept_for_weight_bytes == 2 * f + 2 * h + 2 * 2 * r);
  // All seven: as much as without LoRA, and x · A.
  const OperationTotals all = layer_totals(model, lora_of(16, {"all"}, model), true);
  CHECK(all.kept_bytes == layer_totals(model, std::nullopt, true).kept_bytes + 7 * 2 * r);
}

TEST_CASE("frozen weights have no gradient, no states and no step") {
  const std::string layers = "full/dense*4";
  const Scenario full = read_text(scenario_of(layers, "", 2));
  const Scenario tuned = read_text(scenario_of(layers, ", lora: {rank: 4}", 2));
  REQUIRE(tuned.training.lora == Lora{.rank = 4, .alpha = 4, .targets = {LoraTarget::query, LoraTarget::value}});
  const std::vector<ComputeCost> before = block_costs(full, 1);
  const std::vector<ComputeCost> after = block_costs(tuned, 1);
  const std::int64_t adapters = 4 * (256 + 256) + 4 * (256 + 128);
  for (std::size_t block = 0; block < after.size(); ++block) {
    CAPTURE(block);
    const bool layer = block > 0 && block + 1 < after.size();
    const std::int64_t own = layer ? adapters : 0;
    CHECK(after[block].parameters == before[block].parameters + own);
    CHECK(after[block].parameter_bytes.value == 4 * after[block].parameters);
    CHECK(after[block].gradient_bytes.value == 4 * own);
    CHECK(after[block].optimizer_bytes.value == 8 * own);
    CHECK((after[block].optimizer.value > 0) == layer);
    CHECK((after[block].weight_gradient.value > 0) == layer);
    CHECK(after[block].kept_bytes < before[block].kept_bytes);
  }
  CHECK(after.front().input_gradient.value == 0);
  CHECK(after.front().kept_bytes.value == 0);
  CHECK(after[1].input_gradient < after[2].input_gradient);  // the first layer passes nothing on
  CHECK(after[2] == after[3]);
}

TEST_CASE("layers before the first adapter have neither backward nor anything kept") {
  const Scenario scenario =
      read_text(scenario_of("full/dense*2, full/moe*2", ", lora: {targets: experts}, recompute: full", 2));
  const std::vector<ComputeCost> blocks = block_costs(scenario, 1);
  for (const std::size_t block : {0, 1, 2}) {
    CHECK(backward_time(blocks[block]).value == 0);
    CHECK(blocks[block].kept_bytes.value == 0);
    CHECK(blocks[block].forward.value > 0);
  }
  CHECK(backward_time(blocks[3]).value > 0);
  CHECK(blocks[3].input_gradient < blocks[4].input_gradient);
}

TEST_CASE("a frozen tied table is copied, not reduced") {
  const auto plan_of = [](const std::string& lora) {
    const Scenario scenario = read_text(scenario_of("full/dense*4", lora, 2, "  tied_embeddings: true\n"));
    return make_plan(scenario, only_choice(scenario));
  };
  const Plan full = plan_of("");
  const Plan tuned = plan_of(", lora: {}");
  CHECK(tied_over_ranks(full));
  CHECK_FALSE(tied_over_ranks(tuned));
  CHECK(tuned.costs.tied_bytes.value == 0);
  const auto is_tied = [](const Action& action) { return action.kind == ActionKind::reduce_tied; };
  CHECK(std::ranges::any_of(lowered_schedule(full).actions[0], is_tied));
  CHECK_FALSE(std::ranges::any_of(lowered_schedule(tuned).actions[0], is_tied));
  CHECK(tuned.costs.stages.back().parameter_bytes.value >= 4 * 512 * 256);
}

TEST_CASE("a tensor group divides B of column-parallel and A of row-parallel projections") {
  const auto trained_on = [](int tensor, const std::string& target) {
    const Scenario scenario =
        read_text(model_text("full/dense*2") + "cluster: {machine: dgx-h100, ranks: " + std::to_string(tensor) +
                  "}\nlayout: {pipeline: 1, tensor: {degree: " + std::to_string(tensor) +
                  "}}\ntraining: {sequence: 256, global_batch: 8, lora: {rank: 4, targets: " + target + "}}\n");
    return block_costs(scenario, 1)[1].gradient_bytes.value / 4;
  };
  CHECK(trained_on(1, "query") == 4 * 256 + 4 * 256);
  CHECK(trained_on(2, "query") == 4 * 256 + 4 * 128);
  CHECK(trained_on(1, "down") == 4 * 512 + 4 * 256);
  CHECK(trained_on(2, "down") == 4 * 256 + 4 * 256);
}

TEST_CASE("the dynamic split with LoRA is the best of all cuts, and another one than without") {
  // Full attention over 1024 tokens has more that is no matmul of weights, and whose W there never was.
  const std::string layers = "sliding/moe*6, full/dense*8";
  const auto read = [&](const std::string& lora) {
    std::string text = scenario_of(layers, lora, 2);
    text.replace(text.find("vocabulary: 512"), 15, "vocabulary: 4096");
    text.replace(text.find("sequence: 256"), 13, "sequence: 1024");
    return read_text(text);
  };
  const std::string two = ", lora: {rank: 8, targets: [query, value]}";
  std::vector<Split> chosen;
  for (const std::string& lora : {std::string(), two}) {
    const Scenario scenario = read(lora);
    const Step best = step_with(scenario, {.method = SplitMethod::dynamic});
    CAPTURE(lora);
    for (int first = 0; first <= 14; ++first) {
      const Split split{{first, 14 - first}};
      CAPTURE(split.layers);
      const Seconds other = step_with(scenario, counts_of(split)).time;
      if (split == best.split) {
        CHECK(other == best.time);
      } else {
        CHECK(other > best.time);
      }
    }
    chosen.push_back(best.split);
  }
  CHECK(chosen[0] != chosen[1]);
}

// All ways to cut twice, by the longest path.
TEST_CASE("with LoRA too no cut takes a shorter step than the dynamic split") {
  for (const char* layers : {"linear/dense*2, full/moe*2, sliding/dense*2, linear/moe, full/dense*2, full/moe",
                             "full/dense*5, full/moe*5", "linear/dense*5, full/moe*5"}) {
    for (const char* targets : {"[query, value]", "experts", "all"}) {
      const Scenario scenario = read_text(scenario_of(layers, std::string(", lora: {targets: ") + targets + "}", 3));
      Seconds best{1e9};
      for_all_splits(10, 3,
                     [&](const Split& split) { best = std::min(best, step_with(scenario, counts_of(split)).time); });
      CAPTURE(layers, targets);
      CHECK(step_with(scenario, {.method = SplitMethod::dynamic}).time.value <= best.value * (1 + 1e-9));
    }
  }
}

TEST_CASE("a plan carries LoRA, and its costs follow from it") {
  const Scenario scenario =
      read_text(scenario_of("full/dense*4", ", lora: {rank: 4, alpha: 16, targets: [o_proj, up]}", 2));
  const Plan plan = make_plan(scenario, only_choice(scenario));
  const TemporaryFolder folder;
  const Plan again = read_plan(folder.write("plan.json", to_json(plan)));
  CHECK(again == plan);
  REQUIRE(again.training.lora);
  CHECK(again.training.lora->targets == std::vector<LoraTarget>{LoraTarget::output, LoraTarget::up});
  CHECK(predicted_costs(again) == plan.costs);
  std::string twice = to_json(plan);
  const std::size_t at = twice.find("\"up\"");
  REQUIRE(at != std::string::npos);
  twice.replace(at, 4, "\"output\"");
  CHECK_THROWS_AS(read_plan(folder.write("twice.json", twice)), InputError);
}

TEST_CASE("LoRA with targets that do not exist, twice, or in no layer is refused where it stands") {
  const auto message = [](const std::string& lora) { return message_for(scenario_of("full/dense*4", lora, 2)); };
  CHECK_THAT(message(", lora: {rnk: 4}"), ContainsSubstring("did you mean 'rank'?"));
  CHECK_THAT(message(", lora: {rank: 0}"), ContainsSubstring("a whole number from 1"));
  CHECK_THAT(message(", lora: {rank: 257}"), ContainsSubstring("256"));
  CHECK_THAT(message(", lora: {targets: [q_prj]}"), ContainsSubstring("scenario.yaml:") &&
                                                        ContainsSubstring("there is no projection 'q_prj'") &&
                                                        ContainsSubstring("did you mean 'q_proj'?"));
  CHECK_THAT(message(", lora: {targets: experts}"),
             ContainsSubstring("no layer of this model has the projection 'experts'") &&
                 ContainsSubstring("it has query, key, value, output, gate, up, down"));
  CHECK_THAT(message(", lora: {targets: [query, linear_qkv]}"), ContainsSubstring("query stands twice"));
  CHECK_THAT(message(", lora: {targets: []}"), ContainsSubstring("the list is empty"));
  CHECK_THAT(message(", lora: 16"), ContainsSubstring("not '16'") && ContainsSubstring("lora: {rank: 16}"));
  CHECK_FALSE(read_text(scenario_of("full/dense*4", ", lora: none", 2)).training.lora);
}
