// Tensor and data groups of a session on threads and over gloo: checked against one device.
#include <vector>

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
                              .sequence_parallel = shape.sequence_parallel});
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
