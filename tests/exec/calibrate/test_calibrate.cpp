// Calibration against runs: memory exactly where it can be, times for their shape only (the machine is shared).
#include "exec/calibrate/calibrate.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "common/base/error.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/graph/memory.hpp"
#include "exec/calibrate/calibrate_transfer.hpp"
#include "exec/calibrate/calibration_rounds.hpp"
#include "exec/host/host.hpp"
#include "tests/catch.hpp"
#include "tests/exec/device/host_with_streams.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Scenario scenario_of(const Model& model, int ranks, ElementType precision) {
  Scenario scenario;
  scenario.name = model.name;
  scenario.model = model;
  scenario.cluster.ranks = ranks;
  scenario.cluster.machine.devices = ranks;
  scenario.cluster.machine.device.memory.value = {std::int64_t{1} << 40};
  scenario.layout.pipeline = ranks;
  scenario.training.sequence = model.vision ? tokens(*model.vision) : 64;
  scenario.training.global_batch = 12;
  scenario.training.microbatch = 2;
  scenario.training.precision = precision;
  scenario.microbatches = {2};
  return scenario;
}

CalibrationOptions rounds(int count) {
  CalibrationOptions options;
  options.rounds = count;
  return options;
}

CalibrationRound round_of(double seconds) {
  return {.samples = {{.forward = {seconds / 2}, .input_gradient = {seconds / 4}, .weight_gradient = {seconds / 4}}}};
}

}  // namespace

TEST_CASE("Rounds far from the median are left out") {
  const std::vector<CalibrationRound> rounds = {round_of(1.0), round_of(1.1), round_of(2.0),
                                                round_of(0.9), round_of(0.5), round_of(1.2)};
  const std::vector<CalibrationRound> kept = undisturbed(rounds);
  REQUIRE(kept.size() == 4);
  CHECK(total(kept[0]).value == Approx(1.0));
  CHECK(total(kept[3]).value == Approx(1.2));
  CHECK(undisturbed({}).empty());
  // Of two that are far from each other and so from their mean, one stays.
  CHECK(undisturbed({round_of(1.0), round_of(100.0)}).size() == 1);
}

TEST_CASE("A profile has every kind of block once, with its times") {
  const Scenario scenario = scenario_of(test::hybrid(), 2, ElementType::fp32);
  int last_done = 0;
  std::atomic<bool> in_order = true;  // assertions are for the test's own thread
  CalibrationOptions options = rounds(3);
  options.progress = [&](int done, int all) {
    in_order = in_order && all == 3 && done <= all;
    last_done = std::max(last_done, done);
  };
  const Profile profile = calibrate(scenario, options);
  CHECK(in_order);
  CHECK(last_done >= 1);
  REQUIRE(profile.blocks.size() == 6);
  CHECK(profile.samples >= 1);
  CHECK(profile.transfer.latency.value > 0);
  CHECK(std::isfinite(profile.transfer.latency.value));
  for (const MeasuredBlock& block : profile.blocks) {
    INFO(block.block);
    CHECK(block.count == 1);
    CHECK(block.cost.forward.value > 0);
    CHECK(block.cost.input_gradient.value > 0);
    CHECK(block.cost.weight_gradient.value > 0);
    CHECK(block.cost.optimizer.value > 0);
    CHECK(block.cost.kept_bytes.value > 0);
  }
  Scenario open = scenario;
  open.microbatches = {1, 2};
  CHECK_THROWS_AS(calibrate(open, {}), InputError);
  CalibrationOptions misspelt = rounds(1);
  misspelt.transport = "loacl";
  CHECK_THROWS_AS(calibrate(scenario, misspelt), InputError);
}

TEST_CASE("A calibration that is told to end does so at the next round") {
  std::atomic<bool> told = false;
  std::atomic<int> calls = 0;
  CalibrationOptions options = rounds(1000);
  options.progress = [&](int, int) { told = ++calls == 3; };
  options.stop = Stop(&told, std::nullopt);
  CHECK_THROWS_AS(calibrate(scenario_of(test::llama(1), 2, ElementType::fp32), options), plumb::Stopped);
  CHECK(calls == 3);
}

namespace {

// One device behind whose face is the host's memory.
Host one_device() {
  return {.visible_devices = [] { return 1; },
          .make_device = [](int) { return std::make_unique<test::HostWithStreams>(); },
          .device_facts = [](int) { return DeviceFacts{.name = "Made-up 80GB", .driver = "580.95.05, CUDA 13.2"}; }};
}

std::vector<Bytes> bytes_of(const ComputeCost& cost) {
  return {cost.parameter_bytes,
          cost.gradient_bytes,
          cost.optimizer_bytes,
          cost.kept_bytes,
          cost.kept_for_weight_bytes,
          cost.forward_workspace_bytes,
          cost.input_gradient_workspace_bytes,
          cost.weight_gradient_workspace_bytes};
}

}  // namespace

TEST_CASE("A device is measured by the moments between its work: the same bytes, its own times, name and driver") {
  const Scenario scenario = scenario_of(test::hybrid(), 1, ElementType::bf16);
  const Profile on_host = calibrate(scenario, rounds(2));
  CalibrationOptions options = rounds(2);
  options.device = "cuda";
  options.message_bytes = {4U << 10U, 1U << 20U};
  const Profile on_device = calibrate(scenario, options, one_device());
  REQUIRE(on_device.blocks.size() == on_host.blocks.size());
  for (std::size_t i = 0; i < on_host.blocks.size(); ++i) {
    INFO(on_host.blocks[i].block);
    CHECK(on_device.blocks[i].block == on_host.blocks[i].block);
    CHECK(bytes_of(on_device.blocks[i].cost) == bytes_of(on_host.blocks[i].cost));
    CHECK(on_device.blocks[i].cost.forward.value > 0);
    CHECK(on_device.blocks[i].cost.input_gradient.value > 0);
    CHECK(on_device.blocks[i].cost.weight_gradient.value > 0);
    CHECK(on_device.blocks[i].cost.optimizer.value > 0);
  }
  CHECK(on_device.busy_ranks == 1);
  CHECK_THAT(on_device.machine, ContainsSubstring("Made-up 80GB"));
  CHECK_THAT(on_device.versions, ContainsSubstring("driver 580.95.05, CUDA 13.2"));
  REQUIRE(on_device.rates.size() == 3);
  CHECK(on_device.rates[2].operation == "send");
  CHECK(on_device.transfer == on_device.rates[2].cost);
}

TEST_CASE("Devices that are not here, too few for NCCL, or another's transport are refused by name") {
  const Scenario scenario = scenario_of(test::llama(2), 1, ElementType::fp32);
  const auto calibrate_on = [&](const std::string& device, const std::string& transport) {
    CalibrationOptions options = rounds(1);
    options.device = device;
    options.transport = transport;
    (void)calibrate(scenario, options, one_device());
  };
  CHECK_THROWS_WITH(calibrate_on("cude", "local"), ContainsSubstring("did you mean 'cuda'"));
  CHECK_THROWS_WITH(calibrate_on("cuda", "gloo"), ContainsSubstring("cannot calibrate 'gloo' on cuda"));
  CHECK_THROWS_WITH(calibrate_on("cpu", "nccl"), ContainsSubstring("cannot calibrate 'nccl' on cpu"));
  CHECK_THROWS_AS(calibrate_on("cuda", "nccl"), InputError);
}

TEST_CASE("Both transports are measured") {
  const TransferCost local = measure_transfer("local");
  const TransferCost gloo = measure_transfer("gloo");
  WARN("one way: local " << local.latency.value * 1e6 << " us; gloo " << gloo.latency.value * 1e6 << " us, "
                         << gloo.bandwidth.value / 1e9 << " GB/s");
  CHECK(local.bandwidth.value > gloo.bandwidth.value);  // a pointer is handed over, or bytes are copied
  CHECK(gloo.latency.value > 0);
}

namespace {

void require_predicted_memory(const Model& model, ElementType precision, const std::vector<std::string>& schedules) {
  Scenario scenario = scenario_of(model, 2, precision);
  scenario.profile = calibrate(scenario, rounds(2));
  for (const std::string& schedule : schedules) {
    const int slices = schedule == "seq-1f1b" ? 4 : 1;
    const int chunks = schedule == "interleaved-1f1b" || schedule == "zb-v" ? 2 : 1;
    Plan plan = test::training_plan({.model = scenario.model,
                                     .schedule = schedule,
                                     .ranks = 2,
                                     .chunks = chunks,
                                     .microbatches = 6,
                                     .precision = precision,
                                     .slices = slices});
    plan.training = scenario.training;
    plan.costs.boundary_bytes = {2 * scenario.training.sequence / slices * 32 * element_bytes(precision)};
    const std::vector<RankMemory> predicted = test::predicted_memory(plan, block_costs(scenario, 2));
    const test::TrainingRun run = test::train(plan, 2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      INFO(model.name << ", " << schedule << ", rank " << rank << ": predicted " << predicted[rank].peak_bytes.value
                      << ", measured " << run.peak[rank].value);
      CHECK(predicted[rank].peak_bytes / run.peak[rank] == Approx(1.0).margin(0.06));
    }
  }
}

}  // namespace

TEST_CASE("Predicted peak memory is the measured one within 6%") {
  const ElementType precision = GENERATE(ElementType::fp32, ElementType::bf16);
  require_predicted_memory(test::hybrid(), precision, {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"});
}

// What slices hand to each other is not predicted, nor that chunks of a delta rule shrink to slices shorter than them.
// 4 to 5.3% on the CPUs that were seen: what a library keeps of a slice differs.
TEST_CASE("Predicted peak memory with slices is the measured one within 6%") {
  Model hybrid = test::hybrid();
  for (Layer& layer : hybrid.layers) {
    if (auto* delta = std::get_if<GatedDelta>(&layer.mixer)) delta->chunk = 16;
  }
  for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
    for (const Model& model : {test::llama(4), hybrid}) {
      require_predicted_memory(model, precision, {"seq-1f1b"});
    }
  }
}

// Without a profile what a block keeps is counted tensor by tensor; the executor's own count is the oracle. Of so small
// heads a copy more or less of one operand, which is a matter of its shape, is 2.4% of a layer.
TEST_CASE("Activations that are counted from a block's operations are those that the executor keeps, within 3%") {
  Model hybrid = test::hybrid();
  for (Layer& layer : hybrid.layers) {
    if (auto* delta = std::get_if<GatedDelta>(&layer.mixer)) delta->chunk = 16;
  }
  GatedDelta one_to_one = test::delta;
  one_to_one.key_heads = one_to_one.value_heads;
  const std::vector<Model> models = {
      test::llama(1), test::mixtral(1), test::hybrid(), hybrid,
      test::model("one to one", {test::layer(one_to_one, test::swiglu_mlp), test::layer(test::delta, test::experts)})};
  for (const Model& model : models) {
    for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
      Scenario scenario = scenario_of(model, 1, precision);
      scenario.training.sequence = 256;
      const std::vector<ComputeCost> counted = block_costs(scenario, 2);
      scenario.profile = calibrate(scenario, rounds(2));
      const std::vector<ComputeCost> measured = block_costs(scenario, 2);
      for (std::size_t block = 1; block + 1 < counted.size(); ++block) {
        INFO(model.name << ", layer " << block << " (" << kind_name(model.layers[block - 1]) << "), "
                        << name_of(precision) << ": counted " << counted[block].kept_bytes.value << ", measured "
                        << measured[block].kept_bytes.value);
        CHECK(counted[block].kept_bytes / measured[block].kept_bytes == Approx(1.0).margin(0.03));
      }
    }
  }
}

TEST_CASE("Predicted peak memory of GPT-J and ViT is the measured one within 6%") {
  const ElementType precision = GENERATE(ElementType::fp32, ElementType::bf16);
  require_predicted_memory(test::gptj(4), precision, {"1f1b", "interleaved-1f1b", "zb-v"});
  require_predicted_memory(test::vit(4), precision, {"1f1b", "interleaved-1f1b", "zb-v"});
}

namespace {

Scenario scenario_of_group(const Model& model, const TensorLayout& tensor) {
  Scenario scenario = scenario_of(model, 1, ElementType::fp32);
  scenario.layout.tensor = tensor;
  scenario.cluster.ranks = scenario.cluster.machine.devices = tensor.degree;
  scenario.training.sequence = 128;
  return scenario;
}

std::string refusal(const Scenario& scenario) {
  try {
    (void)block_costs(scenario, 2);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE(
    "the shapes of a tensor group's rank are measured as they are counted, and no profile serves another layout") {
  Model model = test::llama(1);
  model.layers.push_back(test::layer(test::attention(4, 4, 8), test::shared_experts));
  for (const TensorLayout& tensor : {TensorLayout{.degree = 2}, TensorLayout{.degree = 2, .sequence_parallel = true},
                                     TensorLayout{.degree = 4, .sequence_parallel = true}}) {
    Scenario scenario = scenario_of_group(model, tensor);
    const std::vector<ComputeCost> counted = block_costs(scenario, 2);
    const TemporaryFolder folder;
    const Profile profile = calibrate(scenario, rounds(2));
    CHECK(profile.shapes.tensor_degree == tensor.degree);
    scenario.profile = read_profile(folder.write("profile.yaml", to_yaml(profile)));
    CHECK(*scenario.profile == profile);
    const std::vector<ComputeCost> measured = block_costs(scenario, 2);
    for (std::size_t block = 1; block + 1 < counted.size(); ++block) {
      const ComputeCost& cost = measured_block(profile, block_key(model, static_cast<int>(block))).cost;
      INFO(tensor.degree << (tensor.sequence_parallel ? ", sp" : "") << ", layer " << block << ": kept "
                         << counted[block].kept_bytes.value << ", measured " << cost.kept_bytes.value << "; for W "
                         << counted[block].kept_for_weight_bytes.value << ", measured "
                         << cost.kept_for_weight_bytes.value);
      CHECK(counted[block].parameters == cost.parameters);
      CHECK(counted[block].kept_bytes / cost.kept_bytes == Approx(1.0).margin(0.04));
      CHECK(counted[block].kept_for_weight_bytes / cost.kept_for_weight_bytes == Approx(1.0).margin(0.04));
      CHECK(measured[block].forward > cost.forward);  // with the machine's time of the collectives
      CHECK(measured[block].input_gradient > cost.input_gradient);
      CHECK((measured[block].weight_gradient > cost.weight_gradient) == tensor.sequence_parallel);
    }
    Scenario whole = scenario;
    whole.layout.tensor = {};
    CHECK_THAT(refusal(whole), ContainsSubstring("layers of a tensor degree of " + std::to_string(tensor.degree)) &&
                                   ContainsSubstring("this needs") && ContainsSubstring("whole layers"));
    Scenario other = scenario;
    other.layout.tensor.sequence_parallel = !tensor.sequence_parallel;
    CHECK_THAT(refusal(other), ContainsSubstring("with sequence parallelism"));
  }
  Scenario grid = scenario_of_group(model, {.degree = 4, .kind = TensorKind::two_d});
  CHECK_THROWS_WITH(calibrate(grid, rounds(1)), ContainsSubstring("of the 1d layout"));
}
