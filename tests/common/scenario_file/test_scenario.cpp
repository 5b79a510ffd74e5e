// Scenarios: what is left out, `auto` and lists, files in the place of blocks.
#include "common/scenario/scenario.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/shipped.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

TEST_CASE("a model alone is a scenario") {
  const TemporaryFolder folder;
  const Scenario scenario = read_scenario(folder.write("mine.yaml", model_block + "cluster: {cores: 3}\n"));
  CHECK(scenario.name == "mine");
  CHECK(scenario.model.layers.size() == 8);
  CHECK(scenario.cluster.machine.name == "local-cpu");
  CHECK(scenario.cluster.machine.cores == 3);
  CHECK(scenario.cluster.ranks == 3);
  CHECK(scenario.layout.pipeline == 3);
  CHECK(scenario.training.precision == ElementType::fp32);
  CHECK(scenario.training.optimizer == Optimizer::adam);
  CHECK(scenario.training.recompute == Recompute{});
  CHECK(scenario.training.sequence == 4096);
  CHECK(scenario.training.global_batch == 12);
  CHECK(scenario.microbatches == std::vector<std::int64_t>{1});
  CHECK(scenario.schedules == std::vector<ScheduleChoice>{{.name = "1f1b", .chunks = 1}});
  CHECK(scenario.splits == std::vector<SplitChoice>{{.method = SplitMethod::dynamic}});
  CHECK_FALSE(scenario.profile.has_value());
}

TEST_CASE("the default batch is four microbatches for each stage of every pipeline") {
  for (const auto& [pipeline, data] : {std::pair{1, 8}, {2, 3}, {4, 2}}) {
    const std::string layout =
        "layout: {pipeline: " + std::to_string(pipeline) + ", data: {degree: " + std::to_string(data) + "}}\n";
    const Scenario scenario = read_text(
        scenario_text("cluster: {machine: dgx-a100, ranks: " + std::to_string(pipeline * data) + "}\n" + layout));
    CAPTURE(layout);
    CHECK(scenario.training.global_batch == 4 * pipeline * data);
    const Plan plan = make_plan(scenario, only_choice(scenario));
    CHECK(plan.schedule.microbatches == 4 * pipeline);
  }
}

TEST_CASE("a machine may be like another, which may be like a third") {
  const TemporaryFolder folder;
  (void)folder.write("ours.yaml", "like: pcie-rtx4090\nname: ours\ndevices: 4\ndevice: {memory: 48 GiB}\n");
  const std::string four = scenario_text("cluster: {machine: ours.yaml}\nlayout: {pipeline: 4}\n");
  const Machine shipped =
      read_text(scenario_text("cluster: {machine: pcie-rtx4090}\nlayout: {pipeline: 8}\n")).cluster.machine;
  const Machine ours = read_scenario(folder.write("four.yaml", four)).cluster.machine;
  CHECK(ours.name == "ours");
  CHECK(ours.devices == 4);
  CHECK(ours.device.memory.source == "stated in this file");
  CHECK(ours.device.memory.value > shipped.device.memory.value);
  CHECK(ours.device.matmul_efficiency == shipped.device.matmul_efficiency);
  (void)folder.write("slow.yaml",
                     "like: ours.yaml\nname: slow\noutside: {bandwidth: {value: 10 Gbps, source: seen}}\n");
  const std::string chain = scenario_text("cluster: {machine: slow.yaml}\nlayout: {pipeline: 4}\n");
  const Machine slow = read_scenario(folder.write("chain.yaml", chain)).cluster.machine;
  CHECK(slow.devices == 4);
  CHECK(slow.outside.bandwidth.value == BytesPerSecond{1.25e9});
  CHECK(slow.outside.bandwidth.source == "seen");
  CHECK(slow.outside.bandwidth.uncertainty == 0);  // not that of the bandwidth it replaces
  CHECK(slow.outside.latency == shipped.outside.latency);
}

TEST_CASE("machines that are like each other in a circle, or without a name of their own, are refused") {
  const TemporaryFolder folder;
  (void)folder.write("a.yaml", "{like: b.yaml, name: a}\n");
  (void)folder.write("b.yaml", "{like: a.yaml, name: b}\n");
  (void)folder.write("c.yaml", "{like: dgx-h100}\n");
  const auto refused = [&](const std::string& machine) {
    return folder.write("s.yaml", scenario_text("cluster: {machine: " + machine + "}\n"));
  };
  CHECK_THROWS_WITH(read_scenario(refused("a.yaml")), ContainsSubstring("a circle?"));
  CHECK_THROWS_WITH(read_scenario(refused("c.yaml")), ContainsSubstring("a name of its own"));
}

TEST_CASE("training, cluster and layout are read as written") {
  const Scenario scenario = read_text(scenario_text(R"(cluster: {machine: dgx-h100, ranks: 4, memory: 40 GiB}
training: {sequence: 128, global_batch: 24, microbatch: 3, precision: fp32, recompute: full, optimizer: sgd,
           learning_rate: 0.5, seed: 77}
layout: {order: [data, pipeline], pipeline: 4, tensor: {degree: 1, kind: 1d}, data: {degree: 1, sharding: none}}
schedule: {name: interleaved-1f1b, chunks: 2}
split: [1, 1, 1, 1, 1, 1, 1, 1]
)"));
  CHECK(scenario.cluster.ranks == 4);
  CHECK(scenario.cluster.machine.devices == 8);
  CHECK(scenario.cluster.machine.device.memory.value == Bytes{std::int64_t{40} << 30});
  CHECK(scenario.cluster.machine.device.peak.value == FlopsPerSecond{67e12});  // fp32's
  CHECK(scenario.training == Training{.sequence = 128,
                                      .global_batch = 24,
                                      .microbatch = 3,
                                      .precision = ElementType::fp32,
                                      .recompute = {.mode = RecomputeMode::full},
                                      .optimizer = Optimizer::sgd,
                                      .learning_rate = 0.5,
                                      .seed = 77});
  CHECK(scenario.layout.order.front() == MeshAxis::data);
  CHECK(scenario.schedules == std::vector<ScheduleChoice>{{.name = "interleaved-1f1b", .chunks = 2}});
  REQUIRE(scenario.splits.size() == 1);
  CHECK(scenario.splits.front().counts == std::vector<int>(8, 1));
}

TEST_CASE("GPUs train in bf16 unless told otherwise") {
  const Scenario scenario = read_text(scenario_text("cluster: {machine: dgx-a100, ranks: 8}\n"));
  CHECK(scenario.training.precision == ElementType::bf16);
  CHECK(scenario.cluster.machine.device.peak.value == FlopsPerSecond{312e12});
  CHECK(scenario.layout.pipeline == 8);
}

TEST_CASE("ranks follow from the layout where the cluster leaves them open, and the reverse") {
  CHECK(read_text(scenario_text("layout: {pipeline: 5}\n")).cluster.ranks == 5);
  const Scenario more = read_text(scenario_text("cluster: {machine: local-cpu, ranks: 6, cores: 2}\n"));
  CHECK(more.layout.pipeline == 6);
  CHECK(more.cluster.machine.cores == 2);
  CHECK(machine_of(5, more.cluster.machine.devices) == 0);  // all on this machine, however many cores it has
}

TEST_CASE("auto and lists become candidates") {
  const std::string cluster = "cluster: {machine: local-cpu, ranks: 2, cores: 2}\n";
  const Scenario open = read_text(scenario_text(
      cluster + "training: {sequence: 32, global_batch: 24, microbatch: auto}\nschedule: auto\nsplit: auto\n"));
  CHECK(open.microbatches == std::vector<std::int64_t>{1, 2, 4, 8});  // powers of two that divide 24
  CHECK(open.splits.size() == 3);
  std::vector<std::string> names;
  for (const ScheduleChoice& choice : open.schedules) names.push_back(choice.name + std::to_string(choice.chunks));
  // All but the asynchronous ones; Hanayo has chunks in pairs, the V shapes have two.
  CHECK(names == std::vector<std::string>{"gpipe1",
                                          "1f1b1",
                                          "eager-1f1b1",
                                          "interleaved-1f1b2",
                                          "interleaved-1f1b3",
                                          "interleaved-1f1b4",
                                          "breadth-first2",
                                          "breadth-first3",
                                          "breadth-first4",
                                          "zb-h11",
                                          "zb-h21",
                                          "zb-v2",
                                          "zb-auto1",
                                          "zb-auto2",
                                          "interleaved-zb2",
                                          "interleaved-zb3",
                                          "interleaved-zb4",
                                          "v-half2",
                                          "v-min2",
                                          "dualpipe1",
                                          "dualpipe-v2",
                                          "chimera1",
                                          "hanayo2",
                                          "hanayo4",
                                          "seq-1f1b1",
                                          "bpipe1"});

  const Scenario listed = read_text(scenario_text(cluster + R"(training: {global_batch: 24, microbatch: [3, 2]}
schedule: [gpipe, {name: interleaved-1f1b, chunks: [2, 4]}]
split: [uniform, [3, 5], "Et*4|t*4L"]
)"));
  CHECK(listed.microbatches == std::vector<std::int64_t>{3, 2});
  CHECK(listed.training.microbatch == 3);
  CHECK(listed.schedules == std::vector<ScheduleChoice>{{.name = "gpipe", .chunks = 1},
                                                        {.name = "interleaved-1f1b", .chunks = 2},
                                                        {.name = "interleaved-1f1b", .chunks = 4}});
  REQUIRE(listed.splits.size() == 3);
  CHECK(listed.splits[0].method == SplitMethod::uniform);
  CHECK(listed.splits[1].counts == std::vector<int>{3, 5});
  CHECK(listed.splits[2].megatron == "Et*4|t*4L");
}

TEST_CASE("sharding without a degree takes the ranks that are left") {
  const auto degrees = [](const std::string& rest) {
    const Layout layout = read_text(scenario_text("training: {global_batch: 64}\n" + rest)).layout;
    return std::array{layout.pipeline, layout.tensor.degree, layout.data.degree};
  };
  const std::string gpus = "cluster: {machine: dgx-a100}\n";
  CHECK(degrees(gpus + "layout: {data: {sharding: fsdp}}\n") == std::array{1, 1, 8});
  CHECK(degrees(gpus + "layout: {pipeline: 2, tensor: 2, data: {sharding: zero1}}\n") == std::array{2, 2, 2});
  CHECK(degrees(gpus + "layout: {tensor: 2, data: {degree: 2, sharding: fsdp}}\n") == std::array{2, 2, 2});
  CHECK(degrees("cluster: {machine: dgx-a100, nodes: 4}\nlayout: {data: {sharding: zero++}}\n") ==
        std::array{1, 1, 32});
  const Scenario open = read_text(
      scenario_text("training: {global_batch: 64}\n" + gpus + "layout: {pipeline: auto, data: {sharding: fsdp}}\n"));
  CHECK(std::ranges::all_of(open.layouts, [](const Layout& one) { return one.pipeline * one.data.degree == 8; }));
  CHECK(open.layouts.size() > 1);
}

TEST_CASE("the order of splits in a file does not matter") {
  const Scenario one = read_text(scenario_text("split: [uniform, dynamic, parameters]\n"));
  const Scenario other = read_text(scenario_text("split: [dynamic, parameters, uniform]\n"));
  CHECK(one.splits == other.splits);
}

TEST_CASE("on one pipeline rank auto means 1F1B alone, and a list what it says") {
  const std::string one_rank = "layout: {pipeline: 1}\ntraining: {sequence: 32, global_batch: 4}\n";
  CHECK(read_text(scenario_text(one_rank + "schedule: auto\n")).schedules ==
        std::vector<ScheduleChoice>{{.name = "1f1b"}});
  CHECK(read_text(scenario_text(one_rank + "schedule: [gpipe, zb-h1]\n")).schedules.size() == 2);
}

TEST_CASE("gathers and reductions of data-parallel ranks overlap on GPUs where no software is stated") {
  const std::string gpus = "cluster: {machine: dgx-a100, ranks: 8}\n";
  const Scenario assumed = read_text(scenario_text(gpus));
  CHECK(assumed.software.data_overlap);
  CHECK_FALSE(is_stated(assumed.software));
  CHECK_FALSE(read_text(scenario_text(gpus + "software: plumb\n")).software.data_overlap);
  CHECK_FALSE(read_text(scenario_text("")).software.data_overlap);  // on CPUs
}

TEST_CASE("nodes: auto takes those of a settled layout, and is refused where plumb plan must find them") {
  const auto nodes = [](const std::string& rest) { return read_text(scenario_text(rest)).cluster.nodes; };
  const std::string cluster = "cluster: {machine: dgx-a100, nodes: auto}\n";
  CHECK(nodes(cluster + "layout: {pipeline: 4}\n") == 1);
  CHECK(nodes(cluster + "layout: {pipeline: 4, data: 8}\ntraining: {global_batch: 64}\n") == 4);
  CHECK(nodes("cluster: {machine: dgx-a100, nodes: auto, ranks: 8}\nlayout: auto\n") == 1);
  CHECK_THAT(message_for(scenario_text(cluster + "layout: auto\n")),
             ContainsSubstring("cluster.nodes") && ContainsSubstring("plumb plan"));
}

TEST_CASE("a file may stand where a block may stand: beside the scenario, or shipped") {
  const TemporaryFolder folder;
  (void)folder.write("my-model.yaml", model_block);
  (void)folder.write("my-training.yaml", "training: {sequence: 48, global_batch: 6}\n");
  (void)folder.write("my-layout.yaml", "pipeline: 2\n");
  const Scenario scenario = read_scenario(folder.write("scenario.yaml",
                                                       "model: my-model.yaml\ntraining: my-training.yaml\n"
                                                       "layout: my-layout.yaml\n"
                                                       "cluster: {machine: machines/dgx-a100.yaml}\n"));
  CHECK(scenario.model.hidden == 64);
  CHECK(scenario.training.sequence == 48);
  CHECK(scenario.layout.pipeline == 2);
  CHECK(scenario.cluster.machine.name == "dgx-a100");
}

TEST_CASE("a file of software may be like another, which may be like a third") {
  const TemporaryFolder folder;
  (void)folder.write("site.yaml", "like: megatron-2022\nname: site\ndata_overlap: true\n");
  (void)folder.write("mine.yaml", "like: site.yaml\nattention: flash\n");
  const auto software = [&](const std::string& value) {
    return read_scenario(folder.write("s.yaml", scenario_text("software: " + value + "\n"))).software;
  };
  Software expected = software("megatron-2022");
  REQUIRE_FALSE(expected.data_overlap);
  expected.name = "site";
  expected.data_overlap = true;
  CHECK(software("site.yaml") == expected);
  expected.name = "site, changed";
  expected.flash_attention = true;
  CHECK(software("mine.yaml") == expected);
  expected.dropout = !expected.dropout;
  const std::string dropout = expected.dropout ? "true" : "false";
  CHECK(software("{like: mine.yaml, dropout: " + dropout + "}") == expected);
}

TEST_CASE("gradients are reduced in buckets of so many bytes, torch's if nothing is said, or of so many parameters") {
  const auto bucket = [](const std::string& software) {
    return read_text(scenario_text("software: " + software + "\n")).software.data_bucket;
  };
  CHECK(bucket("plumb") == GradientBucket{.bytes = {25 << 20}});
  CHECK(bucket("{like: plumb, data_bucket: {bytes: 1 GiB}}") == GradientBucket{.bytes = {1 << 30}});
  CHECK(bucket("megatron-2024") ==
        GradientBucket{
            .parameters = 40'000'000, .parameters_per_rank = 1'000'000, .bytes = {}, .first_stage_only = true});
}

TEST_CASE("PLUMB_SCENARIOS names another folder of shipped files") {
  const TemporaryFolder folder;
  ::setenv("PLUMB_SCENARIOS", folder.file("").c_str(), 1);
  const auto folders = shipped_scenarios();
  ::unsetenv("PLUMB_SCENARIOS");
  CHECK(folders == std::vector<std::filesystem::path>{folder.file("")});
  CHECK(shipped_scenarios() != folders);
}

TEST_CASE("a machine or a software whose file is not where plumb ships it is not called unknown") {
  const TemporaryFolder folder;
  const std::string model = "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense\"}\n";
  const auto machine = folder.write("machine.yaml", model + "cluster: {machine: dgx-a100}\n");
  ::setenv("PLUMB_SCENARIOS", folder.file("").c_str(), 1);
  CHECK_THROWS_WITH(read_scenario(machine), ContainsSubstring("the file of 'dgx-a100', which plumb ships, is not in " +
                                                              folder.file("").string()) &&
                                                ContainsSubstring("PLUMB_SCENARIOS=DIR"));
  ::unsetenv("PLUMB_SCENARIOS");
}

TEST_CASE("command-line options replace the file's keys") {
  const TemporaryFolder folder;
  Profile profile;
  profile.shapes.model_digest = "0123456789abcdef";
  profile.shapes.sequence = 32;
  profile.shapes.microbatch = 2;
  profile.transport = "local";
  profile.transfer.bandwidth = {1e9};
  profile.blocks.emplace_back();
  profile.blocks.back().block = "head";
  const std::string measured = folder.write("profile.yaml", to_yaml(profile)).string();
  const std::string rest = "cluster: {machine: local-cpu, ranks: 2, cores: 2}\ntraining: {sequence: 32}\n";
  const auto own = folder.write("own.yaml", scenario_text(rest + "profile: profile.yaml\nsplit: uniform\n"));
  const auto bare = folder.write("own.yaml.bare", scenario_text(rest + "schedule: gpipe\n"));

  // A profile settles the microbatch, wherever it is named.
  const Scenario given = read_scenario(bare, {.profile = measured});
  CHECK(given.profile == read_scenario(own).profile);
  CHECK(given.microbatches == std::vector<std::int64_t>{2});
  CHECK(read_scenario(own).microbatches == given.microbatches);
  CHECK(read_scenario(bare).microbatches == std::vector<std::int64_t>{1});

  CHECK(read_scenario(own, {.split = "[2, 6]"}).splits.front().counts == std::vector<int>{2, 6});
  CHECK(read_scenario(bare, {.schedule = "zb-h1"}).schedules.front().name == "zb-h1");
  CHECK_THROWS_WITH(read_scenario(own, {.split = "[2, 7]"}), ContainsSubstring("--split: [2, 7]"));
  CHECK_THROWS_WITH(read_scenario(own, {.split = "unifrm"}), ContainsSubstring("did you mean 'uniform'?"));
}

TEST_CASE("every shipped scenario has a plan that fits, and uniform is not the best of them") {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path());
    const Scenario scenario = read_scenario(entry.path());
    if (scenario.layouts.size() > 1) continue;  // too many to list: a search has tests of its own
    const PlanningResult result = plan_scenario(scenario, predict_by_path);
    CHECK(best_fitting(result, scenario).fits);
    CHECK(result.candidates.front().choice.split.method != SplitMethod::uniform);
    ++read;
  }
  CHECK(read >= 4);
}
