// Tensor and data groups of a session over NCCL: trained through the session's own code, compared with one device, with
// what was predicted to be received, and with the same plan between hosts.
#include <algorithm>

#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/traffic.hpp"
#include "common/schedule/reductions.hpp"
#include "exec/check/check.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/commands/members.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::nccl_session;
using test::prepared;

namespace {

// Of four key-value heads, or of so many.
Model with_heads(Model model, int kv_heads = 4) {
  for (Layer& layer : model.layers) {
    if (auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer)) {
      attention->kv_heads = kv_heads;
      attention->qk_norm = attention->qk_norm || kv_heads < 4;
    }
    if (auto* delta = std::get_if<GatedDelta>(&layer.mixer)) delta->key_heads = 4;
  }
  return model;
}

struct Case {
  Model model;
  const char* schedule;
  int ranks = 1;
  int tensor = 1;
  bool sequence_parallel = false;
  int data = 1;
  ElementType precision = ElementType::fp32;
  bool recompute = false;
  std::int64_t bucket = 0;  // bytes of gradients that are summed beside the last backward; 0: they are summed behind it
};

Plan plan_of(const Case& of) {
  Plan plan = test::training_plan({.model = of.model,
                                   .schedule = of.schedule,
                                   .ranks = of.ranks,
                                   .chunks = fewest_chunks(of.schedule),
                                   .microbatches = 4,
                                   .precision = of.precision,
                                   .recompute = of.recompute,
                                   .data = of.data,
                                   .tensor = of.tensor,
                                   .sequence_parallel = of.sequence_parallel});
  plan.software.data_overlap = of.bucket > 0;
  if (of.bucket > 0) plan.software.data_bucket.bytes = {of.bucket};
  return plan;
}

// As predicted, to the byte: from the programs of the plan's blocks and the events of the step.
void require_received(const Plan& plan, const RankLog& log) {
  const RankStep& step = log.steps.back();
  const std::vector<StageMoves> moves = tensor_moves(plan, {});
  double in_tensor = 0;
  double summed = 0;
  double messages = 0;
  for (const Event& event : step.events) {
    const StageMoves& of_stage = moves[static_cast<std::size_t>(event.action.stage)];
    if (const auto found = of_stage.find(event.action.kind); found != of_stage.end())
      in_tensor += found->second.received;
    if (event.action.kind == ActionKind::reduce_gradient) summed += static_cast<double>(event.bytes.value);
    if (is_receive(event.action.kind)) messages += static_cast<double>(event.bytes.value);
    // Two ranks of a pipeline add up a tied table.
    if (event.action.kind == ActionKind::reduce_tied) messages += static_cast<double>(event.bytes.value);
  }
  const int data = plan.layout.data.degree;
  INFO("rank " << log.rank);
  CHECK(static_cast<double>(step.received_in_tensor.value) == in_tensor);
  CHECK(static_cast<double>(step.received_in_data.value) == 2.0 * (data - 1) / data * summed);
  CHECK(step.received_bytes == step.received_in_tensor + step.received_in_data + Bytes{std::llround(messages)});
}

// Each reduction has started before the last backward of its stage has ended, if its first bucket is full before.
void require_beside(const Plan& plan, const RankLog& log, bool starts_before) {
  const RankStep& step = log.steps.back();
  const auto place = static_cast<std::size_t>(lane_of(plan.layout, log.rank).pipeline_rank);
  for (const Action& last : last_weight_gradients(plan.schedule.actions[place])) {
    const auto backward = std::ranges::find(step.events, last, &Event::action);
    const auto reduction =
        std::ranges::find(step.events, Action{ActionKind::reduce_gradient, last.stage, no_microbatch}, &Event::action);
    REQUIRE(backward != step.events.end());
    REQUIRE(reduction != step.events.end());
    CHECK(reduction->start >= backward->end);  // what is exposed of it
    if (!reduces_beside_backward(plan, last.stage)) {
      CHECK(reduction->beside == Seconds{});
    } else if (starts_before) {
      CHECK(reduction->start - reduction->beside < backward->end);
    }
  }
}

void require_trained(const Case& of) {
  const FakeNccl fake;
  const Plan plan = plan_of(of);
  INFO(plan.name << ", " << describe(plan.layout) << (of.sequence_parallel ? ", sp" : "")
                 << (of.precision == ElementType::bf16 ? ", bf16" : ""));
  const std::vector<PreparedPlan> plans{prepared(plan)};
  test::MembersEnd end = test::run_members(plans, nccl_session());
  REQUIRE(end.errors == std::vector<std::string>(end.errors.size()));
  const std::vector<RankLog>& logs = end.logs.ranks.front();
  end.logs.checked.losses = test::losses_of(plan, logs);
  const CheckResult result = check_against_reference(plan, {}, end.logs.checked);
  INFO(result.problem << " (" << result.worst_tensor << ": " << result.worst_error_ratio << ")");
  CHECK(result.passed);
  CHECK(end.logs.different_copy.empty());
  for (const RankLog& log : logs) {
    require_received(plan, log);
    CHECK(log.receives_beside == 0);
  }
  const FakeNcclCounts counts = fake.counts();
  CHECK(counts.mismatches == 0);
  CHECK(counts.aborted == 0);
  CHECK(counts.destroyed == counts.joined);
}

const Model small = with_heads(test::llama(2));
const Model deep = with_heads(test::llama(4));
const Model tied = test::gpt2(4, true);

}  // namespace

TEST_CASE("tensor groups of two and four train over NCCL like one device, with and without sequence parallelism") {
  require_trained({small, "1f1b", 1, 2});
  require_trained({small, "zb-h1", 1, 4});
  require_trained({tied, "1f1b", 1, 2, true});
  require_trained({small, "zb-h1", 1, 4, true, 1, ElementType::bf16});
  require_trained({small, "1f1b", 1, 2, true, 1, ElementType::fp32, true});
  require_trained({deep, "interleaved-1f1b", 2, 2, true, 1, ElementType::bf16});
}

TEST_CASE("experts, linear attention and heads of keys that several ranks have do so too") {
  require_trained({with_heads(test::hybrid()), "interleaved-1f1b", 2, 2});
  require_trained({with_heads(test::mixtral(2)), "zb-h1", 2, 2, true});
  require_trained({with_heads(test::llama(2), 2), "1f1b", 1, 4});
  require_trained({with_heads(test::llama(2), 1), "zb-h1", 1, 4, true});
}

TEST_CASE("data-parallel pipelines train over NCCL like one device") {
  require_trained({small, "1f1b", 1, 1, false, 2});
  require_trained({small, "zb-h1", 1, 1, false, 4, ElementType::bf16});
  require_trained({tied, "interleaved-1f1b", 2, 1, false, 2});
}

TEST_CASE("pipeline, tensor and data groups together train over NCCL like one device") {
  require_trained({tied, "1f1b", 2, 2, false, 2});
  require_trained({small, "zb-h1", 2, 2, true, 2});
  require_trained({deep, "interleaved-1f1b", 2, 2, true, 2, ElementType::bf16});
}

// In buckets of a byte, so of a gradient each; of some; of all of a stage. Of the first stage alone, too.
TEST_CASE("gradients in buckets beside the last backward have the bits and the bytes of one sum behind it, over NCCL") {
  const FakeNccl fake;
  for (const Case& of : {Case{tied, "1f1b", 2, 1, false, 2}, Case{small, "zb-h1", 2, 2, true, 2},
                         Case{deep, "interleaved-1f1b", 2, 1, false, 2}, Case{small, "1f1b", 1, 1, false, 4}}) {
    Plan plan = plan_of(of);
    INFO(plan.name << ", " << describe(plan.layout));
    const test::MembersEnd behind = test::run_members({prepared(plan)}, nccl_session());
    const std::vector<std::string> none(behind.errors.size());
    REQUIRE(behind.errors == none);
    plan.software.data_overlap = true;
    for (const auto& [bytes, first_only] :
         std::vector<std::pair<std::int64_t, bool>>{{1, false}, {20000, true}, {20000, false}, {25 << 20, false}}) {
      plan.software.data_bucket = {.bytes = {bytes}, .first_stage_only = first_only};
      CAPTURE(bytes, first_only);
      const test::MembersEnd beside = test::run_members({prepared(plan)}, nccl_session());
      REQUIRE(beside.errors == none);
      CHECK(beside.logs.checked.gradients == behind.logs.checked.gradients);
      CHECK(beside.logs.checked.weights == behind.logs.checked.weights);
      CHECK(beside.logs.different_copy.empty());
      const std::vector<RankLog>& logs = beside.logs.ranks.front();
      for (std::size_t rank = 0; rank < logs.size(); ++rank) {
        require_received(plan, logs[rank]);
        const RankStep& step = logs[rank].steps.back();
        const RankStep& other = behind.logs.ranks.front()[rank].steps.back();
        CHECK(step.received_in_data == other.received_in_data);
        CHECK(step.received_bytes == other.received_bytes);
        CHECK(step.loss == other.loss);
        require_beside(plan, logs[rank], bytes < 1 << 20);
      }
    }
  }
  const FakeNcclCounts counts = fake.counts();
  CHECK(counts.mismatches == 0);
  CHECK(counts.aborted == 0);
  CHECK(counts.destroyed == counts.joined);
}

TEST_CASE("gradients in buckets train over NCCL like one device") {
  Case of{deep, "interleaved-1f1b", 2, 2, true, 2, ElementType::bf16};
  of.bucket = 20000;
  require_trained(of);
  of = {small, "zb-h1", 1, 1, false, 4};
  of.bucket = 1;
  require_trained(of);
}

// Of two summands the order does not count: what NCCL adds has the bits of what hosts add.
TEST_CASE("plans of different layouts alternate over NCCL, and groups of two have the bits that they have on hosts") {
  const FakeNccl fake;
  const std::vector<PreparedPlan> plans{prepared(plan_of({deep, "1f1b", 4})),
                                        prepared(plan_of({deep, "zb-h1", 2, 2, true})),
                                        prepared(plan_of({deep, "1f1b", 2, 1, false, 2}))};
  const test::MembersEnd end = test::run_members(plans, nccl_session());
  REQUIRE(end.errors == std::vector<std::string>(4));
  for (std::size_t i = 0; i < plans.size(); ++i) {
    INFO(describe(plans[i].plan.layout));
    CHECK(test::losses_of(plans[i].plan, end.logs.ranks[i]) == test::train(plans[i].plan, 2).losses);
  }
  CHECK(fake.counts().mismatches == 0);
  // Down and up of the first plan's pipeline, and of the others' two, which have the same ranks; tensor; data.
  CHECK(fake.counts().joined == 2 * 4 + 2 * 4 + 4 + 4);
}
