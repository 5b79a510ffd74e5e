// What data-parallel ranks share out, over NCCL: the bits and the bytes of hosts, through the session's own code and a
// stand-in for libnccl.
#include <array>
#include <functional>

#include "exec/check/check.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/commands/members.hpp"
#include "tests/exec/commands/sessions.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::prepared;
using test::Wanted;

namespace {

struct Rule {
  Sharding sharding;
  bool by_block = false;
  bool each_microbatch = false;
  int shard = 1;  // of hsdp
  int prefetch = 1;
  int layers_per_unit = 1;
};

constexpr std::array once_a_step{Rule{Sharding::zero1}, Rule{Sharding::zero2}, Rule{Sharding::fsdp},
                                 Rule{Sharding::fsdp, true}};
constexpr std::array each_microbatch{Rule{Sharding::zero2, false, true}, Rule{Sharding::fsdp, true, true},
                                     Rule{Sharding::fsdp, false, true}};

Plan shared_out(Plan plan, const Rule& rule, bool beside) {
  DataLayout& data = plan.layout.data;
  data.sharding = rule.sharding;
  data.reshard_after_forward = rule.by_block;
  data.reduces_each_microbatch = rule.each_microbatch;
  data.prefetch = rule.prefetch;
  data.layers_per_unit = rule.layers_per_unit;
  data.shard = rule.shard;
  data.replicate = rule.sharding == Sharding::hsdp ? data.degree / rule.shard : 1;
  plan.software.data_overlap = beside;
  plan.software.data_bucket = {.bytes = {5000}};
  return plan;
}

struct Outcome {
  SessionLogs logs;
  std::vector<double> losses;
};

constexpr int steps = 3;

Outcome on_hosts(const Plan& plan) {
  const TransportKind threads{.name = "local", .make = make_local_transports};
  SessionOptions options = test::checked_steps(threads, steps);
  options.gathers_weights = true;
  const PreparedPlan alone{plan, lowered_schedule(plan)};
  Outcome made{.logs = test::train_session(threads, {alone}, options), .losses = {}};
  made.losses = losses_of(alone, made.logs.ranks.front());
  return made;
}

Outcome over_nccl(const Plan& plan) {
  SessionOptions options = test::nccl_session(steps);
  options.gathers_weights = true;
  const PreparedPlan all = prepared(plan);
  test::MembersEnd end = test::run_members({all}, options);
  REQUIRE(end.errors == std::vector<std::string>(end.errors.size()));
  Outcome made{.logs = std::move(end.logs), .losses = {}};
  made.losses = losses_of(all, made.logs.ranks.front());
  return made;
}

void require_same_bits(const Outcome& one, const Outcome& other) {
  CHECK(one.logs.different_copy.empty());
  CHECK(one.losses == other.losses);
  CHECK((one.logs.weights == other.logs.weights));
  CHECK((one.logs.checked.gradients == other.logs.checked.gradients));
}

void require_same_bytes(const Outcome& one, const Outcome& other) {
  for (std::size_t rank = 0; rank < one.logs.ranks.front().size(); ++rank) {
    const RankStep& mine = one.logs.ranks.front()[rank].steps.back();
    const RankStep& of_other = other.logs.ranks.front()[rank].steps.back();
    CAPTURE(rank);
    CHECK(mine.received_in_data == of_other.received_in_data);
    CHECK(mine.received_bytes == of_other.received_bytes);
  }
}

void require_passed(const Plan& plan, const Outcome& run) {
  Trained trained = run.logs.checked;
  trained.losses = run.losses;
  const CheckResult result = check_against_reference(plan, {}, trained);
  INFO(result.problem << " (" << result.worst_tensor << ": " << result.worst_error_ratio << ")");
  CHECK(result.passed);
  CHECK(run.logs.different_copy.empty());
}

// Of two summands the order does not count.
void require_as_on_hosts(const Plan& plan, const Rule& rule, bool beside) {
  const Plan parts = shared_out(plan, rule, beside);
  INFO(parts.name << ", " << describe(parts.layout) << ", by block " << rule.by_block << ", each microbatch "
                  << rule.each_microbatch << ", beside " << beside << ", " << rule.prefetch << " ahead");
  const Outcome there = over_nccl(parts);
  const Outcome here = on_hosts(parts);
  require_same_bits(there, here);
  require_same_bytes(there, here);
}

void require_clean(const FakeNccl& fake) {
  const FakeNcclCounts counts = fake.counts();
  CHECK(counts.mismatches == 0);
  CHECK(counts.aborted == 0);
  CHECK(counts.destroyed == counts.joined);
}

}  // namespace

// With a table that both ends share.
TEST_CASE("two ranks that share out states, gradients or weights over NCCL have the bits and the bytes of hosts") {
  const FakeNccl fake;
  const Plan plan = test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .data = 2});
  for (const bool beside : {false, true}) {
    for (const Rule& rule : once_a_step) require_as_on_hosts(plan, rule, beside);
    for (const Rule& rule : each_microbatch) require_as_on_hosts(plan, rule, beside);
  }
  require_clean(fake);
}

TEST_CASE("so do stages of a pipeline, tensor groups, what is made again, bf16 and frozen weights") {
  const FakeNccl fake;
  const Rule by_block{Sharding::fsdp, true, true};
  for (const char* const schedule : {"1f1b", "zb-h1"}) {
    const Plan plan = test::training_plan(
        {.model = test::gpt2(2, true), .schedule = schedule, .ranks = 2, .microbatches = 2, .data = 2});
    require_as_on_hosts(plan, by_block, true);
    require_as_on_hosts(plan, {Sharding::fsdp}, true);
  }
  Model heads = test::llama(2);
  for (Layer& layer : heads.layers) std::get<SoftmaxAttention>(layer.mixer).kv_heads = 4;
  require_as_on_hosts(
      test::training_plan({.model = heads, .schedule = "zb-h1", .microbatches = 2, .data = 2, .tensor = 2}), by_block,
      true);
  require_as_on_hosts(
      test::training_plan(
          {.model = heads, .microbatches = 2, .precision = ElementType::bf16, .recompute = true, .data = 2}),
      by_block, true);
  Plan tuned = test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .data = 2});
  tuned.training.lora = Lora{.rank = 3, .alpha = 6, .targets = {LoraTarget::query, LoraTarget::value}};
  require_as_on_hosts(tuned, by_block, true);
  require_as_on_hosts(tuned, {Sharding::fsdp}, false);
  require_clean(fake);
}

TEST_CASE("however far ahead blocks are gathered over NCCL, the bits and the bytes are those of hosts") {
  const FakeNccl fake;
  for (const auto& [prefetch, layers] : {std::pair(0, 1), {2, 1}, {3, 1}, {1, 2}, {2, 3}}) {
    const Rule rule{Sharding::fsdp, true, true, 1, prefetch, layers};
    require_as_on_hosts(test::training_plan({.model = test::gpt2(3, true), .microbatches = 2, .data = 2}), rule, true);
    require_as_on_hosts(
        test::training_plan(
            {.model = test::gpt2(4, true), .schedule = "zb-h1", .ranks = 2, .microbatches = 2, .data = 2}),
        rule, true);
  }
  require_clean(fake);
}

// Three ranks do not divide most weights: their parts are broadcast and reduced one by one. The stand-in adds in one
// order, so what is shared out once a step has the bits of what is not; two sums of two each have those of hosts.
TEST_CASE("three and four ranks have the same bits unshared, and HSDP's copies have those of hosts") {
  const FakeNccl fake;
  const Plan plan = test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .data = 4});
  for (const int ranks : {3, 4}) {
    const Plan of_ranks = test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .data = ranks});
    const Outcome alike = over_nccl(of_ranks);
    for (const Rule& rule : once_a_step) {
      const Plan parts = shared_out(of_ranks, rule, true);
      INFO(describe(parts.layout) << ", by block " << rule.by_block);
      const Outcome run = over_nccl(parts);
      require_same_bits(run, alike);
      require_same_bytes(run, on_hosts(parts));
    }
    const Plan first = shared_out(of_ranks, each_microbatch.front(), true);
    const Outcome each = over_nccl(first);
    require_passed(first, each);
    for (std::size_t i = 1; i < each_microbatch.size(); ++i) {
      const Plan parts = shared_out(of_ranks, each_microbatch[i], true);
      INFO("each microbatch, " << describe(parts.layout) << ", by block " << parts.layout.data.reshard_after_forward);
      const Outcome run = over_nccl(parts);
      require_same_bits(run, each);
      require_same_bytes(run, on_hosts(parts));
    }
  }
  require_as_on_hosts(plan, {Sharding::hsdp, true, true, 2}, true);
  require_as_on_hosts(plan, {Sharding::hsdp, false, false, 2}, false);
  require_clean(fake);
}
