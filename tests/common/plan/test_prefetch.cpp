// Plans that gather more blocks ahead than one, or none: their times, peaks and traffic beside each other, with all
// ranks folded and unfolded, and their files.
#include <algorithm>

#include "common/graph/schedule_graph.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/sharded_plans.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

const std::string gathered_at_use = ", reshard_after_forward: true, reduce: each_microbatch";

// With NICs so slow that no block's computing hides what the next one gathers, or so fast that each does.
LayoutCase prefetching(const std::string& rule, int prefetch, const std::string& network, int pipeline = 1,
                       const std::string& schedule = "1f1b") {
  LayoutCase c = sharded(rule + ", prefetch: " + std::to_string(prefetch), 16, pipeline, schedule);
  c.machine = "{like: dgx-a100, name: made up, outside: {bandwidth: {value: " + network + ", source: test}}}";
  c.software = "{like: plumb, data_overlap: true}";
  return c;
}

Seconds longest_path_unfolded(const Plan& plan) {
  const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
  return evaluate(unfolded_graph(plan, folded).graph).makespan;
}

std::string refused(const LayoutCase& c) {
  try {
    (void)plan_of(c);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("one block ahead is what nobody has to say, none ahead is software that moves nothing beside computing") {
  LayoutCase c = prefetching("fsdp" + gathered_at_use, 1, "25 GB/s");
  const Plan one = plan_of(c);
  c.sharding = "fsdp" + gathered_at_use;
  CHECK(to_json(plan_of(c)) == to_json(one));
  CHECK(to_json(one).find("prefetch") == std::string::npos);
  const Plan none = plan_of(prefetching("fsdp" + gathered_at_use, 0, "25 GB/s"));
  c.software = "{like: plumb, data_overlap: false}";
  CHECK(plan_of(c).costs == none.costs);
}

TEST_CASE("going further ahead is never slower, needs more memory and receives the same bytes") {
  for (const std::string rule : {"fsdp", "zero3, quantized_weights: true", "{kind: hsdp, shard: 8}"}) {
    for (const std::string network : {"1 GB/s", "12 GB/s", "100 GB/s"}) {
      for (const std::string schedule : {"1f1b", "zb-h1"}) {
        std::vector<Timeline> timelines;
        for (int prefetch = 0; prefetch <= 5; ++prefetch) {
          const int pipeline = schedule == "1f1b" ? 1 : 2;
          timelines.push_back(
              predict_by_path(plan_of(prefetching(rule + gathered_at_use, prefetch, network, pipeline, schedule))));
          if (prefetch == 0) continue;
          const Timeline& before = timelines[timelines.size() - 2];
          const Timeline& now = timelines.back();
          CAPTURE(rule, network, schedule, prefetch);
          CHECK(now.steps[0].duration <= before.steps[0].duration * (1 + 1e-12));
          for (std::size_t rank = 0; rank < now.ranks.size(); ++rank) {
            CHECK(now.ranks[rank].peak_bytes >= before.ranks[rank].peak_bytes);
            CHECK(now.ranks[rank].received_bytes == before.ranks[rank].received_bytes);
          }
        }
        // The first block ahead hides what it gathers.
        CHECK(timelines[1].steps[0].duration < timelines[0].steps[0].duration);
      }
    }
  }
}

TEST_CASE("folded and unfolded ranks take the same time however far ahead they gather") {
  for (const std::string& rule : {"fsdp" + gathered_at_use, "{kind: hsdp, shard: 8}" + gathered_at_use,
                                  std::string("zero3, reshard_after_forward: true, reduce: last_microbatch"),
                                  "zero3, secondary_shard: 8" + gathered_at_use}) {
    for (const int prefetch : {0, 2, 3, 5}) {
      for (const int tensor : {1, 2}) {
        for (const std::string more : {"", ", copies_overlap: true"}) {
          const bool hybrid = rule.starts_with("{");
          if (!more.empty() && !hybrid) continue;
          LayoutCase c = prefetching(rule, prefetch, "12 GB/s", tensor, tensor == 1 ? "1f1b" : "zb-h1");
          c.nodes = 8;
          c.tensor = tensor;
          c.software = "{like: plumb, data_overlap: true" + more + "}";
          c.recompute = rule.find("secondary") == std::string::npos ? "none" : "full";
          CAPTURE(rule, prefetch, tensor, more);
          const Plan plan = plan_of(c);
          const Seconds folded = predict_by_path(plan).steps[0].duration;
          CHECK(longest_path_unfolded(plan).value == Approx(folded.value).epsilon(1e-9));
        }
      }
    }
  }
}

TEST_CASE("folded and unfolded ranks take the same time with layers that are gathered as one") {
  for (const std::string& rule : {"fsdp" + gathered_at_use, "{kind: hsdp, shard: 8}" + gathered_at_use,
                                  std::string("zero3, reshard_after_forward: true, reduce: last_microbatch")}) {
    for (const int layers : {2, 3, 100}) {
      for (const int prefetch : {0, 1, 3}) {
        for (const int tensor : {1, 2}) {
          LayoutCase c = prefetching(rule + ", layers_per_unit: " + std::to_string(layers), prefetch, "12 GB/s", tensor,
                                     tensor == 1 ? "1f1b" : "zb-h1");
          c.nodes = 8;
          c.tensor = tensor;
          c.software = "{like: plumb, data_overlap: true, copies_overlap: true}";
          c.recompute = tensor == 1 ? "{layers: 1}" : "none";
          CAPTURE(rule, layers, prefetch, tensor);
          const Plan plan = plan_of(c);
          const Timeline folded = predict_by_path(plan);
          CHECK(longest_path_unfolded(plan).value == Approx(folded.steps[0].duration.value).epsilon(1e-9));
          CHECK(read_back(plan) == plan);
          CHECK_NOTHROW(require_predicted_costs(plan, "plan.json"));
          c.sharding = rule;
          CHECK(folded.ranks[0].received_bytes == predict_by_path(plan_of(c)).ranks[0].received_bytes);
        }
      }
    }
  }
}

// Of a ring of n ranks a gathering takes its latency once a unit.
TEST_CASE("layers that are gathered as one save the latencies of all but one of them") {
  const auto gathering = [](int layers) {
    LayoutCase c = prefetching("fsdp" + gathered_at_use + ", layers_per_unit: " + std::to_string(layers), 1, "12 GB/s");
    const Plan plan = plan_of(c);
    return plan.costs.stages.front().data_moves.gathering.value;
  };
  const double latency = gathering(1) - gathering(2);  // of four units that two layers make up
  CHECK(latency > 0);
  CHECK(gathering(1) - gathering(4) == Approx(latency * 6 / 4));
  CHECK(gathering(1) - gathering(8) == Approx(latency * 7 / 4));
  CHECK(gathering(100) == gathering(8));
}

TEST_CASE("a dynamic split counts what units of layers need, also where a search weighs it") {
  const std::string text =
      "model: {vocabulary: 1024, hidden: 1024, heads: 16, ffn: 4096, layers: \"full/dense*12\"}\n"
      "cluster: {machine: dgx-a100, nodes: 2, ranks: 16}\n"
      "training: {sequence: 512, microbatch: 1, precision: bf16, global_batch: 64}\n"
      "layout: {pipeline: 2, data: {degree: 8, sharding: fsdp, reshard_after_forward: true, layers_per_unit: 2}}\n"
      "schedule: 1f1b\nsoftware: {like: plumb, data_overlap: true}\nsplit: dynamic\n";
  const Scenario scenario = read_text(text);
  const Plan plan = make_plan(scenario, only_choice(scenario));
  Plan even = plan;
  even.split = uniform_split(12, 2);
  even.costs = predicted_costs(even);
  CHECK(predict_by_path(plan).steps[0].duration <= predict_by_path(even).steps[0].duration);
  CHECK_NOTHROW(require_predicted_costs(plan, "plan.json"));
}

TEST_CASE("units of layers are refused with what moves in other parts") {
  const auto with = [](const std::string& more, const std::string& training) {
    LayoutCase c = prefetching("fsdp" + gathered_at_use + ", layers_per_unit: 2" + more, 1, "12 GB/s");
    c.training = training;
    return refused(c);
  };
  CHECK_THAT(with("", ", offload: activations"),
             ContainsSubstring("layers_per_unit of 2 or more cannot be planned yet with offload of activations"));
  CHECK_THAT(with("", ", offload: parameters"),
             ContainsSubstring("layers_per_unit of 2 or more cannot be planned yet with offload of parameters"));
  CHECK_THAT(with(", secondary_shard: 8", ""),
             ContainsSubstring("layers_per_unit of 2 or more cannot be planned yet with secondary_shard of ZeRO++"));
  CHECK(with("", ", offload: optimizer") == "no error");
}

TEST_CASE("weights and activations that stand on the host move beside what is gathered further ahead") {
  for (const std::string offload : {"parameters", "activations"}) {
    Seconds before{1e9};
    for (const int prefetch : {1, 2, 4}) {
      LayoutCase c = prefetching("fsdp" + gathered_at_use, prefetch, "12 GB/s");
      c.training = ", offload: " + offload;
      CAPTURE(offload, prefetch);
      const Plan plan = plan_of(c);
      const Seconds step = predict_by_path(plan).steps[0].duration;
      CHECK(longest_path_unfolded(plan).value == Approx(step.value).epsilon(1e-9));
      CHECK(step <= before);
      before = step;
    }
  }
  LayoutCase both = prefetching("fsdp" + gathered_at_use, 2, "12 GB/s");
  both.training = ", offload: activations+parameters";
  CHECK_THAT(
      refused(both),
      ContainsSubstring("a prefetch of 2 or more cannot be planned yet with offload of activations and parameters") &&
          ContainsSubstring("hint: prefetch: 1"));
}

TEST_CASE("a plan keeps how far ahead it gathers, and may not be edited into another depth") {
  for (const int prefetch : {0, 1, 2}) {
    const Plan plan = plan_of(prefetching("fsdp" + gathered_at_use, prefetch, "12 GB/s"));
    CHECK(read_back(plan) == plan);
    CHECK_NOTHROW(require_predicted_costs(plan, "plan.json"));
    const std::string edited = message_after(plan, [](Plan& other) { other.layout.data.prefetch = 3; });
    CHECK_THAT(edited, ContainsSubstring("costs.stages[0]") &&
                           ContainsSubstring("gathers weights " + std::to_string(prefetch) + " blocks ahead") &&
                           ContainsSubstring("prefetch is 3"));
  }
  const std::string kept =
      message_after(plan_of(sharded("fsdp", 4, 2)), [](Plan& other) { other.layout.data.prefetch = 2; });
  CHECK_THAT(kept, ContainsSubstring("layout") && ContainsSubstring("prefetch is of weights that each action gathers"));
}

TEST_CASE("software that moves nothing beside computing gathers nothing two blocks ahead") {
  LayoutCase c = prefetching("fsdp" + gathered_at_use, 2, "12 GB/s");
  c.software = "{like: plumb, data_overlap: false}";
  CHECK_THAT(
      refused(c),
      ContainsSubstring(
          "prefetch of 2 or more cannot be planned yet with software that overlaps no data-parallel collectives") &&
          ContainsSubstring("data_overlap: true"));
}
