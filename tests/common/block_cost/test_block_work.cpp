// What is remembered of blocks is what they are, whatever was asked before.
#include "common/block_cost/block_work.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <random>
#include <vector>

#include "common/block_cost/analytic_cost.hpp"
#include "tests/catch.hpp"
#include "tests/common/placement/all_models.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

struct Asked {
  Scenario scenario;
  std::size_t block;
  Slice slice;
};

// From the whole scenario.
BlockWork made_anew(const Asked& asked) {
  const KernelContext context = kernel_context(asked.scenario, asked.slice);
  BlockWork work{.shapes = shapes_of_block(asked.scenario, asked.block, operation_context(context)), .program = {}};
  work.program = block_program(work.shapes.operations, context, work.shapes.placed);
  return work;
}

void check_remembered(const Asked& asked) {
  const BlockWork anew = made_anew(asked);
  const auto work = work_of_block(asked.scenario, asked.block, asked.slice);
  CHECK(work->program == anew.program);
  CHECK(work->shapes.operations == anew.shapes.operations);
  CHECK(work->shapes.made == anew.shapes.made);
  CHECK(work->shapes.placed.mesh == anew.shapes.placed.mesh);
  CHECK(share_of_rank(*work, asked.scenario).all == share_of_rank(anew, asked.scenario).all);
  CHECK(share_of_rank(*work, asked.scenario).trained == share_of_rank(anew, asked.scenario).trained);
}

// Each of them changes what a block does.
const std::vector<std::function<void(Scenario&)>>& changes() {
  static const std::vector<std::function<void(Scenario&)>> all{
      [](Scenario&) {},
      [](Scenario& of) { of.layout.tensor.degree = 2; },
      [](Scenario& of) { of.layout.tensor = {.degree = 2, .sequence_parallel = true}; },
      [](Scenario& of) { of.training.microbatch = 3; },
      [](Scenario& of) { of.training.sequence = 64; },
      [](Scenario& of) { of.training.precision = ElementType::fp32; },
      [](Scenario& of) { of.training.lora = Lora{.targets = lora_targets_of("all")}; },
      [](Scenario& of) { of.software.flash_attention = false; },
      [](Scenario& of) { of.software.dropout = true; },
      [](Scenario& of) { of.cluster.machine.device.type = DeviceType::cuda; },  // its attention needs no mask
      [](Scenario& of) { of.model.hidden *= 2; },
      [](Scenario& of) { of.model.layers.front().norms = 1; },
  };
  return all;
}

Scenario scenario_of(const Model& model) {
  Scenario scenario{.model = model};
  scenario.training = {.sequence = model.vision ? tokens(*model.vision) : 128, .precision = ElementType::bf16};
  return scenario;
}

}  // namespace

TEST_CASE("a cached block equals a fresh one for all models, in any order of queries") {
  std::vector<Asked> questions;
  for (const Model& model : models_divided_by({.degree = 2})) {
    const Scenario scenario = scenario_of(model);
    for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
      if (!is_repeated(model, block)) questions.push_back({scenario, block, {}});
    }
    if (model.vision) continue;
    questions.push_back({scenario, 1, {.before = 32, .tokens = 16}});
    questions.push_back({scenario, 1, {.before = 0, .tokens = 128}});  // the whole of it
  }
  std::vector<Asked> changed;
  for (const Asked& asked : questions) {
    for (std::size_t change = asked.scenario.model.vision ? 5 : 0; change < changes().size(); change += 3) {
      changed.push_back(asked);
      changes()[change](changed.back().scenario);
    }
  }
  std::mt19937 random(3);
  for (int round = 0; round < 3; ++round) {
    std::ranges::shuffle(changed, random);
    for (const Asked& asked : changed) {
      CAPTURE(asked.scenario.model.name, asked.block, asked.slice.tokens);
      check_remembered(asked);
    }
  }
}

TEST_CASE("each part of a question tells it from the others, and an equal one has the same answer") {
  const Model gpt{
      .name = "gpt",
      .vocabulary = 512,
      .hidden = 64,
      .layers = {
          Layer{.mixer = SoftmaxAttention{.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 16, .window = 16},
                .mlp = DenseMlp{.width = 128}}}};
  std::vector<std::shared_ptr<const BlockWork>> answers;
  std::vector<std::int64_t> trained;
  for (const auto& change : changes()) {
    Scenario scenario = scenario_of(gpt);
    change(scenario);
    check_remembered({scenario, 1, {}});
    answers.push_back(work_of_block(scenario, 1));
    trained.push_back(share_of_rank(*answers.back(), scenario).trained);
    CHECK(work_of_block(scenario, 1) == answers.back());
    // Neither its name, nor other layers, nor the machine and the schedule.
    scenario.model.name = "other";
    if (!scenario.training.lora) {
      scenario.model.layers.insert(scenario.model.layers.begin(), Layer{.mlp = DenseMlp{.width = 8}});
    }
    scenario.layout.pipeline = 4;
    scenario.cluster.machine.name = "other";
    scenario.training.global_batch = 64;
    CHECK(work_of_block(scenario, scenario.model.layers.size()) == answers.back());
  }
  for (std::size_t answer = 0; answer < answers.size(); ++answer) {
    for (std::size_t other = 0; other < answer; ++other) {
      CHECK(answers[other] != answers[answer]);
      const bool differs = answers[other]->program != answers[answer]->program || trained[other] != trained[answer];
      CHECK(differs);
    }
  }
}
