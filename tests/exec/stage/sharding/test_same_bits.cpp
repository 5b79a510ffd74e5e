// However data-parallel ranks share out states, gradients and weights, on whatever transport: the same bits.
#include <array>
#include <string>

#include "tests/exec/stage/sharding/sharded_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

// Gradients are summed once a step: all of them, and plain data parallelism, add the same numbers in the same order.
constexpr std::array rules{
    Rule{Sharding::none},        Rule{Sharding::zero1}, Rule{Sharding::zero2, false, false, false},
    Rule{Sharding::zero3, true}, Rule{Sharding::fsdp},  Rule{Sharding::hsdp, true, false, true, 2}};

// `alike` is of ranks that share out nothing, between threads, behind the backward.
void require_alike(const Plan& plan, int steps, const TransportKind& kind, const Outcome& alike) {
  for (const Rule& rule : rules) {
    if (rule.sharding == Sharding::hsdp && plan.layout.data.degree == rule.shard) continue;  // one copy: FSDP
    const Plan parts = sharded(plan, rule);
    INFO(text(parts) << " on " << kind.name);
    require_same_bits(train(parts, steps, kind), alike);
  }
}

}  // namespace

// With a table that both ends share, and weights that four ranks do not divide.
TEST_CASE("ten steps of two and of four ranks have the same bits over gloo and between threads, under every rule") {
  const int ranks = GENERATE(2, 4);
  const Plan plan = training_plan({.model = gpt2(1, true), .microbatches = 2, .data = ranks});
  const Outcome alike = train(plan, 10);
  require_passed(plan, alike);
  const std::vector<TransportKind> kinds = transport_kinds();
  if (ranks == 2) require_alike(plan, 10, kinds.front(), alike);  // four of them: test_sharding
  require_alike(plan, 10, kinds.at(1), alike);
}

TEST_CASE("ten steps of two pipelines side by side have the same bits over gloo and between threads") {
  const std::string schedule = GENERATE("1f1b", "zb-h1");
  const Plan plan = training_plan({.model = gpt2(2, true), .schedule = schedule, .ranks = 2, .data = 2});
  const Outcome alike = train(plan, 10);
  require_passed(plan, alike);
  const std::vector<TransportKind> kinds = transport_kinds();
  for (std::size_t kind : {0, 1}) require_alike(plan, 10, kinds.at(kind), alike);
}

// A product's pieces read weights that are gathered for the whole block, and add to gradients that are.
TEST_CASE("asynchronous tensor groups side by side have the same bits under every rule") {
  const Plan plan = training_plan({.model = gpt2(2, true),
                                   .microbatches = 2,
                                   .data = 2,
                                   .tensor = 2,
                                   .sequence_parallel = true,
                                   .asynchronous = true});
  const TransportKind local = transport_kinds().front();
  require_alike(plan, 3, local, train(plan, 3, local));
}
