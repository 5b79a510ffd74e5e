// Costs of the slices of a sequence: each at its own shape, and together no less than the whole.
#include <array>

#include "common/block_cost/block_costs.hpp"
#include "common/graph/evaluate.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/block_cost/analytic_profile.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/plan/steps.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr std::int64_t sequence = 4096;

// One kind of layer on one A100.
Scenario scenario_of(const std::string& layer, const std::string& software = "plumb", int pipeline = 1) {
  return read_text(
      "model: {vocabulary: 1024, hidden: 2048, heads: 16, ffn: 8192, window: 512, tied_embeddings: false, "
      "layers: \"" +
      layer + "*4\"}\ncluster: {machine: dgx-a100, ranks: " + std::to_string(pipeline) +
      "}\ntraining: {sequence: " + std::to_string(sequence) +
      ", microbatch: 1, precision: bf16, global_batch: 8}\nlayout: {pipeline: " + std::to_string(pipeline) +
      "}\nschedule: 1f1b\nsplit: uniform\nsoftware: " + software + "\n");
}

struct Work {
  double matmuls = 0;  // FLOPs of products with weights
  double cores = 0;    // … of fused attention or recurrences
};

Work work_of(const Scenario& scenario, Slice slice, Phase phase) {
  Work work;
  for (const ProgramStep& step : program_of_block(scenario, 1, slice).steps) {
    if (step.phase != phase) continue;
    if (step.kind == StepKind::core) work.cores += step.flops.value;
    const MatmulSizes& sizes = step.matmul;
    if (step.kind == StepKind::matmul) work.matmuls += 2 * sizes.batch * sizes.m * sizes.n * sizes.k;
  }
  return work;
}

Slice nth(int slice, int of) { return {.before = sequence / of * slice, .tokens = sequence / of}; }

constexpr std::array phases{Phase::forward, Phase::input_gradient, Phase::weight_gradient};

double seconds_of(const ActionTimes& times) { return (times.forward + backward_time(times)).value; }

Plan plan_of(const Scenario& scenario, const std::string& schedule, int slices) {
  return make_plan(
      scenario,
      {.microbatch = 1, .schedule = {.name = schedule, .slices = slices}, .split = {.method = SplitMethod::uniform}});
}

}  // namespace

TEST_CASE("the slices of a sequence have its FLOPs together") {
  for (const char* layer : {"full/dense", "sliding/dense", "linear/dense"}) {
    const Scenario scenario = scenario_of(layer);
    for (const int slices : {2, 4, 16}) {
      for (const Phase phase : phases) {
        INFO(layer << ", " << slices << " slices, phase " << static_cast<int>(phase));
        Work sum;
        for (int slice = 0; slice < slices; ++slice) {
          const Work part = work_of(scenario, nth(slice, slices), phase);
          sum.matmuls += part.matmuls;
          sum.cores += part.cores;
        }
        const Work whole = work_of(scenario, {}, phase);
        CHECK(sum.matmuls == Approx(whole.matmuls).epsilon(1e-12));
        CHECK(sum.cores == Approx(whole.cores).epsilon(1e-12));
      }
    }
  }
}

// Query i of T sees i keys: slice s of n has L·(sL + (L + 1)/2) pairs, L = T/n. Two products of each pair, over the
// hidden size, in F (arXiv 2307.08691).
TEST_CASE("full attention of a slice goes over all keys up to its end, of a window over at most the window") {
  const Scenario full = scenario_of("full/dense");
  const Scenario sliding = scenario_of("sliding/dense");
  const int slices = 4;
  const double tokens = static_cast<double>(sequence) / slices;
  for (int slice = 0; slice < slices; ++slice) {
    const double pairs = tokens * (slice * tokens + (tokens + 1) / 2);
    CHECK(work_of(full, nth(slice, slices), Phase::forward).cores == Approx(4 * 2048 * pairs).epsilon(1e-12));
    const double windowed = work_of(sliding, nth(slice, slices), Phase::forward).cores;
    CHECK(windowed <= 4 * 2048 * tokens * 512 * (1 + 1e-12));
    if (slice > 0) CHECK(windowed == Approx(4 * 2048 * tokens * 512).epsilon(1e-12));
  }
}

TEST_CASE("a slice takes at least its share of the whole, and of full attention a later one longer") {
  for (const char* software : {"plumb", "megatron-2021"}) {  // fused attention, and all scores made
    for (const char* layer : {"full/dense", "sliding/dense", "linear/dense"}) {
      const Scenario scenario = scenario_of(layer, software);
      const ComputeCost whole = block_costs(scenario, 1)[1];
      CHECK(whole.slices.empty());
      for (const int slices : {2, 8}) {
        INFO(software << ", " << layer << ", " << slices << " slices");
        const ComputeCost sliced = block_costs(scenario, 1, equal_slices(sequence, slices))[1];
        if (!sliced.slices.empty()) REQUIRE(sliced.slices.size() == static_cast<std::size_t>(slices));
        double sum = 0;
        for (int slice = 0; slice < slices; ++slice) sum += seconds_of(times_of(sliced, slice));
        CHECK(slices * microbatch_time(sliced, false).value == Approx(sum).epsilon(1e-12));
        const bool makes_scores = !scenario.software.flash_attention && std::string(layer) != "linear/dense";
        if (!makes_scores) CHECK(sum > microbatch_time(whole, false).value);  // those of later keys are not made
        if (std::string(layer) != "full/dense") continue;
        REQUIRE_FALSE(sliced.slices.empty());
        for (int slice = 1; slice < slices; ++slice) {
          CHECK(sliced.slices[static_cast<std::size_t>(slice)].forward >
                sliced.slices[static_cast<std::size_t>(slice) - 1].forward);
        }
      }
    }
  }
}

TEST_CASE("costs counted once a step do not depend on slices, and blocks without cross-token work are equal") {
  const Scenario scenario = scenario_of("full/dense");
  const std::vector<ComputeCost> whole = block_costs(scenario, 1);
  const std::vector<ComputeCost> sliced = block_costs(scenario, 1, equal_slices(sequence, 4));
  CHECK(sliced.front().slices.empty());
  CHECK(sliced.back().slices.empty());
  for (std::size_t block = 0; block < whole.size(); ++block) {
    CHECK(sliced[block].parameter_bytes == whole[block].parameter_bytes);
    CHECK(sliced[block].gradient_bytes == whole[block].gradient_bytes);
    CHECK(sliced[block].optimizer == whole[block].optimizer);
    // Flash attention keeps what belongs to a token alone.
    CHECK(sliced[block].kept_bytes.value == Approx(static_cast<double>(whole[block].kept_bytes.value) / 4));
  }
  // A stage is its blocks one after the other, also slice by slice.
  const ComputeCost stage = in_sequence(sliced);
  for (int slice = 0; slice < 4; ++slice) {
    Seconds forward;
    for (const ComputeCost& block : sliced) forward += times_of(block, slice).forward;
    CHECK(times_of(stage, slice).forward.value == Approx(forward.value).epsilon(1e-12));
  }
}

TEST_CASE("a step on one rank takes all of its slices, each its own time") {
  const Plan plan = plan_of(scenario_of("full/dense"), "seq-1f1b", 4);
  const ComputeCost& stage = plan.costs.stages.front();
  double sum = stage.optimizer.value;
  for (int slice = 0; slice < 4; ++slice) sum += 8 * seconds_of(times_of(stage, slice));
  const Timeline timeline = predict_by_path(plan);
  CHECK(timeline.steps[0].duration.value == Approx(sum).epsilon(1e-9));
  for (const Event& event : timeline.steps[0].events) {
    if (event.action.kind != ActionKind::forward) continue;
    const double wanted = times_of(stage, event.action.microbatch % 4).forward.value;
    CHECK((event.end - event.start).value == Approx(wanted).epsilon(1e-9));
  }
}

// Layers so small that the gaps between kernels are most of their time: a slice has as many of them as the whole.
TEST_CASE("slices of what launches bound take as long as the whole, and lose against 1F1B") {
  const Scenario scenario = read_text(
      "model: {vocabulary: 1024, hidden: 256, heads: 4, ffn: 1024, tied_embeddings: false, layers: \"full/dense*8\"}\n"
      "cluster: {machine: dgx-a100, ranks: 4}\n"
      "training: {sequence: 512, microbatch: 1, precision: bf16, global_batch: 8}\n"
      "layout: {pipeline: 4}\nschedule: 1f1b\nsplit: uniform\n");
  const ComputeCost whole = block_costs(scenario, 1)[1];
  const ComputeCost slice = block_costs(scenario, 1, equal_slices(512, 4))[1];
  CHECK(slice.forward / whole.forward > 0.6);
  CHECK(step_of(plan_of(scenario, "1f1b", 1)).time < step_of(plan_of(scenario, "seq-1f1b", 4)).time);
}

namespace {

const std::vector<std::int64_t> lengths{1536, 1024, 896, 640};

Bytes workspace(const ComputeCost& cost) { return cost.forward_workspace_bytes; }

// What a slice alone does not know: which gradients other slices leave to each other.
SliceBytes without_gradients(SliceBytes bytes) {
  bytes.input_gradient_workspace -= bytes.gradients_left;
  bytes.gradients_taken = bytes.gradients_left = {};
  return bytes;
}

}  // namespace

TEST_CASE("slices of any lengths have the sequence's FLOPs together") {
  for (const char* layer : {"full/dense", "sliding/dense", "linear/dense"}) {
    const Scenario scenario = scenario_of(layer);
    for (const Phase phase : phases) {
      INFO(layer << ", phase " << static_cast<int>(phase));
      Work sum;
      for (const Slice& slice : slices_of(lengths)) {
        const Work part = work_of(scenario, slice, phase);
        sum.matmuls += part.matmuls;
        sum.cores += part.cores;
      }
      const Work whole = work_of(scenario, {}, phase);
      CHECK(sum.matmuls == Approx(whole.matmuls).epsilon(1e-12));
      CHECK(sum.cores == Approx(whole.cores).epsilon(1e-12));
    }
  }
}

TEST_CASE("slices of different lengths have bytes of their own, as their tokens of flash attention") {
  const Scenario scenario = scenario_of("full/dense");
  const std::vector<ComputeCost> whole = block_costs(scenario, 1);
  const std::vector<ComputeCost> sliced = block_costs(scenario, 1, slices_of(lengths));
  for (std::size_t block = 0; block < whole.size(); ++block) {
    INFO("block " << block);
    const ComputeCost& cost = sliced[block];
    REQUIRE(cost.slices.size() == 4);
    REQUIRE(cost.slice_bytes.size() == 4);
    Bytes kept;
    Bytes most;
    for (int slice = 0; slice < 4; ++slice) {
      // Each as if it were asked for alone.
      const Slice own = slices_of(lengths)[static_cast<std::size_t>(slice)];
      const ComputeCost alone = block_costs(scenario, 1, {own})[block];
      CHECK(times_of(cost, slice) == times_of(alone, 0));
      CHECK(without_gradients(bytes_of(cost, slice)) == bytes_of(alone, 0));
      const double share = static_cast<double>(own.tokens) / sequence;
      CHECK(bytes_of(cost, slice).kept.value ==
            Approx(share * static_cast<double>(whole[block].kept_bytes.value)).margin(1));
      kept += bytes_of(cost, slice).kept;
      most = std::max(most, bytes_of(cost, slice).forward_workspace);
    }
    CHECK(cost.kept_bytes == kept / 4);
    CHECK(workspace(cost) == most);
    CHECK(as_largest_slice(cost).kept_bytes == bytes_of(cost, 0).kept + bytes_of(cost, 0).gradients_taken);
    CHECK(as_smallest_slice(cost).kept_bytes == bytes_of(cost, 3).kept);
  }
}

TEST_CASE("a stage has the bytes of its blocks in sequence, slice by slice, also where layers are redone") {
  const Scenario scenario = scenario_of("full/dense");
  std::vector<ComputeCost> sliced = block_costs(scenario, 1, slices_of(lengths));
  for (const bool redone : {false, true}) {
    std::vector<ComputeCost> blocks = sliced;
    const std::vector<Bytes> kept{{1536}, {1024}, {896}, {640}};
    blocks[2].kept_if_redone = kept;
    if (redone) blocks[2] = redone_in_backward(blocks[2]);
    const ComputeCost stage = in_sequence(blocks);
    for (int slice = 0; slice < 4; ++slice) {
      std::vector<ComputeCost> alone;
      for (std::size_t block = 0; block < blocks.size(); ++block) {
        alone.push_back(block_costs(scenario, 1, {slices_of(lengths)[static_cast<std::size_t>(slice)]})[block]);
      }
      for (std::size_t block = 1; block + 1 < blocks.size(); ++block) {
        const SliceBytes own = bytes_of(blocks[block], slice);
        alone[block] = handing_on(alone[block],
                                  {{.all = own.gradients_taken, .beside = {}, .gradients_left = own.gradients_left}});
      }
      alone[2].kept_if_redone = {kept[static_cast<std::size_t>(slice)]};
      if (redone) alone[2] = redone_in_backward(alone[2]);
      const ComputeCost wanted = in_sequence(alone);
      CHECK(bytes_of(stage, slice) == bytes_of(wanted, 0));
      CHECK(times_of(stage, slice).input_gradient.value == Approx(times_of(wanted, 0).input_gradient.value));
    }
  }
}

// Later slices read its keys and values, of a window of 512 the last 511, whether it is redone or not.
TEST_CASE("a recomputed layer of a slice saves its input and the keys and values that later slices read") {
  constexpr std::int64_t element = 2;
  constexpr std::int64_t hidden = 2048;
  const std::vector<Slice> slices = slices_of(lengths);
  for (const char* layer : {"full/dense", "sliding/dense", "none/dense"}) {
    for (const int tensor : {1, 4}) {
      Scenario scenario = scenario_of(layer);
      scenario.layout.tensor = {.degree = tensor, .sequence_parallel = tensor > 1};
      scenario.training.recompute = {.mode = RecomputeMode::first_layers, .layers = 1};
      const std::vector<Bytes> kept = block_costs(scenario, 1, slices)[1].kept_if_redone;
      REQUIRE(kept.size() == slices.size());
      for (std::size_t slice = 0; slice < slices.size(); ++slice) {
        const std::int64_t tokens = slices[slice].tokens;
        const std::int64_t read = slice + 1 == slices.size()           ? 0
                                  : std::string(layer) == "none/dense" ? 0
                                  : std::string(layer) == "full/dense" ? tokens
                                                                       : std::min<std::int64_t>(tokens, 511);
        INFO(layer << ", tensor " << tensor << ", slice " << slice);
        CHECK(kept[slice].value == element * hidden * (tokens + 2 * read) / tensor);
      }
      scenario.software.recompute_unit = RecomputeUnit::layer;
      scenario.training.recompute = {.mode = RecomputeMode::full};
      for (int slice = 0; slice < 4; ++slice) {
        CHECK(bytes_of(block_costs(scenario, 1, slices)[1], slice).kept == kept[static_cast<std::size_t>(slice)]);
      }
    }
  }
}

// F of full attention in the first 1536 of 4096 tokens: their share of the matmuls, and 1536·1537/2 of 4096·4097/2
// pairs of tokens.
TEST_CASE("slices share a measured sequence's time by FLOPs, and add up to the whole") {
  const Scenario analytic = scenario_of("full/dense");
  Scenario scenario = analytic;
  scenario.profile = analytic_profile(analytic);
  const std::vector<ComputeCost> measured = block_costs(analytic, 1);
  const std::vector<ComputeCost> sliced = block_costs(scenario, 1, slices_of(lengths));
  const Work whole = work_of(analytic, {}, Phase::forward);
  const Work first = work_of(analytic, {.before = 0, .tokens = 1536}, Phase::forward);
  const double share = (first.matmuls + first.cores) / (whole.matmuls + whole.cores);
  CHECK(times_of(sliced[1], 0).forward / measured[1].forward == Approx(share).epsilon(1e-9));
  for (std::size_t block = 0; block < measured.size(); ++block) {
    Seconds forward;
    Seconds backward;
    for (int slice = 0; slice < 4; ++slice) {
      forward += times_of(sliced[block], slice).forward;
      backward += times_of(sliced[block], slice).input_gradient;
      CHECK(bytes_of(sliced[block], slice).kept.value ==
            Approx(static_cast<double>(measured[block].kept_bytes.value * lengths[static_cast<std::size_t>(slice)]) /
                   sequence)
                .margin(1));
    }
    CHECK(forward.value == Approx(measured[block].forward.value).epsilon(1e-9));
    CHECK(backward.value == Approx(measured[block].input_gradient.value).epsilon(1e-9));
  }
}

// With sequence parallelism an action holds a whole value on one side of a move, of a slice the slice's tokens.
TEST_CASE("a slice's workspace is that of a sequence as long as the slice") {
  Scenario scenario = scenario_of("full/dense");
  scenario.layout.tensor = {.degree = 4, .sequence_parallel = true};
  scenario.cluster.ranks = 4;
  Scenario shorter = scenario;
  shorter.training.sequence = sequence / 4;
  const ComputeCost slice = block_costs(scenario, 1, {Slice{.tokens = sequence / 4}}).at(1);
  const ComputeCost whole = block_costs(shorter, 1).at(1);
  CHECK(slice.forward_workspace_bytes == whole.forward_workspace_bytes);
  CHECK(slice.input_gradient_workspace_bytes == whole.input_gradient_workspace_bytes);
}
