// Costs of blocks: states by hand, times against FLOPs and bytes, profiles taken at their own shapes only.
#include "common/block_cost/block_costs.hpp"

#include <algorithm>
#include <set>

#include "common/block_cost/group_placement.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

Scenario small(const std::string& rest = "") {
  return read_text(scenario_text("training: {sequence: 32, global_batch: 8, microbatch: 2}\n" + rest));
}

Profile profile_of(const Scenario& scenario) {
  Profile profile{.machine = "this host",
                  .samples = 7,
                  .shapes = {.model = "any name",
                             .model_digest = model_digest(scenario.model),
                             .sequence = 32,
                             .microbatch = 2,
                             .precision = ElementType::fp32}};
  std::set<std::string> keys;
  const int last = static_cast<int>(scenario.model.layers.size()) + 1;
  for (int block = 0; block <= last; ++block) {
    if (!keys.insert(block_key(scenario.model, block)).second) continue;
    MeasuredBlock measured{.block = block_key(scenario.model, block)};
    measured.cost.forward = {0.001 * (block + 1)};
    measured.cost.kept_bytes = {1000 + block};
    profile.blocks.push_back(measured);
  }
  return profile;
}

}  // namespace

// arXiv 1910.02054, section 3: 2 + 2 + 12 bytes a parameter; here gradients are accumulated in fp32.
TEST_CASE("states of a parameter") {
  const auto total = [](ElementType precision, Optimizer optimizer) {
    const StateBytes states = state_bytes(all_trained(1000), {.precision = precision, .optimizer = optimizer});
    return std::vector<std::int64_t>{states.parameters.value, states.gradients.value, states.optimizer.value};
  };
  CHECK(total(ElementType::fp32, Optimizer::adam) == std::vector<std::int64_t>{4000, 4000, 8000});
  CHECK(total(ElementType::fp32, Optimizer::sgd) == std::vector<std::int64_t>{4000, 4000, 0});
  CHECK(total(ElementType::bf16, Optimizer::adam) == std::vector<std::int64_t>{2000, 4000, 12000});
  CHECK(total(ElementType::bf16, Optimizer::sgd) == std::vector<std::int64_t>{2000, 4000, 4000});
}

TEST_CASE("the blocks' parameters and FLOPs are those of the whole model") {
  Scenario scenario = small();
  // Bandwidth without limit leaves FLOPs alone.
  scenario.cluster.machine.device.memory_bandwidth.value = {1e30};
  const DeviceProfile& device = scenario.cluster.machine.device;
  const std::vector<ComputeCost> blocks = block_costs(scenario, 2);
  REQUIRE(blocks.size() == 10);
  std::int64_t parameters = 0;
  Seconds time;
  for (const ComputeCost& block : blocks) {
    parameters += block.parameters;
    time += block.forward + block.input_gradient + block.weight_gradient;
  }
  CHECK(parameters == count_parameters(scenario.model).total);
  // Per token: six times the weights that multiply it, and the softmax cores, 4·a·d·n̄ forward and 10·a·d·n̄ backward
  // (flash), where n̄ is 16 − 16·15/64 in six layers with a window of 16 and 33/2 in two without.
  const ParameterCounts counts = count_parameters(scenario.model);
  double flops = 6.0 * 512 * 64 + 14 * 4 * 16 * (6 * 12.25 + 2 * 16.5);
  for (const std::int64_t weights : counts.layers_matmul_active) flops += 6.0 * static_cast<double>(weights);
  const FlopsPerSecond speed = device.peak.value * device.matmul_efficiency.value;
  CHECK(time.value == Approx(flops * 2 * 32 / speed.value));
  CHECK(blocks[1] == blocks[2]);
  CHECK(blocks[5].forward > blocks[1].forward);  // experts cost more than the dense layer here
}

TEST_CASE("without FLOPs a block takes the time of its kernels' bytes") {
  Scenario scenario = small();
  DeviceProfile& device = scenario.cluster.machine.device;
  device.peak.value = {1e30};
  device.memory_bandwidth.value = {1e6};
  device.memory_efficiency.value = 0.5;
  // A table of 512 rows of 64: F reads and writes rows of 64 tokens; W does the same and makes the fp32 gradient dense,
  // in three passes over it.
  const ComputeCost cost = block_costs(scenario, 2)[0];
  const auto seconds = [](std::int64_t bytes) { return static_cast<double>(bytes) / 0.5e6; };
  CHECK(cost.forward.value == Approx(seconds(2 * 4 * 64 * 64)));
  CHECK(cost.input_gradient.value == 0);
  CHECK(cost.weight_gradient.value == Approx(seconds(2 * 4 * 64 * 64 + 3 * 4 * 512 * 64)));
  // fp32 AdamW: weights and two moments read and written, gradients read and cleared.
  CHECK(cost.optimizer.value == Approx(seconds(32 * cost.parameters)));
}

// What a block needs while it runs besides what it keeps: its output and its largest tensor; in I also both gradients
// of the boundary; in W the fp32 gradient of its largest weight, of which a table that is looked up has none.
TEST_CASE("workspace is in bytes, by hand") {
  const std::vector<ComputeCost> blocks = block_costs(small(), 2);
  const std::int64_t boundary = 2 * 32 * 64 * 4;
  for (std::size_t i = 0; i < 9; ++i) {
    CHECK(blocks[i].input_gradient_workspace_bytes - blocks[i].forward_workspace_bytes == Bytes{boundary});
    CHECK(blocks[i].forward_workspace_bytes > Bytes{boundary});
  }
  CHECK(blocks[0].weight_gradient_workspace_bytes == Bytes{0});
  CHECK(blocks[1].weight_gradient_workspace_bytes == Bytes{4 * 128 * 64});      // a matrix of the MLP
  CHECK(blocks[5].weight_gradient_workspace_bytes == Bytes{4 * 4 * 128 * 64});  // four experts' in one tensor
  CHECK(blocks[9].weight_gradient_workspace_bytes == Bytes{4 * 512 * 64});      // the head
  // Beside fp32 logarithms, which it keeps, the loss has the logits in F. In I their gradient is made in the place of
  // those, so that the norm needs more: its input and output, and a scale of four bytes per token.
  CHECK(blocks[9].forward_workspace_bytes == Bytes{boundary + 2 * 32 * 4 * 512});
  CHECK(blocks[9].input_gradient_workspace_bytes == Bytes{2 * boundary + 2 * 32 * (2 * 4 * 64 + 4)});
}

// On hosts LibTorch's RMSNorm has three values of a 16-bit one in fp32 beside each other in I; of 16-bit logits there
// is a narrow gradient. A machine with kernels has no such norm.
TEST_CASE("workspace of 16-bit values is in bytes, by hand, on hosts and on devices") {
  const auto blocks_on = [](const std::string& machine) {
    return block_costs(read_text("model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*1\"}\n"
                                 "training: {sequence: 32, global_batch: 8, microbatch: 2, precision: bf16}\n"
                                 "cluster: {machine: " +
                                 machine + ", ranks: 1}\n"),
                       2);
  };
  const std::int64_t boundary = 2 * 32 * 64 * 2;
  for (const std::string machine : {"local-cpu", "dgx-h100"}) {
    const std::vector<ComputeCost> blocks = blocks_on(machine);
    CHECK(blocks[2].forward_workspace_bytes == Bytes{boundary + 2 * 32 * 2 * 512});
    CHECK(blocks[2].input_gradient_workspace_bytes == Bytes{2 * boundary + 2 * 32 * 2 * 512});
    // Of attention queries, keys, values, its output and four bytes per head; larger than SwiGLU's three values.
    const std::int64_t attention = 2 * 32 * (4 * 2 * 64 + 4 * 4);
    const std::int64_t norm = machine == "local-cpu" ? 2 * 32 * 3 * 4 * 64 : 0;
    CHECK(blocks[1].input_gradient_workspace_bytes == Bytes{2 * boundary + std::max(attention, norm)});
    // The product of the largest weight, of a host's framework also as it is made.
    CHECK(blocks[2].weight_gradient_workspace_bytes == Bytes{(machine == "local-cpu" ? 6 : 4) * 64 * 512});
  }
}

// arXiv 2205.05198, section 5: 5as²b bytes of probabilities, their mask and what it leaves are freed by F and made
// again within I, whose gradients then need all of them.
TEST_CASE("selective recompute keeps 5as²b bytes less, and I has them beside what it had") {
  const auto costs_with = [](const std::string& recompute) {
    return block_costs(read_text("model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*2\"}\n"
                                 "training: {sequence: 32, global_batch: 8, microbatch: 2, precision: bf16, "
                                 "recompute: " +
                                 recompute + "}\nsoftware: megatron-2022\ncluster: {ranks: 1}\n"),
                       2);
  };
  const std::vector<ComputeCost> none = costs_with("none");
  const std::vector<ComputeCost> selective = costs_with("selective");
  const Bytes freed{5 * 4 * 32 * 32 * 2};
  for (const std::size_t layer : {1, 2}) {
    CHECK(none[layer].kept_bytes - selective[layer].kept_bytes == freed);
    CHECK(selective[layer].input_gradient_workspace_bytes - none[layer].input_gradient_workspace_bytes == freed);
    CHECK(selective[layer].forward_workspace_bytes == none[layer].forward_workspace_bytes);
    CHECK(selective[layer].input_gradient > none[layer].input_gradient);
    CHECK(selective[layer].weight_gradient == none[layer].weight_gradient);
  }
  CHECK(none[0] == selective[0]);
  CHECK(none[3] == selective[3]);
}

// Experts that each token goes to four of, instead of two, have twice the tokens too.
TEST_CASE("experts that are chosen twice as often take as long as with twice as many choices, and keep twice as much") {
  const auto costs_of = [](int top_k, double load) {
    Scenario scenario =
        read_text("model:\n  {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, experts: {count: 8, top_k: " +
                  std::to_string(top_k) +
                  ", ffn: 128}, layers: \"full/moe\"}\ntraining: {sequence: 32, global_batch: 8, microbatch: 2}\n"
                  "cluster: {ranks: 1}\n");
    scenario.cluster.machine.device.memory_bandwidth.value = {1e30};  // matmuls alone take time
    scenario.cluster.machine.device.kernel_gap.value = {};
    scenario.expert_load = load;
    return block_costs(scenario, 2)[1];
  };
  const ComputeCost mean = costs_of(2, 1);
  const ComputeCost busiest = costs_of(2, 2);
  const ComputeCost four = costs_of(4, 1);
  CHECK(busiest.forward.value == Approx(four.forward.value));
  CHECK(busiest.input_gradient.value == Approx(four.input_gradient.value));
  CHECK(busiest.weight_gradient.value == Approx(four.weight_gradient.value));
  CHECK(busiest.forward > mean.forward * 1.1);
  // fp32, 64 tokens, two choices of each: gate, up and their product of SwiGLU until I; until W the product and the
  // gradients of gate, up and down.
  CHECK(busiest.kept_bytes - mean.kept_bytes == Bytes{4 * 64 * 2 * (3 * 128)});
  CHECK(busiest.kept_for_weight_bytes - mean.kept_for_weight_bytes == Bytes{4 * 64 * 2 * (3 * 128 + 64)});
  CHECK(busiest.parameters == mean.parameters);
}

TEST_CASE("times and kept bytes grow with the microbatch, states do not") {
  Scenario scenario = small();
  scenario.cluster.machine.device.memory_bandwidth.value = {1e30};  // weights are read once, whatever the microbatch
  const std::vector<ComputeCost> one = block_costs(scenario, 1);
  const std::vector<ComputeCost> four = block_costs(scenario, 4);
  for (std::size_t block = 0; block < one.size(); ++block) {
    CHECK(four[block].forward.value == Approx(4 * one[block].forward.value));
    CHECK(four[block].kept_bytes == 4 * one[block].kept_bytes);
    CHECK(four[block].parameter_bytes == one[block].parameter_bytes);
    CHECK(four[block].optimizer == one[block].optimizer);
  }
}

TEST_CASE("a profile's medians are used, with states from the shapes") {
  Scenario scenario = small();
  const std::vector<ComputeCost> analytic = block_costs(scenario, 2);
  scenario.profile = profile_of(scenario);
  const std::vector<ComputeCost> measured = block_costs(scenario, 2);
  REQUIRE(measured.size() == 10);
  CHECK(measured[0].forward == Seconds{0.001});
  CHECK(measured[1].forward == Seconds{0.002});
  CHECK(measured[4].forward == Seconds{0.002});  // like layer 1, measured once
  CHECK(measured[6].forward == Seconds{0.007});
  CHECK(measured[8].kept_bytes == Bytes{1006});
  CHECK(measured[9].kept_bytes == Bytes{1009});
  for (std::size_t block = 0; block < 10; ++block) {
    CHECK(measured[block].parameters == analytic[block].parameters);
    CHECK(measured[block].optimizer_bytes == analytic[block].optimizer_bytes);
  }
  CHECK_THAT(provenance(scenario), ContainsSubstring("profile of this host, 7 rounds"));
}

TEST_CASE("a profile's optimizer time of a CPU is the host's update time beside the copies") {
  Scenario scenario = small();
  scenario.profile = profile_of(scenario);
  for (MeasuredBlock& block : scenario.profile->blocks) block.cost.optimizer = {0.25};
  scenario.training.offload.optimizer = true;
  const HostProfile& host = scenario.cluster.machine.host;
  for (const ComputeCost& block : block_costs(scenario, 2)) {
    CHECK(block.optimizer == Seconds{});
    CHECK(block.host_moves.updating == Seconds{0.25});
    CHECK(block.host_moves.down == Bytes{4 * block.parameters});
    CHECK(block.host_moves.copying_down.value ==
          Approx(host.link.latency.value.value +
                 4 * static_cast<double>(block.parameters) / host.link.bandwidth.value.value));
  }
  scenario.cluster.machine.device.type = DeviceType::cuda;  // whose host nobody measured
  for (const ComputeCost& block : block_costs(scenario, 2)) {
    CHECK(block.host_moves.updating.value ==
          Approx((4 + 2 * 12) * static_cast<double>(block.parameters) / host.memory_bandwidth.value.value));
  }
}

// Calibrated as the last stage of several, where the head holds a copy of the table and steps it.
TEST_CASE("a tied head that was measured with its copy of the table steps only what is its own") {
  Scenario scenario = small();
  scenario.model.tied_embeddings = true;
  scenario.profile = profile_of(scenario);
  ComputeCost& head = scenario.profile->blocks.back().cost;
  head.parameters = 64 + 512 * 64;
  head.optimizer = {0.513};
  CHECK(block_costs(scenario, 2).back().optimizer.value == Approx(0.001));
  head.parameters = 64;
  CHECK(block_costs(scenario, 2).back().optimizer.value == 0.513);
}

TEST_CASE("a profile of other shapes is refused, naming both") {
  Scenario scenario = small();
  scenario.profile = profile_of(scenario);
  CHECK_THROWS_WITH(block_costs(scenario, 4),
                    ContainsSubstring("sequence 32, microbatch 2, fp32") && ContainsSubstring("microbatch 4"));
  scenario.profile->shapes.precision = ElementType::bf16;
  CHECK_THROWS_WITH(block_costs(scenario, 2), ContainsSubstring("bf16"));
  scenario.profile = profile_of(scenario);
  scenario.training.optimizer = Optimizer::sgd;
  CHECK_THROWS_WITH(block_costs(scenario, 2), ContainsSubstring("fp32, adamw; this needs") && ContainsSubstring("sgd"));
  scenario.training.optimizer = Optimizer::adam;
  scenario.model.vocabulary += 1;
  CHECK_THROWS_WITH(block_costs(scenario, 2), ContainsSubstring(model_digest(scenario.model)));
  scenario.model.vocabulary -= 1;
  scenario.profile->blocks.pop_back();
  CHECK_THROWS_WITH(block_costs(scenario, 2), ContainsSubstring("has no block 'head'"));
}

TEST_CASE("a tied head on another rank has a copy of the table with all its states") {
  Scenario scenario = small();
  scenario.model.tied_embeddings = true;
  const std::vector<ComputeCost> blocks = block_costs(scenario, 2);
  CHECK(blocks.back().parameters == 64);  // the final norm alone
  const ComputeCost head = with_table_copy(blocks.back(), scenario, blocks.front());
  CHECK(head.parameters == 64 + 512 * 64);
  CHECK(head.optimizer_bytes == Bytes{8 * (64 + 512 * 64)});
  CHECK(head.optimizer.value == Approx((blocks.back().optimizer + blocks.front().optimizer).value));
  CHECK(head.forward == blocks.back().forward);
}

// ⌈50257 / 4⌉ rows of 64 channels, as a rank stores them: 12565. Four ranks have as many as of 50260.
TEST_CASE("a vocabulary that the ranks do not divide costs what one padded to their multiple does") {
  Scenario scenario = small("layout: {tensor: {degree: 4}}\ncluster: {machine: local-cpu, ranks: 4}\n");
  scenario.model.tied_embeddings = true;
  const auto blocks_with = [&](std::int64_t vocabulary) {
    scenario.model.vocabulary = vocabulary;
    return block_costs(scenario, 2);
  };
  const ComputeCost padded = blocks_with(50260).front();
  const std::vector<ComputeCost> blocks = blocks_with(50257);
  CHECK(blocks.front() == padded);
  constexpr std::int64_t table = 12565 * 64;
  CHECK(blocks.front().parameters == table);
  const PlacedBlock placed = place_block(scenario.model, 0, scenario.layout.tensor, {.sequences = 2, .sequence = 32});
  CHECK(elements(placed.weights.front().stored.local) == table);  // what `show --sites` prints
  CHECK(with_table_copy(blocks.back(), scenario, blocks.front()).parameters == blocks.back().parameters + table);
  CHECK(with_table_gradient(blocks.back(), scenario).gradient_bytes == blocks.back().gradient_bytes + Bytes{4 * table});
}

TEST_CASE("two stages that share a table of which ranks have unequal parts add up the largest") {
  Scenario scenario = small(
      "layout: {tensor: {degree: 2}, pipeline: 2}\ncluster: {machine: local-cpu, ranks: 4}\nschedule: 1f1b\nsplit: "
      "uniform\n");
  scenario.model.tied_embeddings = true;
  scenario.model.vocabulary = 1001;
  const Plan plan = make_plan(scenario, only_choice(scenario));
  CHECK(plan.costs.tied_bytes == Bytes{4 * 501 * 64});
}

// In I stand what comes in, what goes out, and where q, k and v (or gate and up) each give back the gradient of what
// they read, to be added up before it is moved, their sum so far and the next: four times bsh, and in F one. With one
// kernel for all of them, or one matmul, there are two.
TEST_CASE("gradients of one value that several products give back stand beside each other before they are moved") {
  constexpr Bytes bsh{2 * 32 * 64 * 4};
  for (const bool by_tokens : {false, true}) {
    CAPTURE(by_tokens);
    Scenario scenario =
        small("layout: {tensor: {degree: 4, sequence_parallel: " + std::string(by_tokens ? "true" : "false") +
              "}}\ncluster: {machine: local-cpu, ranks: 4}\n");
    const auto beyond_forward = [&](bool fused) {
      scenario.software.fused_projections = fused;
      const ComputeCost layer = block_costs(scenario, 2).at(1);
      return layer.input_gradient_workspace_bytes - layer.forward_workspace_bytes;
    };
    CHECK(beyond_forward(false) == 3 * bsh);
    CHECK(beyond_forward(true) == bsh);
    Layer& layer = scenario.model.layers.front();
    layer.mixer = std::monostate{};
    layer.norms = 1;
    layer.mlp = DenseMlp{.width = 128, .activation = Activation::gelu};
    CHECK(beyond_forward(false) == bsh);
  }
}

// Groups of 16 on racks of 72: {64 .. 79} has eight ranks on each of two racks, and all others wait for it. A ring's
// all-gather of n bytes takes half the start of 16 ranks and 15/16 n over eight NICs, which are slower than NVLink.
TEST_CASE("groups of which one straddles two racks cost what that one does") {
  Scenario scenario =
      read_text(scenario_text("cluster: {machine: gb200-nvl72, nodes: 2, ranks: 1}\nlayout: {pipeline: 1}\n"
                              "training: {precision: bf16}\n"));
  Layout layout;
  layout.tensor.degree = 16;
  layout.data.degree = 9;
  const Cluster& cluster = scenario.cluster;
  const Machine& machine = cluster.machine;
  const GroupPlacement group = placement(layout, MeshAxis::tensor, cluster);
  CHECK(group.ranks == 16);
  CHECK(group.per_machine == 8);
  const double bytes = 1e9;
  const double start = machine.collective_latency.value.value + 16 * machine.collective_latency_per_rank.value.value;
  CHECK(collective_time(machine, Collective::all_gather, bytes, group).value ==
        Approx(start / 2 + 15.0 / 16 * bytes / (8 * machine.outside.bandwidth.value.value)));
  layout.data.degree = 4;  // 64 ranks: on one rack
  const GroupPlacement inside = placement(layout, MeshAxis::tensor, {.machine = machine, .ranks = 64});
  CHECK(collective_time(machine, Collective::all_gather, bytes, inside).value ==
        Approx(start / 2 + 15.0 / 16 * bytes / machine.collective_bandwidth.value.value));
}

namespace {

// 64 heads over 64 Mi tokens: scores alone are 2^62 elements a sequence.
std::string long_scenario(const std::string& training, const std::string& rest = "") {
  return "model: {name: m, vocabulary: 512, hidden: 1024, heads: 64, ffn: 4096, layers: \"full/dense*4\"}\n"
         "cluster: {machine: pcie-rtx3090, nodes: 1}\nlayout: {pipeline: 4}\nschedule: 1f1b\nsplit: [1, 1, 1, 1]\n"
         "training: {precision: bf16, " +
         training + "}\n" + rest;
}

}  // namespace

TEST_CASE("activations that no count of bytes holds are refused, with what makes them smaller") {
  const Scenario scores = read_text(long_scenario("sequence: 67108864, global_batch: 64, microbatch: 16",  //
                                                  "software: megatron-2022\n"));
  const auto larger_than_8_pib = ContainsSubstring("a microbatch of 16 × 67108864 tokens, are larger than 8 PiB");
  CHECK_THROWS_WITH(block_costs(scores, 16), larger_than_8_pib && ContainsSubstring("flash attention"));
  CHECK_THROWS_AS(make_plan(scores, {.microbatch = 16}), InputError);
  const PlanningResult result = plan_scenario(scores, predict_by_path);
  REQUIRE_FALSE(result.candidates.empty());
  CHECK_FALSE(result.candidates.front().built);
  CHECK_THAT(result.candidates.front().reason, larger_than_8_pib);
  // Every slice has part of the scores.
  CHECK_THROWS_WITH(block_costs(scores, 16, equal_slices(67108864, 1024)), larger_than_8_pib);
}

TEST_CASE(
    "the longest sequence with flash attention has a cost unless its layers are too wide or the batch too large") {
  const Scenario narrow = read_text(long_scenario("sequence: 2147483648, global_batch: 8"));
  REQUIRE(narrow.software.flash_attention);
  for (const ComputeCost& stage : make_plan(narrow, {.microbatch = 1}).costs.stages) {
    CHECK(stage.kept_bytes > Bytes{std::int64_t{1} << 40});
    CHECK(stage.kept_bytes < Bytes{std::int64_t{1} << 53});
  }
  Scenario wide = narrow;
  for (Layer& layer : wide.model.layers) std::get<DenseMlp>(layer.mlp).width = 1 << 24;
  CHECK_THROWS_WITH(block_costs(wide, 1),
                    ContainsSubstring("larger than 8 PiB") && !ContainsSubstring("flash attention"));
  const Scenario often = read_text(long_scenario("sequence: 2147483648, global_batch: 1048576"));
  CHECK_THROWS_WITH(block_costs(often, 1), ContainsSubstring("a batch of 1048576 × 2147483648 tokens") &&
                                               ContainsSubstring("larger than 2 EiB"));
}
