// What data-parallel ranks share out: the bits of those that share nothing, and what each then receives and holds.
#include <algorithm>
#include <array>
#include <thread>

#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "exec/host/memory.hpp"
#include "tests/exec/stage/sharding/sharded_runs.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

constexpr std::array once_a_step{Rule{Sharding::zero1},
                                 Rule{Sharding::zero2, false, false, false},
                                 Rule{Sharding::zero3, true},
                                 Rule{Sharding::fsdp},
                                 Rule{Sharding::fsdp, true, false, false},
                                 Rule{Sharding::hsdp, true, false, true, 2},
                                 Rule{Sharding::hsdp, false, false, false, 2}};

constexpr std::array each_microbatch{Rule{Sharding::zero2, false, true}, Rule{Sharding::zero3, true, true, false},
                                     Rule{Sharding::fsdp, true, true}, Rule{Sharding::fsdp, false, true}};

// Of fp32 weights.
std::int64_t bytes_of_block(const Plan& plan, int block) {
  std::int64_t bytes = 0;
  for (const Parameter& parameter : block_parameters(plan.model, block)) bytes += 4 * elements_of(parameter);
  return bytes;
}

std::int64_t whole_bytes(const Plan& plan) {
  std::int64_t bytes = 0;
  for (int block = 0; block <= head_block(plan.model); ++block) bytes += bytes_of_block(plan, block);
  return bytes;
}

std::int64_t largest_block(const Plan& plan) {
  std::int64_t bytes = 0;
  for (int block = 0; block <= head_block(plan.model); ++block) bytes = std::max(bytes, bytes_of_block(plan, block));
  return bytes;
}

}  // namespace

// With a table that both ends share, and weights that four ranks do not divide.
TEST_CASE("ten steps have the same bits however data-parallel ranks share out states, gradients and weights") {
  const Plan plan = test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .data = 4});
  const Outcome alike = train(plan, 10);
  for (const Rule& rule : once_a_step) {
    const Plan parts = sharded(plan, rule);
    INFO(text(parts));
    require_same_bits(train(parts, 10), alike);
  }
  const Outcome one = train(sharded(plan, each_microbatch.front()), 10);
  require_passed(sharded(plan, each_microbatch.front()), one);
  for (std::size_t i = 1; i < each_microbatch.size(); ++i) {
    const Plan parts = sharded(plan, each_microbatch[i]);
    INFO(text(parts));
    require_same_bits(train(parts, 10), one);
  }
}

TEST_CASE("bf16 weights are gathered as they are, and their parts have fp32 copies") {
  const Plan plan =
      test::training_plan({.model = test::llama(1), .microbatches = 2, .precision = ElementType::bf16, .data = 4});
  const Outcome alike = train(plan, 3);
  for (const Rule& rule : {Rule{Sharding::fsdp}, Rule{Sharding::hsdp, true, false, true, 2}}) {
    const Plan parts = sharded(plan, rule);
    INFO(text(parts));
    require_same_bits(train(parts, 3), alike);
  }
  const Plan copies = sharded(plan, {Sharding::hsdp, true, true, true, 2});
  require_passed(copies, train(copies, 3));
}

TEST_CASE("ranks of a pipeline's stages share them out on every transport") {
  const std::string schedule = GENERATE("1f1b", "zb-h1");
  const Plan plan = test::training_plan({.model = test::gpt2(2, true), .schedule = schedule, .ranks = 2, .data = 2});
  const Outcome alike = train(plan, 2);
  require_passed(plan, alike);
  for (const Rule& rule : {Rule{Sharding::zero1}, Rule{Sharding::fsdp}, Rule{Sharding::fsdp, true}}) {
    INFO(text(sharded(plan, rule)));
    require_same_bits(train(sharded(plan, rule), 2), alike);
  }
  for (const Rule& rule : {Rule{Sharding::zero2, false, true}, Rule{Sharding::fsdp, true, true}}) {
    const Plan parts = sharded(plan, rule);
    INFO(text(parts));
    const Outcome run = train(parts, 2);
    require_passed(parts, run);
    require_same_bits(train(parts, 2, transport_kinds().back()), run);
  }
}

TEST_CASE("tensor groups in pipelines whose stages are shared out train like those that are not") {
  Wanted wanted{.model = test::llama(2), .schedule = "zb-h1", .ranks = 2, .microbatches = 2, .data = 2, .tensor = 2};
  wanted.sequence_parallel = GENERATE(false, true);
  const Plan plan = test::training_plan(wanted);
  const Outcome alike = train(plan, 2);
  for (const Rule& rule : {Rule{Sharding::fsdp}, Rule{Sharding::zero3, true}}) {
    INFO(text(sharded(plan, rule)));
    require_same_bits(train(sharded(plan, rule), 2), alike);
  }
  const Plan parts = sharded(plan, {Sharding::fsdp, true, true});
  require_passed(parts, train(parts, 2));
}

TEST_CASE("grids whose stages are shared out among their replicas train like those that are not") {
  Model model = test::llama(2);
  for (Layer& layer : model.layers) std::get<SoftmaxAttention>(layer.mixer).kv_heads = 4;
  const Wanted square{.model = model,
                      .schedule = "zb-h1",
                      .ranks = 2,
                      .microbatches = 2,
                      .data = 2,
                      .tensor = 4,
                      .kind = TensorKind::two_d};
  Wanted deep{.model = test::gpt2(2, false), .microbatches = 2, .data = 2, .tensor = 8, .microbatch = 4};
  deep.kind = TensorKind::two_and_half_d;
  deep.depth = 2;
  Wanted cube = deep;
  cube.kind = TensorKind::three_d;
  cube.depth = 1;
  Wanted panels = square;
  panels.asynchronous = true;
  for (const Wanted& wanted : {square, panels, deep, cube}) {
    const Plan plan = test::training_plan(wanted);
    const Outcome alike = train(plan, 2);
    require_passed(plan, alike);
    for (const Rule& rule : {Rule{Sharding::zero1}, Rule{Sharding::fsdp}, Rule{Sharding::zero3, true}}) {
      INFO(text(sharded(plan, rule)));
      require_same_bits(train(sharded(plan, rule), 2), alike);
    }
    const Plan parts = sharded(plan, {Sharding::fsdp, true, true});
    require_passed(parts, train(parts, 2));
  }
}

TEST_CASE("recomputed layers, slices, experts and images are gathered and reduced too") {
  std::vector<Wanted> all{{.model = test::hybrid(), .microbatches = 2, .recompute = true, .data = 2},
                          {.model = test::vit(1), .microbatches = 2, .data = 2}};
  all.push_back(
      {.model = test::llama(2), .schedule = "seq-1f1b", .ranks = 2, .microbatches = 2, .slices = 2, .data = 2});
  for (const Wanted& wanted : all) {
    Plan plan = test::training_plan(wanted);
    if (wanted.model.vision) plan.training.recompute.mode = RecomputeMode::selective;
    const Plan parts = sharded(plan, {Sharding::fsdp, true, true});
    INFO(text(parts));
    require_passed(parts, train(parts, 2));
  }
}

namespace {

// Of each weight all but the own part, in each F, R and B; of each gradient the own part from each other rank. What is
// frozen has no gradient, and moves where weights are shared out.
void require_received(const Plan& plan, const Rule& rule, bool recompute) {
  INFO(text(plan));
  const Outcome run = train(plan, 1);
  const int ranks = plan.layout.data.degree;
  const int shards = rule.sharding == Sharding::none ? 1 : rule.sharding == Sharding::hsdp ? rule.shard : ranks;
  const int copies = ranks / shards;
  const std::int64_t microbatches = plan.schedule.microbatches;
  const std::int64_t gathers = rule.by_block                     ? (recompute ? 3 : 2) * microbatches
                               : rule.sharding == Sharding::none ? 0
                                                                 : 1;
  const bool only_trained = rule.sharding == Sharding::zero1 || rule.sharding == Sharding::zero2;
  const std::int64_t reductions = rule.each_microbatch ? microbatches : 1;
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t expected = 0;
    for (int block = 0; block <= head_block(plan.model); ++block) {
      for (const Parameter& parameter : with_adapters(block_parameters(plan.model, block), plan.training.lora)) {
        const std::int64_t all = elements_of(parameter);
        const std::int64_t own = own_elements(all, shards, rank % shards);
        if (!parameter.frozen || !only_trained) expected += gathers * (all - own);
        if (parameter.frozen) continue;
        expected += reductions * (shards - 1) * own;
        // An all-reduce is a reduce-scatter and an all-gather.
        const std::int64_t of_copy = own_elements(own, copies, rank / shards);
        if (copies > 1) expected += (copies - 1) * of_copy + own - of_copy;
      }
    }
    const RankStep& step = run.logs.ranks.front()[static_cast<std::size_t>(rank)].steps.front();
    CAPTURE(rank);
    CHECK(step.received_in_data == Bytes{expected * 4});
    CHECK(step.received_bytes == step.received_in_data);
  }
}

}  // namespace

TEST_CASE("a rank receives what the closed forms say, in bytes") {
  const Rule rule =
      GENERATE(Rule{Sharding::none}, Rule{Sharding::zero1}, Rule{Sharding::zero2, false, true}, Rule{Sharding::fsdp},
               Rule{Sharding::fsdp, true}, Rule{Sharding::fsdp, true, true}, Rule{Sharding::hsdp, true, true, true, 2});
  const bool recompute = GENERATE(false, true);
  Plan plan = test::training_plan({.model = test::llama(1), .microbatches = 3, .recompute = recompute, .data = 4});
  require_received(sharded(plan, rule), rule, recompute);
  plan.training.lora = Lora{.rank = 3, .targets = {LoraTarget::query, LoraTarget::value}};
  require_received(sharded(plan, rule), rule, recompute);
}

// With a frozen table that both ends share. B begins at zero: from the second step on A is trained, too.
TEST_CASE("with LoRA frozen weights are shared out as they are, and the bits are those of ranks that share nothing") {
  Plan plan = test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .data = 4});
  plan.training.lora = Lora{.rank = 3, .alpha = 6, .targets = {LoraTarget::query, LoraTarget::value}};
  const Outcome alike = train(plan, 3);
  require_passed(plan, alike);
  for (const Rule& rule : once_a_step) {
    const Plan parts = sharded(plan, rule);
    INFO(text(parts));
    require_same_bits(train(parts, 3), alike);
  }
  const Outcome one = train(sharded(plan, each_microbatch.front()), 3);
  require_passed(sharded(plan, each_microbatch.front()), one);
  for (std::size_t i = 1; i < each_microbatch.size(); ++i) {
    const Plan parts = sharded(plan, each_microbatch[i]);
    INFO(text(parts));
    require_same_bits(train(parts, 3), one);
  }
  // Three ranks divide neither weights nor adapters of rank 2.
  Plan uneven = test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .data = 3});
  uneven.training.lora = Lora{.rank = 2, .targets = {LoraTarget::query, LoraTarget::value}};
  const Outcome whole = train(uneven, 3);
  for (const Rule& rule : {Rule{Sharding::fsdp}, Rule{Sharding::fsdp, true, false, false}}) {
    INFO(text(sharded(uneven, rule)));
    require_same_bits(train(sharded(uneven, rule), 3), whole);
  }
}

// Experts alone have adapters, in the last layer: the first stage has nothing to train.
TEST_CASE("stages before the first adapter have their frozen weights shared out, too, on every transport, in bf16") {
  Model late = test::llama(2);
  late.layers.back() = test::mixtral(1).layers.front();
  Plan plan = test::training_plan(
      {.model = late, .schedule = "zb-h1", .ranks = 2, .microbatches = 2, .precision = ElementType::bf16, .data = 2});
  plan.training.lora = Lora{.rank = 2, .alpha = 4, .targets = {LoraTarget::experts}};
  const Outcome alike = train(plan, 2);
  require_passed(plan, alike);
  for (const Rule& rule : {Rule{Sharding::fsdp}, Rule{Sharding::zero3, true}}) {
    for (const TransportKind& kind : transport_kinds()) {
      INFO(text(sharded(plan, rule)) << " on " << kind.name);
      require_same_bits(train(sharded(plan, rule), 2, kind), alike);
    }
  }
  const Plan each = sharded(plan, {Sharding::fsdp, true, true});
  require_passed(each, train(each, 2, transport_kinds().back()));
}

// Of weights, main gradients and Adam's moments, all fp32, as the rule has them. Beside that: as much as plain data
// parallelism needs, and of sixteen layers the weights of two blocks, and of gradients that are summed for each
// microbatch those of two. So nothing that is kept for I or W holds weights on, either.
TEST_CASE("a rank holds its parts, and two blocks of the rest while an action runs") {
  const bool each = GENERATE(false, true);
  constexpr int ranks = 4;
  const Plan plan = test::training_plan({.model = test::llama(16), .microbatches = 2, .data = ranks});
  std::array<std::int64_t, ranks> before = {};  // of what ran in this process until now
  for (int rank = 0; rank < ranks; ++rank) before.at(static_cast<std::size_t>(rank)) = held_bytes(rank).value;
  const Outcome plain = train(plan, 1);
  const Outcome parts = train(sharded(plan, {Sharding::fsdp, true, each}), 1);
  const std::int64_t all = whole_bytes(plan);
  const std::int64_t largest = largest_block(plan);
  const std::int64_t tables = 16 * 2 * 32 * (8 / 2) * 4;  // of rotary positions: cosines and sines of half a head
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank, each);
    const RankStep& of_plain = plain.logs.ranks.front()[rank].steps.back();
    const RankStep& of_parts = parts.logs.ranks.front()[rank].steps.back();
    const std::int64_t own = (each ? 4 : 3) * all / ranks + (each ? 0 : all);
    CHECK(of_plain.held.back().value - before.at(rank) == 4 * all + tables);
    CHECK(of_parts.held.back().value - before.at(rank) == own + tables);  // four divides all weights
    const std::int64_t beside = of_parts.peak_bytes.value - own - (of_plain.peak_bytes.value - 4 * all);
    CHECK(beside > largest / 2);
    CHECK(beside <= (each ? 4 : 2) * largest);
  }
}

// Each block is drawn whole, weights and gradients, and cut at once.
TEST_CASE("a stage that ranks share out is never there as a whole, not even when it is made") {
  const Plan plan = sharded(test::training_plan({.model = test::llama(16), .data = 4}), {Sharding::fsdp, true, true});
  const std::vector<std::unique_ptr<Transport>> transports = transport_kinds().front().make(4);
  std::int64_t peak = 0;
  std::int64_t held = 0;
  std::thread([&] {
    constexpr int account = 1000;  // nobody else's
    begin_rank_thread(account);
    StageOptions options;
    options.transport = transports.front().get();
    const auto stages = make_stages(plan, 0, options);
    peak = peak_bytes(account).value;
    held = held_bytes(account).value;
  }).join();
  CHECK(peak <= held + 4 * largest_block(plan));
  CHECK(held < 2 * whole_bytes(plan));  // of 16 bytes a parameter a quarter is 4, and rotary tables
}

// A plan as the planner makes it: its costs say what moves and what is held.
TEST_CASE("with LoRA a rank receives what is predicted, to the byte, and needs the memory that is, within 5%") {
  const TemporaryFolder folder;
  for (const std::string sharding :
       {"zero1", "fsdp, reshard_after_forward: true, reduce: each_microbatch",
        "fsdp, reshard_after_forward: false, reduce: last_microbatch", "{kind: hsdp, shard: 2, replicate: 2}"}) {
    const Scenario scenario = read_scenario(folder.write(
        "scenario.yaml",
        "model: {name: small, vocabulary: 256, hidden: 64, heads: 4, ffn: 192, layers: full/dense*8}\n"
        "cluster: {machine: local-cpu, ranks: 4}\n"
        "training: {sequence: 64, global_batch: 16, microbatch: 2, precision: fp32, lora: {rank: 4, targets: all}}\n"
        "layout: {data: {degree: 4, sharding: " +
            sharding + "}}\nschedule: 1f1b\nsplit: uniform\n"));
    const Plan plan = make_plan(
        scenario, {.microbatch = 2, .schedule = scenario.schedules.front(), .split = scenario.splits.front()});
    const RankSummary predicted = predict_by_path(plan).ranks.front();
    const Outcome run = train(plan, 2);
    for (const RankLog& log : run.logs.ranks.front()) {
      const RankStep& step = log.steps.back();
      INFO(sharding << ", rank " << log.rank << ": predicted " << predicted.peak_bytes.value << ", measured "
                    << step.peak_bytes.value);
      CHECK(step.received_in_data == predicted.by_axis->data);
      CHECK(step.peak_bytes / predicted.peak_bytes == Approx(1.0).margin(0.05));
    }
  }
}

namespace {

Plan offloaded(Plan plan) {
  plan.training.offload.optimizer = true;
  return plan;
}

// Of a step's STEPs on one rank.
struct Copied {
  Bytes bytes = {};
  Seconds time = {};
  Seconds steps = {};
};
Copied copied_by(const RankStep& step) {
  Copied sum;
  for (const Event& event : step.events) {
    if (event.action.kind != ActionKind::optimizer_step) continue;
    sum.bytes += event.bytes;
    sum.time += event.waited;
    sum.steps += event.end - event.start;
  }
  return sum;
}

}  // namespace

TEST_CASE("ten steps have the same bits with the optimizer's states on the host, under every rule") {
  for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
    const Plan plan =
        test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .precision = precision, .data = 4});
    require_same_bits(train(offloaded(plan), 10), train(plan, 10));
    for (const Rule& rule : {Rule{Sharding::zero1}, Rule{Sharding::fsdp, true, true}, Rule{Sharding::fsdp},
                             Rule{Sharding::hsdp, true, false, true, 2}}) {
      const Plan parts = sharded(plan, rule);
      INFO(text(parts));
      require_same_bits(train(offloaded(parts), 10), train(parts, 10));
    }
  }
}

TEST_CASE("pipelines with states on the host pass the check on every transport") {
  const std::string schedule = GENERATE("1f1b", "zb-h1", "dualpipe");
  const int data = schedule == "dualpipe" ? 1 : 2;  // which trains two replicas as it is
  const Plan plan =
      offloaded(test::training_plan({.model = test::gpt2(2, true), .schedule = schedule, .ranks = 2, .data = data}));
  const Outcome run = train(plan, 2);
  require_passed(plan, run);
  require_same_bits(train(plan, 2, transport_kinds().back()), run);
}

// fp32: a weight and its gradient on the device, two moments, a master copy and a gradient's buffer on the host.
TEST_CASE("a rank holds no states where its host does, and copies its part of gradients and weights once a step") {
  const bool shares = GENERATE(false, true);
  constexpr int ranks = 4;
  Plan plan = test::training_plan({.model = test::llama(16), .microbatches = 2, .data = ranks});
  if (shares) plan = sharded(plan, {Sharding::zero1});
  const Outcome here = train(plan, 2);
  const Outcome there = train(offloaded(plan), 2);
  const std::int64_t own = whole_bytes(plan) / (shares ? ranks : 1);  // four divides all weights
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank, shares);
    const RankStep& of_here = here.logs.ranks.front()[rank].steps.back();
    const RankStep& of_there = there.logs.ranks.front()[rank].steps.back();
    CHECK(of_here.held.back() - of_there.held.back() == Bytes{2 * own});
    CHECK(of_here.peak_bytes - of_there.peak_bytes == Bytes{2 * own});
    const Copied copies = copied_by(of_there);
    CHECK(copies.bytes == Bytes{2 * own});
    CHECK(copies.time > Seconds{});
    CHECK(copies.time < copies.steps);
    CHECK(copied_by(of_here).bytes == Bytes{});
  }
  std::int64_t on_host = 0;
  std::thread([&] {
    constexpr int account = 1001;  // nobody else's
    begin_rank_thread(account);
    const std::vector<std::unique_ptr<Transport>> transports = transport_kinds().front().make(ranks);
    StageOptions options;
    options.transport = transports.front().get();
    const auto stages = make_stages(offloaded(plan), 0, options);
    on_host = host_memory(account).value;
  }).join();
  CHECK(on_host == 4 * own);
  CHECK(host_memory(1001) == Bytes{});
}
