// Weights that are gathered further ahead, or not at all: the bits and the bytes of one block ahead.
#include "tests/exec/stage/sharding/sharded_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

Plan prefetching(Plan plan, int prefetch) {
  plan.layout.data.prefetch = prefetch;
  require_consistent(plan.layout);
  return plan;
}

void require_as_one_ahead(const Plan& plan, const TransportKind& kind = transport_kinds().front()) {
  const Outcome one = train(plan, 3);
  for (const int prefetch : {0, 2, 3, 20}) {
    INFO(text(plan) << ", " << prefetch << " ahead on " << kind.name);
    const Outcome other = train(prefetching(plan, prefetch), 3, kind);
    require_same_bits(other, one);
    for (std::size_t rank = 0; rank < other.logs.ranks.front().size(); ++rank) {
      CHECK(other.logs.ranks.front()[rank].steps.back().received_bytes ==
            one.logs.ranks.front()[rank].steps.back().received_bytes);
    }
  }
}

}  // namespace

// With a table that both ends share, and weights that four ranks do not divide.
TEST_CASE("steps have the same bits however far ahead blocks are gathered, on every transport") {
  const Plan plan = test::training_plan({.model = test::gpt2(2, true), .microbatches = 2, .data = 4});
  require_as_one_ahead(sharded(plan, {Sharding::zero3, true}));
  require_as_one_ahead(sharded(plan, {Sharding::hsdp, true, true, true, 2}));
  for (const TransportKind& kind : transport_kinds()) {
    require_as_one_ahead(sharded(plan, {Sharding::fsdp, true, true}), kind);
  }
}

TEST_CASE("so they have in pipelines, with tensor groups, in slices, with frozen weights, and on hosts") {
  const Rule at_use{Sharding::fsdp, true, true};
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    require_as_one_ahead(sharded(
        test::training_plan({.model = test::gpt2(4, true), .schedule = schedule, .ranks = 2, .data = 2}), at_use));
  }
  require_as_one_ahead(
      sharded(test::training_plan({.model = test::llama(2), .microbatches = 2, .data = 2, .tensor = 2}), at_use));
  require_as_one_ahead(sharded(
      test::training_plan(
          {.model = test::llama(2), .schedule = "seq-1f1b", .ranks = 2, .microbatches = 2, .slices = 2, .data = 2}),
      at_use));
  Plan tuned = sharded(test::training_plan({.model = test::gpt2(2, true), .microbatches = 2, .data = 4}), at_use);
  tuned.training.lora = Lora{.rank = 3, .alpha = 6, .targets = {LoraTarget::query, LoraTarget::value}};
  require_as_one_ahead(tuned);
  Plan on_host = sharded(test::training_plan({.model = test::llama(2), .microbatches = 2, .data = 2}), at_use);
  on_host.training.offload.parameters = true;
  require_as_one_ahead(on_host);
}

TEST_CASE("so they have with several layers as one, whatever stands behind or before these") {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const Plan plan = test::training_plan({.model = test::gpt2(5, true), .schedule = schedule, .ranks = 2, .data = 2});
    const Outcome one = train(sharded(plan, {Sharding::fsdp, true, true}), 3);
    for (const int layers : {2, 100}) {
      for (const int prefetch : {0, 1, 2}) {
        const Plan units = sharded(plan, {Sharding::fsdp, true, true, true, 1, prefetch, layers});
        INFO(text(units) << ", " << layers << " as one, " << prefetch << " ahead");
        require_same_bits(train(units, 3), one);
      }
    }
    require_same_bits(train(sharded(plan, {Sharding::fsdp, true, true, true, 1, 1, 2}), 3, transport_kinds().back()),
                      one);
  }
  const Plan copies = test::training_plan({.model = test::llama(3), .microbatches = 2, .recompute = true, .data = 4});
  require_same_bits(train(sharded(copies, {Sharding::hsdp, true, true, true, 2, 1, 2}), 3),
                    train(sharded(copies, {Sharding::hsdp, true, true, true, 2}), 3));
}

TEST_CASE("so they have with every part of ZeRO++, of which several blocks' sums are under way") {
  Plan plan =
      sharded(test::training_plan({.model = test::gpt2(3, true), .microbatches = 2, .recompute = true, .data = 4}),
              {Sharding::zero3, true, true});
  plan.layout.data.quantized_weights = true;
  plan.layout.data.secondary_shard = 2;
  plan.layout.data.quantized_gradients = 2;
  require_as_one_ahead(plan);
}
