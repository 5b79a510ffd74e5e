// A plan is complete: it survives its file, gives the same bytes each time, and nothing inconsistent is read.

#include "common/plan/plan.hpp"

#include "common/cluster/machine_numbers.hpp"
#include "common/cluster/machine_ranges.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

Plan plan_of(const std::string& rest, const PlanChoice& choice) {
  return make_plan(read_text(scenario_text("cluster: {machine: local-cpu, ranks: 2, cores: 2}\n" + rest)), choice);
}

Plan small_plan(const std::string& schedule = "1f1b", int chunks = 1) {
  return plan_of("training: {sequence: 32, global_batch: 8, microbatch: 2}\n",
                 {.microbatch = 2, .schedule = {.name = schedule, .chunks = chunks}});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Of a cuda machine with switches and a NIC, on nodes under leaves and on sites.
Plan plan_on_sites() {
  const Scenario scenario = read_text(scenario_text(R"(cluster:
  machine: pcie-rtx4090
  nodes: 2
  ranks: 4
  nodes_per_leaf: 1
  oversubscription: 2
  sites: {nodes: 1, bandwidth: 1 GB/s, latency: 1 ms}
training: {sequence: 64, global_batch: 8, microbatch: 1, precision: bf16}
layout: {pipeline: 2, data: {degree: 2}}
)"));
  return make_plan(scenario, {.microbatch = 1});
}

}  // namespace

TEST_CASE("a plan keeps its software's buckets and eager operations, and what its tensor groups add up once a step") {
  const Scenario scenario = read_text(
      "model: {vocabulary: 96, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, layers: \"full/dense*2\"}\n"
      "cluster: {machine: dgx-a100, ranks: 4}\ntraining: {sequence: 64, global_batch: 8, microbatch: 1}\n"
      "layout: {pipeline: 2, tensor: {degree: 2, sequence_parallel: true}}\nschedule: 1f1b\nsplit: uniform\n"
      "software: {like: plumb, data_bucket: {bytes: 1 MiB}, eager: true, eager_norms: true}\n");
  const Plan plan = make_plan(scenario, only_choice(scenario));
  CHECK((plan.software.eager && plan.software.eager_norms));
  // Of a layer two norms of 64 channels, in fp32.
  CHECK(plan.costs.stages.front().tensor_gradient_bytes == Bytes{2 * 64 * 4});
  CHECK(read_back(plan) == plan);
  CHECK(to_json(small_plan()).find("data_bucket") == std::string::npos);
  CHECK(to_json(small_plan()).find("eager_norms") == std::string::npos);
  CHECK(to_json(small_plan()).find("tensor_gradient_bytes") == std::string::npos);
}

TEST_CASE("a plan is read back equal, for every schedule, and written as the same bytes") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    const Plan plan = small_plan(entry.name, entry.uses_chunks ? 2 : 1);
    const Plan back = read_back(plan);
    CHECK(back == plan);
    CHECK(to_json(back) == to_json(plan));
    CHECK(lowered_schedule(back) == lowered_schedule(plan));
    CHECK(plan_digest(back) == plan_digest(plan));
    CHECK(costs_digest(back.costs) == costs_digest(plan.costs));
  }
  const Plan recomputed =
      plan_of("training: {global_batch: 8, recompute: full, precision: bf16, seed: 9007199254740992}\n",
              {.microbatch = 2, .schedule = {.name = "zb-h1"}});
  CHECK(read_back(recomputed) == recomputed);
}

TEST_CASE("every layer kind survives a plan") {
  const Scenario scenario = read_text(R"(model:
  vocabulary: 100
  hidden: 64
  heads: 4
  ffn: 128
  window: 8
  tied_embeddings: true
  norm: layernorm
  activation: gelu
  bias: true
  positions: learned
  max_positions: 64
  linear: {key_heads: 2, value_heads: 4, key_dim: 16, value_dim: 16}
  lightning: {heads: 4, head_dim: 16}
  mla: {kv_lora_rank: 16, nope_dim: 16, rope_dim: 8, value_dim: 16}
  mamba: {state: 8}
  mamba2: {heads: 4, head_dim: 32, state: 16}
  experts: {count: 4, top_k: 2, ffn: 32}
  layers: "full/dense, sliding/moe, linear/none, mla/dense, lightning/dense, mamba/none, mamba2/none, none/dense"
training: {sequence: 64, global_batch: 4}
layout: {pipeline: 2}
)");
  const Plan plan = make_plan(scenario, {.microbatch = 1});
  CHECK(read_back(plan) == plan);
  CHECK(plan.costs.tied_bytes == Bytes{100 * 64 * 4});
}

TEST_CASE("digests tell plans and costs apart") {
  const Plan plan = small_plan();
  CHECK(plan_digest(small_plan("zb-h1")) != plan_digest(plan));
  Plan other = plan;
  other.name = "renamed";
  CHECK(plan_digest(other) == plan_digest(plan));
  std::swap(other.split.layers[0], other.split.layers[1]);
  CHECK(plan_digest(other) != plan_digest(plan));
  other = plan;
  other.training.sequence += 1;
  CHECK(plan_digest(other) != plan_digest(plan));
  other = plan;
  other.model.vocabulary += 1;
  CHECK(plan_digest(other) != plan_digest(plan));
  other.model = plan.model;
  other.model.name = "renamed";
  CHECK(plan_digest(other) == plan_digest(plan));
  REQUIRE(plan.model.positions != Positions::learned);  // so no weight knows how long sequences may get
  other.model.max_positions += 1;
  CHECK(plan_digest(other) == plan_digest(plan));
  other = plan;
  other.layout.tensor.degree = 2;
  CHECK(plan_digest(other) != plan_digest(plan));
  other = plan;
  other.costs.stages[0].forward += Seconds{1e-9};
  CHECK(plan_digest(other) == plan_digest(plan));
  CHECK(costs_digest(other.costs) != costs_digest(plan.costs));
}

TEST_CASE("a plan of another version, and another kind of file") {
  const std::string text = to_json(small_plan());
  const std::string message = message_for_plan(replaced(text, "\"version\": 6", "\"version\": 7"));
  CHECK_THAT(message, ContainsSubstring("plan of version 7") && ContainsSubstring("expected version 6"));
  CHECK_THAT(message_for_plan("{}"), ContainsSubstring("is not a plan"));
  CHECK_THAT(message_for_plan("[]"), ContainsSubstring("expected an object"));
  CHECK_THAT(message_for_plan(replaced(text, "  \"version\": 6,\n", "")), ContainsSubstring("version"));
}

TEST_CASE("a truncated plan is an input error with its position, wherever it was cut") {
  const std::string text = to_json(small_plan());
  for (std::size_t length = 0; length < text.size() - 1; length += 97) {
    const std::string message = message_for_plan(text.substr(0, length));
    CAPTURE(length, message);
    CHECK(message.rfind("plan.json:", 0) == 0);
    CHECK(message.find("no error") == std::string::npos);
  }
  const std::string cut = message_for_plan(text.substr(0, text.find("\"layers\"") + 4));
  CHECK_THAT(cut, ContainsSubstring("truncated"));
  CHECK(std::isdigit(static_cast<unsigned char>(cut.at(std::string("plan.json:").size()))) != 0);
}

TEST_CASE("a plan with any one byte changed is read or refused, never worse") {
  const std::string text = to_json(small_plan());
  int refused = 0;
  for (std::size_t at = 0; at < text.size(); at += 13) {
    std::string changed = text;
    changed[at] = changed[at] == '9' ? '-' : '9';
    refused += message_for_plan(changed) == "no error" ? 0 : 1;
  }
  CHECK(refused > 100);
}

TEST_CASE("a plan that contradicts itself is refused, naming the key") {
  const Plan plan = small_plan();
  const auto message_of = [&](const std::function<void(Plan&)>& change) {
    Plan changed = plan;
    change(changed);
    return message_for_plan(to_json(changed));
  };
  CHECK_THAT(message_of([](Plan& p) { p.split.layers.push_back(0); }),
             ContainsSubstring("split.layers") && ContainsSubstring("3 entries for 2 stages"));
  CHECK_THAT(message_of([](Plan& p) { p.split.layers[0] += 1; }),
             ContainsSubstring("adds up to 9 layers, the model has 8"));
  CHECK_THAT(message_of([](Plan& p) { p.cluster.ranks = 3; }),
             ContainsSubstring("cluster.ranks: is 3, the layout needs 2 ranks"));
  CHECK_THAT(message_of([](Plan& p) { p.training.global_batch = 9; }),
             ContainsSubstring("training.global_batch: is 9"));
  CHECK_THAT(message_of([](Plan& p) { p.training.microbatch = 1; }), ContainsSubstring("training"));
  CHECK_THAT(message_of([](Plan& p) { p.layout.pipeline = 3; }), ContainsSubstring("the layout's pipeline 3"));
  CHECK_THAT(message_of([](Plan& p) { p.costs.stages.pop_back(); }), ContainsSubstring("costs"));
  CHECK_THAT(message_of([](Plan& p) { p.costs.ranks_per_machine = 7; }),
             ContainsSubstring("costs.ranks_per_machine: is 7, but of the pipeline"));
  CHECK_THAT(message_of([](Plan& p) { p.costs.cores_per_machine = 7; }),
             ContainsSubstring("costs.cores_per_machine: is 7, the cluster's machine has 2 cores"));
  CHECK_THAT(message_of([](Plan& p) { p.training.recompute.mode = RecomputeMode::full; }),
             ContainsSubstring("training.recompute: does not agree with the schedule"));
  CHECK_THAT(message_of([](Plan& p) {
               p.schedule = with_recompute(p.schedule, {true, false});
             }),
             ContainsSubstring("training.recompute: does not agree with the schedule"));
  CHECK_THAT(message_of([](Plan& p) { p.costs.boundary_bytes += Bytes{4}; }), ContainsSubstring("boundary_bytes"));
  CHECK_THAT(message_of([](Plan& p) { p.boundary.tensors[0].name = "logits"; }), ContainsSubstring("boundary"));
  CHECK_THAT(message_of([](Plan& p) {
               for (NamedDimension& dimension : p.boundary.tensors[0].dimensions) dimension.size = 1 << 20;
             }),
             ContainsSubstring(": boundary: hidden_states (") && ContainsSubstring("is larger than 16 TiB"));
  CHECK_THAT(message_of([](Plan& p) { p.model.vocabulary += 1; }),
             ContainsSubstring("costs.stages[0].parameters: is ") && ContainsSubstring("on a rank of stage 0"));
  CHECK_THAT(message_of([](Plan& p) { std::get<DenseMlp>(p.model.layers[0].mlp).width += 1; }),
             ContainsSubstring("costs.stages[0].parameters: is "));
  CHECK_THAT(message_of([](Plan& p) { p.costs.stages[1].parameters += 1; }),
             ContainsSubstring("costs.stages[1].parameters: is "));
  CHECK_THAT(message_of([](Plan& p) { p.costs.tied_bytes = {4}; }), ContainsSubstring("tied_bytes"));
  CHECK_THAT(message_of([](Plan& p) { p.schedule.actions[1].pop_back(); }), ContainsSubstring("schedule"));
  CHECK_THAT(message_of([](Plan& p) { std::swap(p.schedule.actions[0][0], p.schedule.actions[0].back()); }),
             ContainsSubstring("schedule"));
  CHECK_THAT(message_of([](Plan& p) { p.schedule.rank_of_stage = {0, 0}; }), ContainsSubstring("schedule"));
  Plan chunked = small_plan("interleaved-1f1b", 2);
  chunked.schedule.chunks = 3;
  CHECK_THAT(message_for_plan(to_json(chunked)),
             ContainsSubstring("schedule.chunks: is 3, but the rank with most stages has 2"));
  CHECK_THAT(message_of([](Plan& p) {
               p.model.positions = Positions::learned;
               p.model.max_positions = 31;
             }),
             ContainsSubstring("training.sequence: is 32, the model has learned positions for 31 tokens"));
  CHECK_THAT(message_of([](Plan& p) {
               p.schedule.microbatches = 1'000'000'000;
               p.training.global_batch = 2'000'000'000;
             }),
             ContainsSubstring("too few for 1000000000 microbatches"));
  CHECK_THAT(message_for_plan(replaced(to_json(plan), "0F0", "0X0")), ContainsSubstring("schedule.actions[0]"));
  CHECK_THAT(message_for_plan(replaced(to_json(plan), "\"hidden\": 64", "\"hidden\": -64")),
             ContainsSubstring("hidden"));
  CHECK_THAT(message_for_plan(replaced(to_json(plan), "\"hidden\": 64", "\"hiden\": 64")), ContainsSubstring("hid"));
  CHECK_THAT(message_for_plan(replaced(to_json(plan), "\"kind\": \"softmax\"", "\"kind\": \"softmix\"")),
             ContainsSubstring("did you mean 'softmax'?"));
}

TEST_CASE("layouts that a scenario refuses are refused in a plan too") {
  const auto refused = [plan = small_plan()](const std::string& key, const std::function<void(Layout&)>& change) {
    Plan changed = plan;
    change(changed.layout);
    changed.cluster.ranks = ranks(changed.layout);
    const std::string message = message_for_plan(to_json(changed));
    CHECK_THAT(message, ContainsSubstring("plan.json:") && ContainsSubstring("layout." + key + ": ") &&
                            ContainsSubstring(" is not supported yet") && ContainsSubstring("hint: supported: "));
  };
  refused("context", [](Layout& layout) { layout.context = 2; });
  refused("expert", [](Layout& layout) { layout.expert = 2; });
}

TEST_CASE("a plan's tensor layout is a grid that its degree makes") {
  const auto refused = [plan = small_plan()](const std::string& part, const TensorLayout& tensor) {
    Plan changed = plan;
    changed.layout.tensor = tensor;
    changed.cluster.ranks = ranks(changed.layout);
    CHECK_THAT(message_for_plan(to_json(changed)), ContainsSubstring("plan.json:") && ContainsSubstring(part));
  };
  refused("has no depth", {.degree = 2, .depth = 2});
  refused("which this one does not divide", {.degree = 2, .asynchronous = true});
  refused("panels, which it does not have", {.degree = 8, .kind = TensorKind::three_d, .asynchronous = true});
  refused("a 2d tensor layout needs q²", {.degree = 2, .kind = TensorKind::two_d});
  refused("divides hidden states already", {.degree = 4, .kind = TensorKind::two_d, .sequence_parallel = true});
}

TEST_CASE("a plan's sharding is one that its rule has and that its schedule allows") {
  const auto refused = [](Plan plan, const std::string& part, const std::function<void(Layout&)>& change) {
    change(plan.layout);
    plan.cluster.ranks = ranks(plan.layout);
    CHECK_THAT(message_for_plan(to_json(plan)), ContainsSubstring("plan.json:") && ContainsSubstring(part));
  };
  refused(small_plan(), "degrees of hsdp", [](Layout& layout) { layout.data.shard = 2; });
  refused(small_plan(), "of a data degree of 4, not of 1",
          [](Layout& layout) { layout.data = {.degree = 1, .sharding = Sharding::hsdp, .shard = 2, .replicate = 2}; });
  refused(small_plan(), "keeps whole weights", [](Layout& layout) { layout.data.reshard_after_forward = true; });
  refused(small_plan("dualpipe"), "sharding fsdp cannot be planned yet with a schedule that trains two replicas",
          [](Layout& layout) { layout.data = {.degree = 2, .sharding = Sharding::fsdp}; });
}

TEST_CASE("faults of a plan are reported with line and column") {
  const std::string text = to_json(small_plan());
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& key,
                           const std::string& said) {
    const std::string changed = replaced(text, from, to);
    const std::string message = message_for_plan(changed);
    const std::size_t at = changed.find(to);
    const auto line = 1 + std::count(changed.begin(), changed.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    CAPTURE(message);
    CHECK(message.starts_with("plan.json:" + std::to_string(line) + ":"));
    CHECK_THAT(message, ContainsSubstring(": " + key + ": ") && ContainsSubstring(said));
  };
  refused("\"name\": \"1f1b\"", "\"name\": \"foo\"", "schedule.name", "unknown schedule 'foo'");
  refused("\"name\": \"1f1b\"", "\"name\": \"1f1c\"", "schedule.name", "did you mean '1f1b'?");
  refused("\"chunks\": 1", "\"chunks\": 2", "schedule.chunks", "1f1b has no chunks");
  refused("\"heads\": 4", "\"heads\": 5", "model.layers[0].mixer.heads", "a multiple of kv_heads (2)");
  refused("\"vocabulary\": 512", "\"vocabulary\": 0", "model.vocabulary", "at least 1");
  refused("\"top_k\": 2", "\"top_k\": 5", "model.layers[4].mlp.top_k", "from 1 to 4");
  refused("\"method\": \"dynamic\"", "\"method\": \"dinamic\"", "split.method", "did you mean 'dynamic'?");
  refused("\"global_batch\": 8", "\"global_batch\": 16", "training.global_batch", "is 16 sequences");
  refused("\"seed\": ", "\"sead\": 1, \"seed\": ", "training", "did you mean 'seed'?");
  refused("\"ranks_per_machine\": ", "\"ranks_per_machine\": -", "costs.ranks_per_machine", "at least 1");
  CHECK_THAT(message_for_plan(replaced(text, "\"hidden\": 64", "\"hidden\": 128")),
             ContainsSubstring("boundary: has hidden_states (microbatch 2 × sequence 32 × hidden 64") &&
                 ContainsSubstring("hidden 128") && ContainsSubstring("hint: times and bandwidths in 'costs' may be"));
}

TEST_CASE("times and bandwidths of a plan may be edited") {
  Plan plan = small_plan();
  plan.costs.stages[1].forward = {12.5};
  plan.costs.inside.bandwidth = {1e6};
  plan.costs.provenance = "by hand";
  CHECK(read_back(plan) == plan);
}

TEST_CASE("a scenario in a plan's place is told how it becomes one") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(read_plan(folder.write("s.yaml", scenario_text("split: dynamic\n"))),
                    ContainsSubstring("looks like a scenario") && ContainsSubstring("first: plumb plan "));
}

TEST_CASE("a plan of 64 stages and 1024 microbatches is read back as it was") {
  const Scenario scenario =
      read_text(R"(model: {vocabulary: 100, hidden: 64, heads: 4, ffn: 128, layers: "full/dense*64"}
training: {sequence: 32, global_batch: 1024}
layout: {pipeline: 64}
)");
  const Plan plan = make_plan(scenario, {.microbatch = 1, .split = {.method = SplitMethod::uniform}});
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.write("plan.json", to_json(plan));
  CHECK(read_plan(path) == plan);
}

TEST_CASE("a plan's machine keeps to what a machine's file may say, number by number") {
  const Plan plan = plan_on_sites();
  CHECK(read_back(plan) == plan);
  for (const MachineNumber& number : machine_numbers()) {
    const NumberRange range = range_of(number.unit);
    const std::string key = number.name.substr(number.name.find('.') + 1);
    for (const double wrong : {-1.0, range.least / 2 - 1e-9, range.most * 2, 1e300}) {
      const std::string message = message_after(plan, [&](Plan& p) { number.set(p.cluster.machine, wrong); });
      CAPTURE(number.name, wrong);
      CHECK_THAT(message,
                 ContainsSubstring(": cluster.machine.") && ContainsSubstring(key) && ContainsSubstring(".value: "));
    }
    if (number.source(plan.cluster.machine).empty()) continue;  // left out: zero is no value
    for (const double edge : {range.least, range.most}) {
      if (number.name == "message_multiprocessors" && edge > 0) continue;
      CAPTURE(number.name, edge);
      CHECK(message_after(plan, [&](Plan& p) { number.set(p.cluster.machine, edge); }) == "no error");
    }
    if (range.least == 0) continue;
    CAPTURE(number.name);
    CHECK_THAT(message_after(plan, [&](Plan& p) { number.set(p.cluster.machine, 0); }),
               ContainsSubstring(".value: is 0.0, expected a number from"));
  }
}

TEST_CASE("a plan's uncertainties, counts and ratios keep to what files may say") {
  const Plan plan = plan_on_sites();
  const auto refused = [&](const std::string& key, const auto& change) {
    CHECK_THAT(message_after(plan, [&](Plan& p) { change(p.cluster); }), ContainsSubstring(": cluster." + key + ": "));
  };
  for (const double wrong : {-1.0, 1e300, most_uncertainty * 1.01}) {
    refused("machine.device.peak_flops_per_s.uncertainty_fraction",
            [&](Cluster& c) { c.machine.device.peak.uncertainty = wrong; });
    refused("machine.outside.latency_s.uncertainty_fraction",
            [&](Cluster& c) { c.machine.outside.latency.uncertainty = wrong; });
    refused("machine.device.memory_bytes.uncertainty_fraction",
            [&](Cluster& c) { c.machine.device.memory.uncertainty = wrong; });
    refused("between_sites.latency_s.uncertainty_fraction",
            [&](Cluster& c) { c.between_sites.latency.uncertainty = wrong; });
  }
  for (const double wrong : {-1.0, 0.0, 0.99, 1001.0, 1e300}) {
    refused("oversubscription", [&](Cluster& c) { c.oversubscription = wrong; });
  }
  refused("between_sites.bandwidth_bytes_per_s.value", [](Cluster& c) { c.between_sites.bandwidth.value = {}; });
  refused("machine.device.multiprocessors", [](Cluster& c) { c.machine.device.multiprocessors = 5000; });
  refused("machine.device.message_multiprocessors.value",
          [](Cluster& c) { c.machine.device.message_multiprocessors.value = c.machine.device.multiprocessors; });
  refused("machine.device.memory_bytes.value", [](Cluster& c) { c.machine.device.memory.value = {}; });
  refused("machine.device.framework_memory_bytes.value",
          [](Cluster& c) { c.machine.device.framework_memory.value = Bytes{1} + largest_amount; });
  refused("machine.nics", [](Cluster& c) { c.machine.nics = 3; });
  refused("machine.nics", [](Cluster& c) { c.machine.nics = 2 * c.machine.devices; });
  refused("machine.devices_per_switch", [](Cluster& c) { c.machine.devices_per_switch = 3; });
  refused("machine.devices", [](Cluster& c) { c.machine.devices = 0; });
  refused("machine.devices", [](Cluster& c) { c.machine.devices = 2 * most_devices; });
  refused("nodes", [](Cluster& c) { c.nodes = 0; });
  refused("nodes_per_leaf", [](Cluster& c) { c.nodes_per_leaf = most_nodes + 1; });
  // As if its file had left them out, on a cuda device.
  refused("machine", [](Cluster& c) { c.machine.device.multiprocessors = 0; });
  refused("machine", [](Cluster& c) { c.machine.device.attention_efficiency = {}; });
  refused("machine.uplink_bytes_per_s.value", [](Cluster& c) { c.machine.uplink = {}; });
  for (const double wrong : {-1.0, 1e300}) {
    CHECK_THAT(message_after(plan, [&](Plan& p) { p.training.learning_rate = wrong; }),
               ContainsSubstring(": training.learning_rate: is "));
  }
}

TEST_CASE("bytes of a plan's costs are below a pebibyte, and their sums below 2^62") {
  const Plan plan = small_plan();
  const auto message_of = [&](const auto& change) {
    return message_after(plan, [&](Plan& p) { change(p.costs.stages[0]); });
  };
  constexpr Bytes most{std::int64_t{1} << 50};
  for (const Bytes wrong : {most + Bytes{1}, Bytes{9'000'000'000'000'000'000}}) {
    CHECK_THAT(message_of([&](ComputeCost& c) { c.kept_bytes = wrong; }),
               ContainsSubstring(": costs.stages[0].kept_bytes: is ") && ContainsSubstring("to 1125899906842624"));
    CHECK_THAT(message_of([&](ComputeCost& c) { c.kept_for_weight_bytes = wrong; }),
               ContainsSubstring(": costs.stages[0].kept_for_weight_bytes: is "));
    CHECK_THAT(message_of([&](ComputeCost& c) { c.optimizer_bytes = wrong; }),
               ContainsSubstring(": costs.stages[0].optimizer_bytes: is "));
    CHECK_THAT(message_of([&](ComputeCost& c) { c.parameters = wrong.value; }),
               ContainsSubstring(": costs.stages[0].parameters: is "));
  }
  CHECK(message_of([&](ComputeCost& c) { c.kept_bytes = most; }) == "no error");
  // 2^50 bytes of each of 4096 microbatches are 2^62, and the others of a stage come on top.
  Plan many = plan_of("training: {sequence: 32, global_batch: 4096, microbatch: 1}\n",
                      {.microbatch = 1, .split = {.method = SplitMethod::uniform}});
  CHECK(message_for_plan(to_json(many)) == "no error");
  many.costs.stages[1].kept_bytes = most;
  CHECK_THAT(message_for_plan(to_json(many)),
             ContainsSubstring(": costs.stages: ") && ContainsSubstring("more than 4 EiB"));
}

// B in one takes what I and W take less what both do once.
TEST_CASE("the hidden part of a B is a part of its I and W") {
  const Plan plan = small_plan();
  const auto message_of = [&](double part) {
    return message_after(plan, [&](Plan& p) {
      ComputeCost& cost = p.costs.stages[1];
      cost.hidden_in_backward = (cost.input_gradient + cost.weight_gradient) * part;
    });
  };
  CHECK(message_of(0) == "no error");
  CHECK(message_of(1) == "no error");
  CHECK_THAT(message_of(1.01), ContainsSubstring(": costs.stages[1].hidden_in_backward_s: must be a part of "));
  CHECK_THAT(message_of(-0.5), ContainsSubstring(": costs.stages[1].hidden_in_backward_s: is "));
}
