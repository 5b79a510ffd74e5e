// Tensor and data groups of a session on threads and over gloo: checked against one device, and each step rebuilt from
// its own durations.
#include <cmath>
#include <limits>
#include <vector>

#include "common/timeline/diff/replay.hpp"
#include "exec/commands/session.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/stage/sharding/sharded_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::of_four;

namespace {

struct Case {
  const char* schedule;
  int ranks;
  int tensor;
  bool sequence_parallel = false;
  int data = 1;
  int microbatches = 4;
  ElementType precision = ElementType::fp32;
  int vocabulary_barriers = 0;
};

Plan plan_of(const Model& model, const Case& shape) {
  return test::training_plan({.model = of_four(model),
                              .schedule = shape.schedule,
                              .ranks = shape.ranks,
                              .chunks = fewest_chunks(shape.schedule),
                              .microbatches = shape.microbatches,
                              .precision = shape.precision,
                              .data = shape.data,
                              .tensor = shape.tensor,
                              .sequence_parallel = shape.sequence_parallel,
                              .vocabulary_barriers = shape.vocabulary_barriers});
}

}  // namespace

// In one process: test_program has processes.
TEST_CASE("groups of four ranks pass the check over gloo, alone and in pipelines of every kind") {
  const std::vector<TransportKind> kinds = transport_kinds();
  const std::size_t half = GENERATE(std::size_t{0}, std::size_t{1});
  // Each by two models, one in each precision, over one of the kinds of sockets each.
  std::size_t turn = half;
  for (Case shape : {Case{"1f1b", 1, 4, false, 1, 2}, Case{"zb-h1", 1, 4, true, 1, 2}, Case{"zb-h1", 2, 2},
                     Case{"zb-h1", 2, 2, true}, Case{"interleaved-1f1b", 2, 2}, Case{"interleaved-1f1b", 2, 2, true},
                     Case{"1f1b", 1, 1, false, 4, 2}}) {
    const test::Family family = test::families.at((half + turn) % test::families.size());
    const TransportKind& kind = kinds.at(1 + turn++ % 2);
    shape.precision = half == 0 ? ElementType::fp32 : ElementType::bf16;
    const Plan plan = plan_of(family(test::fewest_layers(shape.schedule)), shape);
    INFO(test::text(plan) << " over " << kind.name << (shape.sequence_parallel ? ", sp" : "")
                          << (shape.precision == ElementType::bf16 ? ", bf16" : ""));
    test::require_passed(plan, test::train(plan, 2, kind));
  }
}

TEST_CASE("sixteen ranks, four stages of two tensor ranks each, twice, pass the check") {
  const auto [schedule, by_tokens, layers] =
      GENERATE(table<const char*, bool, int>({{"1f1b", false, 4}, {"zb-h1", true, 4}, {"interleaved-1f1b", false, 8}}));
  const Plan plan = plan_of(test::llama(layers), {schedule, 4, 2, by_tokens, 2});
  INFO(test::text(plan) << (by_tokens ? ", sp" : ""));
  const test::Outcome run = test::train(plan, 2);
  CHECK(run.logs.ranks.front().size() == 16);
  test::require_passed(plan, run);
}

namespace {

// Whose F takes milliseconds: a message between threads is little beside it.
Model wide_model(int layers) {
  Model made = test::llama(layers);
  made.hidden = 256;
  for (Layer& layer : made.layers) {
    layer = test::layer(test::attention(4, 4, 64), DenseMlp{.width = 512, .activation = Activation::swiglu});
  }
  return made;
}

// Of the step that comes nearest: what the graph leaves out is missing in each of them, where a rank waited for a core
// that others had is one step's own.
double least_replay_error(const Plan& plan, const SessionLogs& logs) {
  const Timeline timeline = merge_logs(plan, lowered_schedule(plan), logs.ranks.front(), "test");
  const ScheduleGraph graph = graph_of(timeline);
  double least = std::numeric_limits<double>::infinity();
  for (const StepTimeline& step : timeline.steps) {
    const double error = replay(graph, step).error_fraction;
    if (std::abs(error) < std::abs(least)) least = error;
  }
  return least;
}

}  // namespace

TEST_CASE("a step of every executed layout is its own durations on the graph of its ranks, within 1%") {
  using test::Rule;
  const Case one_barrier{.schedule = "1f1b", .ranks = 2, .tensor = 1, .data = 2, .vocabulary_barriers = 1};
  const Case two_barriers{.schedule = "zb-h1", .ranks = 2, .tensor = 1, .data = 2, .vocabulary_barriers = 2};
  const Case in_groups{
      .schedule = "1f1b", .ranks = 2, .tensor = 2, .sequence_parallel = true, .vocabulary_barriers = 2};
  const auto [shape, rule] =
      GENERATE_COPY(table<Case, Rule>({{one_barrier, {Sharding::none}},
                                       {two_barriers, {Sharding::zero1}},
                                       {in_groups, {Sharding::none}},
                                       {{"1f1b", 1, 2}, {Sharding::none}},
                                       {{"1f1b", 1, 2, true}, {Sharding::none}},
                                       {{"1f1b", 1, 1, false, 2}, {Sharding::none}},
                                       {{"1f1b", 1, 1, false, 2}, {Sharding::zero1}},
                                       {{"1f1b", 1, 1, false, 2}, {Sharding::zero2, false, true}},
                                       {{"1f1b", 1, 1, false, 2}, {Sharding::zero3, true, true}},
                                       {{"1f1b", 1, 1, false, 2}, {Sharding::fsdp}},
                                       {{"1f1b", 1, 1, false, 2}, {Sharding::fsdp, true}},
                                       {{"1f1b", 1, 1, false, 4}, {Sharding::hsdp, true, false, false, 2}},
                                       {{"1f1b", 2, 2, false, 2}, {Sharding::none}},
                                       {{"zb-h1", 2, 2, true, 2}, {Sharding::none}},
                                       {{"interleaved-1f1b", 2, 2, true, 2}, {Sharding::fsdp}}}));
  const Plan plan = test::sharded(plan_of(wide_model(test::fewest_layers(shape.schedule)), shape), rule);
  INFO(test::text(plan) << (shape.sequence_parallel ? ", sp" : ""));
  SessionOptions options = test::checked_steps(transport_kinds().front(), 6);
  options.check = false;
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  double least = std::numeric_limits<double>::infinity();
  for (int runs = 0; runs < 5 && std::abs(least) > 0.01; ++runs) {  // where other programs take the cores
    least = least_replay_error(plan, test::train_session(transport_kinds().front(), {prepared}, options));
  }
  CHECK(std::abs(least) <= 0.01);
}
