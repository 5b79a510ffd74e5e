// Activations that stand on the host between F and I or B: the bits of a run that keeps them, and what is copied.
#include <set>

#include "exec/host/memory.hpp"
#include "tests/exec/stage/sharding/sharded_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

Plan with_activations_there(Plan plan) {
  plan.training.offload.activations = true;
  return plan;
}

// Of one microbatch's actions on one rank, by whether they go forward.
Bytes copied_by_actions(const RankStep& step, bool forward) {
  Bytes sum;
  for (const Event& event : step.events) {
    if (copies_activations(event.action.kind) && goes_forward(event.action.kind) == forward) sum += event.bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("steps have the same bits with activations on the host, under every rule") {
  for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
    const Plan plan =
        test::training_plan({.model = test::gpt2(1, true), .microbatches = 2, .precision = precision, .data = 4});
    require_same_bits(train(with_activations_there(plan), 3), train(plan, 3));
    for (const Rule& rule :
         {Rule{Sharding::zero1}, Rule{Sharding::fsdp, true, true}, Rule{Sharding::hsdp, true, false, true, 2}}) {
      const Plan parts = sharded(plan, rule);
      INFO(text(parts));
      require_same_bits(train(with_activations_there(parts), 3), train(parts, 3));
    }
  }
}

TEST_CASE("models of every kind have the same bits with activations on the host") {
  for (const Model& model : {test::llama(4), test::mixtral(4), test::hybrid(), test::gpt2(4, false)}) {
    for (const std::string schedule : {"1f1b", "zb-h1"}) {
      INFO(model.name << ", " << schedule);
      Plan plan = test::training_plan({.model = model, .schedule = schedule, .ranks = 2});
      const Outcome there = train(with_activations_there(plan), 2);
      require_same_bits(there, train(plan, 2));
      require_passed(plan, there);
    }
  }
}

TEST_CASE("pipelines with activations on the host pass the check on every transport") {
  const std::string schedule = GENERATE("1f1b", "zb-h1", "dualpipe");
  const int data = schedule == "dualpipe" ? 1 : 2;  // which trains two replicas as it is
  Plan plan = with_activations_there(
      test::training_plan({.model = test::gpt2(2, true), .schedule = schedule, .ranks = 2, .data = data}));
  plan.training.offload.optimizer = true;
  const Outcome run = train(plan, 2);
  require_passed(plan, run);
  require_same_bits(train(plan, 2, transport_kinds().back()), run);
}

// What goes down comes up; of each microbatch the same.
TEST_CASE("each microbatch's activations go to the host once and come back once, and none stay there") {
  const std::string schedule = GENERATE("1f1b", "zb-h1");
  const Plan plan = with_activations_there(
      test::training_plan({.model = test::llama(4), .schedule = schedule, .ranks = 2, .microbatches = 4}));
  const Outcome run = train(plan, 2);
  for (const RankLog& log : run.logs.ranks.front()) {
    const RankStep& step = log.steps.back();
    const Bytes down = copied_by_actions(step, true);
    CHECK(down > Bytes{});
    CHECK(copied_by_actions(step, false) == down);
    std::set<Bytes> of_microbatch;
    for (const Event& event : step.events) {
      if (!copies_activations(event.action.kind)) continue;
      of_microbatch.insert(event.bytes);
      CHECK(event.waited > Seconds{});
      CHECK(event.waited < event.end - event.start);
    }
    CHECK(of_microbatch.size() == 1);
    CHECK(host_memory(log.rank) == Bytes{});
  }
}
