// Bytes of a rank under every rule by which data-parallel ranks share out states, gradients and weights, and of what
// stands on the host: as a plan has them, and measured between threads.
#include <algorithm>

#include "common/layout/lane.hpp"
#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "tests/exec/stage/sharding/sharded_runs.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

struct Case {
  std::string layout;
  std::string training;
  std::string schedule = "1f1b";
  int ranks = 4;
  int microbatch = 1;
};

// A layer's weights are about as large as what it keeps of a microbatch: neither hides what is counted of the other.
Plan plan_of(const Case& shape, const std::string& precision, bool overlap) {
  const TemporaryFolder folder;
  const Scenario scenario = read_scenario(folder.write(
      "scenario.yaml",
      "model: {name: small, vocabulary: 256, hidden: 64, heads: 4, kv_heads: 2, ffn: 192, layers: full/dense*8}\n"
      "cluster: {machine: local-cpu, ranks: " +
          std::to_string(shape.ranks) + "}\ntraining: {sequence: 64, global_batch: 16, microbatch: " +
          std::to_string(shape.microbatch) + ", precision: " + precision + shape.training +
          "}\nsoftware: {like: plumb, data_overlap: " + (overlap ? "true" : "false") + "}\nlayout: {" + shape.layout +
          "}\nschedule: " + shape.schedule + "\nsplit: uniform\n"));
  return make_plan(
      scenario,
      {.microbatch = shape.microbatch, .schedule = scenario.schedules.front(), .split = scenario.splits.front()});
}

void require_predicted_memory(const Case& shape, const std::string& precision, bool overlap) {
  const Plan plan = plan_of(shape, precision, overlap);
  const std::vector<RankSummary> predicted = predict_by_path(plan).ranks;
  const Outcome run = train(plan, 4);
  for (const RankLog& log : run.logs.ranks.front()) {
    const auto place = static_cast<std::size_t>(lane_of(plan.layout, log.rank).pipeline_rank);
    // What a rank has sent to a peer that is late stays its own until that takes it, which nobody predicts.
    Bytes peak = log.steps.back().peak_bytes;
    for (std::size_t step = 1; step < log.steps.size(); ++step) peak = std::min(peak, log.steps[step].peak_bytes);
    INFO(text(plan) << shape.training << ", " << precision << (overlap ? ", beside" : "") << ", rank " << log.rank
                    << ": predicted " << predicted[place].peak_bytes.value << ", measured " << peak.value);
    CHECK(peak / predicted[place].peak_bytes == Approx(1.0).margin(0.05));
  }
}

std::string at_use(const std::string& kind) { return kind + ", reshard_after_forward: true, reduce: each_microbatch"; }
std::string over_four(const std::string& rule) { return "data: {degree: 4, sharding: " + rule + "}"; }
std::string in_stages(const std::string& rule) { return "pipeline: 2, data: {degree: 2, sharding: " + rule + "}"; }

}  // namespace

TEST_CASE("under every rule of sharing out a rank needs the memory that is predicted, within 5%") {
  const std::string precision = GENERATE("fp32", "bf16");
  const bool overlap = GENERATE(false, true);
  for (const std::string& rule :
       {std::string("zero1"), std::string("zero2"), at_use("zero3"),
        std::string("fsdp, reshard_after_forward: false, reduce: last_microbatch"),
        std::string("fsdp, reshard_after_forward: false, reduce: each_microbatch"),
        std::string("{kind: hsdp, shard: 2, replicate: 2}"),
        std::string("{kind: hsdp, shard: 2, replicate: 2}, reshard_after_forward: false, reduce: last_microbatch")}) {
    require_predicted_memory({over_four(rule), ""}, precision, overlap);
  }
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    for (const std::string& rule : {std::string("zero1"), std::string("zero2"), at_use("fsdp")}) {
      require_predicted_memory({in_stages(rule), "", schedule}, precision, overlap);
    }
  }
}

// Three ahead: two blocks' gradients are under way.
TEST_CASE("however far ahead blocks are gathered a rank needs the memory that is predicted, within 5%") {
  const std::string precision = GENERATE("fp32", "bf16");
  const std::string prefetch = ", prefetch: " + GENERATE(std::string("0"), "2", "3");
  require_predicted_memory({over_four(at_use("fsdp") + prefetch), ""}, precision, true);
  require_predicted_memory({over_four("{kind: hsdp, shard: 2, replicate: 2}" + prefetch), ""}, precision, true);
  require_predicted_memory({over_four(at_use("zero3, quantized_weights: true, secondary_shard: 2") + prefetch), ""},
                           precision, true);
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    require_predicted_memory({in_stages(at_use("fsdp") + prefetch), "", schedule}, precision, true);
  }
}

TEST_CASE("however many layers are gathered as one a rank needs the memory that is predicted, within 5%") {
  const std::string precision = GENERATE("fp32", "bf16");
  const std::string units = GENERATE(std::string(", layers_per_unit: 2"), ", layers_per_unit: 3, prefetch: 0",
                                     ", layers_per_unit: 2, prefetch: 2");
  require_predicted_memory({over_four(at_use("fsdp") + units), ""}, precision, true);
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    require_predicted_memory({in_stages(at_use("fsdp") + units), "", schedule}, precision, true);
  }
}

TEST_CASE("with every part of ZeRO++ a rank needs the memory that is predicted, within 5%") {
  const std::string precision = GENERATE("fp32", "bf16");
  const bool overlap = GENERATE(false, true);
  for (const std::string& part : {std::string("quantized_weights: true"), std::string("secondary_shard: 2"),
                                  std::string("quantized_gradients: 2"),
                                  std::string("quantized_weights: true, secondary_shard: 2, quantized_gradients: 2")}) {
    require_predicted_memory({over_four(at_use("zero3, " + part)), ""}, precision, overlap);
  }
}

TEST_CASE("with states or activations on the host a rank needs the memory that is predicted, within 5%") {
  const std::string precision = GENERATE("fp32", "bf16");
  for (const std::string offload : {"optimizer", "activations", "optimizer+activations"}) {
    const std::string training = ", offload: " + offload;
    require_predicted_memory({"data: {degree: 1}", training, "1f1b", 1}, precision, false);
    require_predicted_memory({over_four(at_use("fsdp")), training}, precision, false);
    require_predicted_memory({in_stages("zero1"), training, "zb-h1"}, precision, false);
  }
}

TEST_CASE("a grid's ranks whose replicas share out what they hold need the memory that is predicted, within 5%") {
  const std::string precision = GENERATE("fp32", "bf16");
  for (const std::string& rule : {std::string("zero1"), at_use("fsdp")}) {
    const std::string shared = "tensor: {degree: 4, kind: 2d}, data: {degree: 2, sharding: " + rule + "}";
    require_predicted_memory({.layout = shared, .training = "", .ranks = 8, .microbatch = 2}, precision, false);
  }
}
