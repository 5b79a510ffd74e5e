// `for`: candidates are those that the framework runs, by lists that stand here once more, and what it does not run is
// refused at its key.
#include "common/capability/framework.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "common/planner/make_plan.hpp"
#include "common/search/space.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::string open_scenario(const std::string& framework, const std::string& machine) {
  return "for: " + framework + "\nmodel: {vocabulary: 512, hidden: 64, heads: 8, ffn: 128, layers: full/dense*8}\n" +
         "cluster: {machine: " + machine + ", ranks: 8}\ntraining: {sequence: 64, global_batch: 64, microbatch: 4, " +
         "recompute: auto, offload: auto}\nlayout: {pipeline: auto, tensor: {degree: auto, kind: auto, " +
         "sequence_parallel: auto, asynchronous: auto}, data: {degree: auto, sharding: auto}, vocabulary: auto}\n" +
         "schedule: auto\nsplit: dynamic\n";
}

// From Megatron-LM's arguments.
bool megatron_runs(const Plan& plan) {
  static const std::set<std::string> schedules = {"1f1b", "interleaved-1f1b"};
  const Layout& layout = plan.layout;
  const RecomputeMode recompute = plan.training.recompute.mode;
  return schedules.contains(plan.schedule.name) && layout.tensor.kind == TensorKind::one_d &&
         layout.stage_data.empty() && layout.vocabulary_barriers == 0 &&
         (!shards_weights(layout) || layout.data.reshard_after_forward) && layout.order[0] == MeshAxis::tensor &&
         recompute != RecomputeMode::every_nth_layer && !plan.training.offload.parameters;
}

// From torchtitan's configuration and torch.distributed.pipelining.
bool torchtitan_runs(const Plan& plan) {
  static const std::set<std::string> schedules = {"1f1b",           "gpipe", "interleaved-1f1b", "breadth-first",
                                                  "interleaved-zb", "zb-v",  "dualpipe-v"};
  const Layout& layout = plan.layout;
  const RecomputeMode recompute = plan.training.recompute.mode;
  const Offload& offload = plan.training.offload;
  const Sharding sharding = layout.data.sharding;
  return schedules.contains(plan.schedule.name) && layout.tensor.kind == TensorKind::one_d &&
         layout.stage_data.empty() && layout.vocabulary_barriers == 0 && sharding != Sharding::zero1 &&
         sharding != Sharding::zero2 && recompute != RecomputeMode::selective && recompute != RecomputeMode::full &&
         recompute != RecomputeMode::first_layers && offload.optimizer == offload.parameters && !offload.activations;
}

bool plumb_exec_runs(const Plan& plan) {
  const Layout& layout = plan.layout;
  const bool on_gpus = plan.cluster.machine.device.type == DeviceType::cuda;
  if (on_gpus && (offloads(plan.training.offload) || layout.tensor.asynchronous || layout.vocabulary_barriers > 0)) {
    return false;
  }
  const bool several = layout.data.degree > 1 || layout.tensor.degree > 1;
  const RecomputeMode recompute = plan.training.recompute.mode;
  return layout.stage_data.empty() && !(several && (replicas(plan.schedule) > 1 || plan.schedule.update_every > 0)) &&
         !(layout.tensor.degree > 1 && (plan.schedule.slices > 1 || evicts(plan.schedule))) &&
         (recompute == RecomputeMode::none || recompute == RecomputeMode::selective ||
          recompute == RecomputeMode::full);
}

// Plans every candidate that nothing speaks against; how many there are.
template <class Runs>
int require_all_run(const std::string& text, const Runs& runs) {
  const Scenario scenario = read_text(text);
  const SearchSpace space(scenario);
  int planned = 0;
  constexpr std::int64_t spread = 7;  // every seventh family
  for (std::int64_t family = 0; family < space.families(); family += spread) {
    if (space.refusal(family)) continue;
    const PlanChoice choice = space.choice(family * space.splits());
    CAPTURE(describe(*choice.layout), choice.schedule.name);
    try {
      const Plan plan = make_plan(scenario, choice);
      ++planned;
      CHECK(runs(plan));
    } catch (const InputError&) {  // shapes and memory
    }
  }
  return planned;
}

}  // namespace

TEST_CASE("every candidate for a framework is one that it runs") {
  CHECK(require_all_run(open_scenario("megatron", "dgx-a100"), megatron_runs) > 20);
  CHECK(require_all_run(open_scenario("torchtitan", "dgx-a100"), torchtitan_runs) > 20);
  CHECK(require_all_run(open_scenario("plumb-exec", "dgx-a100"), plumb_exec_runs) > 20);
  CHECK(require_all_run(open_scenario("plumb-exec", "local-cpu"), plumb_exec_runs) > 20);
}

TEST_CASE("a scenario for a framework says what it leaves out of auto") {
  const auto left_out = [](const std::string& framework) {
    const Scenario scenario = read_text(open_scenario(framework, "dgx-a100"));
    return std::set<std::string>(scenario.left_out.begin(), scenario.left_out.end());
  };
  const std::set<std::string> megatron = left_out("megatron");
  for (const char* name : {"gpipe", "zb-v", "tensor 2d", "tensor 3d", "vocabulary over the pipeline"}) {
    CAPTURE(name);
    CHECK(megatron.contains(name));
  }
  CHECK_FALSE(megatron.contains("1f1b"));
  CHECK(left_out("torchtitan").contains("zero1"));
  CHECK_FALSE(left_out("torchtitan").contains("zb-v"));
  CHECK(left_out("plumb-exec").contains("offload optimizer"));
  CHECK(read_text(scenario_text("schedule: 1f1b\n")).left_out.empty());
}

TEST_CASE("a feature that a framework does not run is refused at the key that names it") {
  const auto told = [](const std::string& rest) { return message_for("for: megatron\n" + scenario_text(rest)); };
  CHECK_THAT(told("schedule: zb-h1\n"), ContainsSubstring("scenario.yaml:12:11: ") &&
                                            ContainsSubstring("Megatron-LM does not run the schedule zb-h1") &&
                                            ContainsSubstring("hint: schedule: 1f1b or interleaved-1f1b"));
  CHECK_THAT(told("schedule: [1f1b, gpipe]\n"), ContainsSubstring("does not run the schedule gpipe"));
  CHECK_THAT(told("cluster: {machine: dgx-a100}\nlayout: {pipeline: 2, tensor: {degree: 4, kind: 2d}}\n"),
             ContainsSubstring("scenario.yaml:13:"));
  CHECK_THAT(told("training: {lora: {rank: 4}}\n"), ContainsSubstring("does not run LoRA"));
  CHECK(told("schedule: {name: interleaved-1f1b, chunks: 2}\nlayout: {pipeline: 2}\n") == "no error");
  CHECK_THAT(message_for("for: megaton\n" + scenario_text("")), ContainsSubstring("did you mean 'megatron'?"));
  CHECK_THAT(message_for("for: torchtitan\n" + scenario_text("layout: {data: {degree: 2, sharding: zero1}}\n")),
             ContainsSubstring("torchtitan does not run sharding zero1") && ContainsSubstring("fsdp or hsdp"));
  ScenarioOverrides overrides;
  overrides.framework = "torchtitan";
  const TemporaryFolder folder;
  const auto path = folder.write("scenario.yaml", scenario_text("schedule: zb-v\nlayout: {pipeline: 2}\n"));
  CHECK(read_scenario(path, overrides).framework == Framework::torchtitan);
  overrides.framework = "megatron";
  CHECK_THROWS_WITH(read_scenario(path, overrides), ContainsSubstring("does not run the schedule zb-v"));
}
