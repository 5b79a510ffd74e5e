// How large the graph of all ranks gets, told before it is made; and what is refused for want of memory.
#include "common/planner/unfolded_memory.hpp"

#include "common/base/text.hpp"
#include "common/planner/unfolded.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/sharded_plans.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

ScheduleGraph folded_graph(const Plan& plan) { return build_graph(lowered_schedule(plan), plan.costs); }

UnfoldedSize size_of(const Plan& plan, const ScheduleGraph& folded) {
  return unfolded_size(folded, plan.costs, plan.layout, unfolding_details(plan));
}

// An edge of two folded nodes counts for each rank that both have, also where that is one edge of two groups.
void check_size(const Plan& plan) {
  const ScheduleGraph folded = folded_graph(plan);
  const UnfoldedSize size = size_of(plan, folded);
  const UnfoldedGraph made = unfolded_graph(plan, folded);
  std::size_t copies = 0;
  for (const std::vector<NodeCopy>& all : made.copies) copies += all.size();
  CHECK(size.folded == static_cast<std::int64_t>(folded.nodes.size()));
  CHECK(size.nodes == static_cast<std::int64_t>(made.graph.nodes.size()));
  CHECK(size.copies == static_cast<std::int64_t>(copies));
  const auto edges = static_cast<double>(boost::num_edges(made.graph.edges));
  CHECK(static_cast<double>(size.edges) >= 0.98 * edges);
  CHECK(static_cast<double>(size.edges) <= 1.05 * edges);
}

std::string refusal(const std::function<void()>& simulate) {
  try {
    simulate();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Evaluation by_path(const ScheduleGraph& graph) { return evaluate(graph); }

}  // namespace

TEST_CASE("the size of the graph of all ranks is that of the graph that is made") {
  const std::string overlapping = "{like: megatron-2022, data_overlap: true}";
  const std::vector<LayoutCase> cases{
      {.pipeline = 8},
      {.nodes = 4, .pipeline = 4, .tensor = 2, .data = 4, .sequence_parallel = true, .recompute = "full"},
      {.nodes = 4, .pipeline = 2, .tensor = 4, .data = 4, .software = overlapping},
      {.nodes = 2, .pipeline = 1, .tensor = 2, .data = 8, .software = overlapping, .batch = 1},
      {.nodes = 3, .pipeline = 2, .tensor = 4, .data = 3, .tied = true},
      {.pipeline = 2, .tensor = 4, .schedule = "{name: seq-1f1b, slices: 4}", .recompute = "{layers: 1}"},
      {.pipeline = 4, .tensor = 2, .schedule = "{name: interleaved-1f1b, chunks: 2}", .software = "megatron-2021"},
      {.pipeline = 4, .schedule = "{name: dualpipe-v, chunks: 2}"},
      {.pipeline = 8, .schedule = "bpipe"},
      {.pipeline = 4, .data = 2, .training = ", gradient_clipping: 1"},
      sharded("zero1", 4, 2),
      sharded("{kind: hsdp, shard: 4, replicate: 2}", 8, 2),
      sharded("fsdp", 4, 2, "zb-h1"),
      sharded("zero++, secondary_shard: 4", 8, 2)};
  for (const LayoutCase& c : cases) {
    CAPTURE(c.pipeline, c.tensor, c.data, c.schedule, c.sharding, c.software);
    check_size(plan_of(c));
  }
}

TEST_CASE("stages of different data degrees have the size of the graph that is made") {
  for (const char* degrees : {"[4, 1]", "[4, 2, 1, 1]", "[2, 6]"}) {
    CAPTURE(degrees);
    const Scenario scenario = read_text(
        "model: {vocabulary: 1024, hidden: 1024, heads: 16, ffn: 4096, layers: \"full/dense*8\"}\n"
        "cluster: {machine: dgx-a100}\ntraining: {sequence: 512, microbatch: 1, global_batch: 24}\n"
        "layout: {data: {by_stage: " +
        std::string(degrees) + "}}\nschedule: 1f1b\nsplit: uniform\n");
    check_size(make_plan(scenario, only_choice(scenario)));
  }
}

TEST_CASE("twice the microbatches need twice the memory, and twice the data-parallel ranks do") {
  const auto needed = [](int data, int batch) {
    const Plan plan = plan_of({.nodes = 8, .pipeline = 4, .tensor = 4, .data = data, .batch = batch});
    const ScheduleGraph folded = folded_graph(plan);
    return static_cast<double>(unfolded_memory(plan, folded, size_of(plan, folded)).value);
  };
  CHECK(needed(4, 64) == Approx(2 * needed(2, 64)).epsilon(0.01));
  CHECK(needed(2, 128) == Approx(2 * needed(2, 64)).epsilon(0.02));
}

TEST_CASE("all ranks are refused where they need more memory than there is, and both amounts are said") {
  const Plan plan = plan_of({.nodes = 4, .pipeline = 4, .tensor = 2, .data = 4});
  const ScheduleGraph folded = folded_graph(plan);
  const Bytes needed = unfolded_memory(plan, folded, size_of(plan, folded));
  const auto with = [&](std::optional<Bytes> there) {
    return refusal([&] { (void)unfolded_timeline(plan, "path", by_path, {.there = there}); });
  };
  CHECK(with(std::nullopt).empty());
  CHECK(with(needed).empty());
  const Bytes less{needed.value / 2};
  CHECK_FALSE(with(Bytes{needed.value - 1}).empty());
  CHECK_THAT(with(less), ContainsSubstring("--unfold: simulating all 32 ranks takes about " + to_text(needed)) &&
                             ContainsSubstring("has " + to_text(less)) && ContainsSubstring("fewer microbatches"));
  bool ran = false;
  const RunGraph run = [&](const ScheduleGraph& graph) {
    ran = true;
    return evaluate(graph);
  };
  CHECK_THROWS_AS(unfolded_timeline(plan, "path", run, {.there = less}), InputError);
  CHECK_FALSE(ran);
}
