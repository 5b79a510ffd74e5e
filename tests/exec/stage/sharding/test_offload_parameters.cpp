// Weights that ranks share out, whose parts stand on the host: the bits of a run that has them on the device, and what
// is copied and held where.
#include <algorithm>
#include <thread>

#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "exec/host/memory.hpp"
#include "exec/stage/factory.hpp"
#include "tests/exec/stage/sharding/sharded_runs.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

constexpr Offload offload_weights{.parameters = true};
constexpr Offload offload_weights_and_states{.optimizer = true, .parameters = true};
constexpr Offload offload_all{.optimizer = true, .activations = true, .parameters = true};

Plan with_offload(Plan plan, const Offload& offload) {
  plan.training.offload = offload;
  return plan;
}

// As the planner makes it, so that its costs say what moves and what is held. All weights have a multiple of four
// elements.
Plan planned_with_offload(const std::string& precision, const std::string& offload, const std::string& more = "") {
  const TemporaryFolder folder;
  const Scenario scenario = read_scenario(folder.write(
      "scenario.yaml",
      "model: {name: small, vocabulary: 256, hidden: 64, heads: 4, ffn: 192, layers: full/dense*8}\n"
      "cluster: {machine: {like: local-cpu, name: mine, device: {peak: {bf16: 100 GFLOP/s}}}, ranks: 4}\n"
      "training: {sequence: 64, global_batch: 16, microbatch: 2, precision: " +
          precision + ", offload: " + offload + more +
          "}\nlayout: {data: {degree: 4, sharding: fsdp, reshard_after_forward: true, reduce: each_microbatch}}\n"
          "schedule: 1f1b\nsplit: uniform\n"));
  return make_plan(scenario,
                   {.microbatch = 2, .schedule = scenario.schedules.front(), .split = scenario.splits.front()});
}

Bytes host_copies_of(const RankStep& step) {
  Bytes sum;
  for (const Event& event : step.events) {
    if (event.action.kind != ActionKind::optimizer_step && !gathers_weights(event.action.kind)) continue;
    CHECK(event.waited > Seconds{});
    CHECK(event.waited < event.end - event.start);
    sum += event.bytes;
  }
  return sum;
}

// What a rank of the plan has on its host when its stages are made.
Bytes held_on_host_at_first(const Plan& plan, int account) {
  Bytes held;
  std::thread([&] {
    begin_rank_thread(account);
    const std::vector<std::unique_ptr<Transport>> transports = transport_kinds().front().make(ranks(plan.layout));
    StageOptions options;
    options.transport = transports.front().get();
    const auto stages = make_stages(plan, 0, options);
    held = host_memory(account);
  }).join();
  CHECK(host_memory(account) == Bytes{});
  return held;
}

}  // namespace

TEST_CASE("steps have the same bits with weights on the host, under every rule that shares them out") {
  for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
    const Plan plan =
        test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .precision = precision, .data = 4});
    for (const Rule& rule : {Rule{Sharding::zero3, true, false}, Rule{Sharding::fsdp, true, true},
                             Rule{Sharding::fsdp, true, true, false}, Rule{Sharding::hsdp, true, false, true, 2}}) {
      const Plan parts = sharded(plan, rule);
      const Outcome here = train(parts, 4);
      for (const Offload& offload : {offload_weights, offload_weights_and_states, offload_all}) {
        INFO(text(parts) << ", " << describe(offload));
        require_same_bits(train(with_offload(parts, offload), 4), here);
      }
    }
  }
}

TEST_CASE("pipelines with weights on the host pass the check on every transport") {
  const std::string schedule = GENERATE("1f1b", "zb-h1");
  const Plan plan =
      sharded(test::training_plan({.model = test::gpt2(2, true), .schedule = schedule, .ranks = 2, .data = 2}),
              {Sharding::fsdp, true, true});
  const Outcome run = train(with_offload(plan, offload_weights), 3);
  require_passed(plan, run);
  require_same_bits(run, train(plan, 3));
  require_same_bits(train(with_offload(plan, offload_weights_and_states), 3, transport_kinds().back()), run);
}

TEST_CASE("tensor groups and forwards that are redone have the same bits with weights on the host") {
  const bool tensor = GENERATE(false, true);
  const Plan plan = sharded(test::training_plan({.model = test::gpt2(2, false),
                                                 .ranks = 2,
                                                 .recompute = !tensor,
                                                 .data = 2,
                                                 .tensor = tensor ? 2 : 1,
                                                 .sequence_parallel = tensor}),
                            {Sharding::zero3, true, true});
  const Outcome here = train(plan, 3);
  require_same_bits(train(with_offload(plan, offload_weights), 3), here);
  require_same_bits(train(with_offload(plan, offload_weights_and_states), 3), here);
}

TEST_CASE("frozen weights on the host have the same bits") {
  Plan plan = sharded(test::training_plan({.model = test::llama(2), .microbatches = 2, .data = 4}),
                      {Sharding::fsdp, true, true});
  plan.training.lora = Lora{.rank = 4, .targets = {LoraTarget::query, LoraTarget::value}};
  require_same_bits(train(with_offload(plan, offload_weights), 3), train(plan, 3));
}

TEST_CASE(
    "a rank with weights on its host needs the memory that is predicted, within 5%, and copies what is, exactly") {
  int account = 1100;  // nobody else's
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const std::string offload : {"parameters", "optimizer+parameters"}) {
      for (const std::string lora : {"", ", lora: {rank: 4, targets: all}"}) {
        const Plan plan = planned_with_offload(precision, offload, lora);
        const Plan all = planned_with_offload(precision, "none", lora);
        const RankSummary predicted = predict_by_path(plan).ranks.front();
        const Outcome run = train(plan, 4);
        const Outcome here = train(all, 2);
        const Bytes weights = all.costs.stages.front().parameter_bytes;
        const Bytes states = offload == "parameters" ? Bytes{} : all.costs.stages.front().optimizer_bytes;
        for (std::size_t rank = 0; rank < 4; ++rank) {
          const RankStep& step = run.logs.ranks.front()[rank].steps.back();
          const RankStep& of_here = here.logs.ranks.front()[rank].steps.back();
          Bytes peak = step.peak_bytes;  // the least: what a late peer has not taken is predicted by nobody
          for (std::size_t n = 1; n < 4; ++n) {
            peak = std::min(peak, run.logs.ranks.front()[rank].steps[n].peak_bytes);
          }
          INFO(precision << ", " << offload << lora << ", rank " << rank << ": predicted " << predicted.peak_bytes.value
                         << ", measured " << peak.value);
          CHECK(peak / predicted.peak_bytes == Approx(1.0).margin(0.05));
          CHECK(of_here.held.back() - step.held.back() == weights + states);
          CHECK(host_copies_of(step) == predicted.host_copied_bytes);
          CHECK(step.received_in_data == predicted.by_axis->data);
        }
        CHECK(held_on_host_at_first(plan, account++) == predicted.host_bytes);
      }
    }
  }
}
