// Variants against closed forms of uniform pipelines, and what their reader refuses.
#include "common/study/what_if.hpp"

#include <cmath>
#include <set>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using plumb::testing::read_text;
using plumb::testing::scenario_text;

namespace {

constexpr int rank_count = 4;
constexpr int last = rank_count - 1;
constexpr int microbatches = 12;

// 1F1B of equal stages without hops: F takes 1 s, B 2 s.
Plan uniform() {
  Plan plan;
  plan.name = "uniform";
  plan.schedule = generate_schedule("1f1b", {.ranks = rank_count, .microbatches = microbatches});
  plan.costs = even_costs(rank_count, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  return plan;
}

StepOutcome outcome_by_path(const ScheduleGraph& graph, const PipelineCosts&, const std::vector<Disturbance>&) {
  return {.evaluation = evaluate(graph), .unfinished = {}};
}

double step(WhatIf variant) {
  if (variant.plan.name.empty()) variant.plan = uniform();
  return predict_what_if(variant, outcome_by_path).iteration.value;
}

const std::string rest = R"(cluster: {machine: dgx-a100, nodes: 2}
training: {sequence: 32768, global_batch: 16, microbatch: 1, precision: bf16}
layout: {pipeline: 4, data: {degree: 4}}
schedule: 1f1b
split: uniform
)";

Plan small_plan() {
  const Scenario scenario = read_text(scenario_text(rest));
  return make_plan(scenario, {1, scenario.schedules.front(), scenario.splits.front()});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::vector<WhatIf> variants(const std::string& text, const Plan& plan) {
  return read_what_if(YamlValue::parse(text, "w.yaml"), plan);
}

std::string message(const std::string& block, const Plan& plan) {
  try {
    (void)variants("- {name: a, " + block + "}", plan);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a straggler at the end of a uniform pipeline adds its own excess for every microbatch") {
  constexpr double planned = 3 * (microbatches + last);
  CHECK(step({}) == Approx(planned));
  for (const double slower : {1.2, 2.0}) {
    // The last rank never waits in 1F1B: (P − 1)(F + B) around m of its own.
    const double expected = planned + microbatches * 3 * (slower - 1);
    CHECK(step({.stragglers = {{.slower = slower, .rank = last}}}) == Approx(expected));
    CHECK(step({.stragglers = {{.slower = slower, .stage = last}}}) == Approx(expected));
    CHECK(step({.stragglers = {{.slower = slower}}}) == Approx(planned * slower));
    CHECK(step({.stragglers = {{.slower = slower, .machine = 0}}}) == Approx(planned * slower));  // all ranks are on it
    CHECK(step({.stragglers = {{.slower = slower, .action = ActionKind::forward}}}) ==
          Approx((microbatches + last) * (slower + 2)));
  }
}

TEST_CASE("the straggler bounds the step, and its computation is counted on the longest chain") {
  WhatIf variant{.plan = uniform(), .stragglers = {{.slower = 2, .rank = 3}}};
  const WhatIfOutcome outcome = predict_what_if(variant, outcome_by_path);
  CHECK(outcome.bounding.rank == 3);
  CHECK(outcome.bounding.fraction == Approx(6.0 * microbatches / (6 * microbatches + 3 * (last))));
  CHECK(outcome.never_ran == 0);
}

TEST_CASE("jitter keeps the mean of each action and is the same for the same seed") {
  const WhatIf variant{.plan = uniform(), .jitter = Jitter{.spread = 0.05, .seed = 3}};
  const ScheduleGraph graph = graph_of(variant);
  CHECK(durations(graph) == durations(graph_of(variant)));
  const ScheduleGraph planned = graph_of({.plan = uniform()});
  double sum = 0;
  double squares = 0;
  int count = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (planned.nodes[id].kind != NodeKind::compute) {
      CHECK(graph.nodes[id].duration == planned.nodes[id].duration);
      continue;
    }
    const double factor = graph.nodes[id].duration / planned.nodes[id].duration;
    sum += factor;
    squares += (factor - 1) * (factor - 1);
    ++count;
  }
  CHECK(count == 2 * rank_count * microbatches);
  CHECK(sum / count == Approx(1).margin(0.02));
  CHECK(std::sqrt(squares / count) == Approx(0.05).epsilon(0.25));
  CHECK(step({.jitter = Jitter{.spread = 0.05, .seed = 4}}) != step(variant));
  // Waiting for the slowest of several: the step gets longer than the mean of its parts.
  CHECK(step(variant) > step({}));
}

TEST_CASE("jitter draws each action of each rank apart") {
  const ScheduleGraph graph = graph_of({.plan = uniform(), .jitter = Jitter{.spread = 0.05, .seed = 3}});
  const ScheduleGraph planned = graph_of({.plan = uniform()});
  std::vector<std::vector<double>> factors(rank_count);
  std::set<double> all;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (planned.nodes[id].kind != NodeKind::compute) continue;
    const double factor = graph.nodes[id].duration / planned.nodes[id].duration;
    factors[static_cast<std::size_t>(graph.nodes[id].rank)].push_back(factor);
    all.insert(factor);
  }
  CHECK(all.size() == static_cast<std::size_t>(2 * rank_count * microbatches));
  // The mean of n independent factors lies within 4/√n standard deviations of 1; that of one shared by all does not.
  for (const std::vector<double>& of_rank : factors) {
    double sum = 0;
    for (const double factor : of_rank) sum += factor;
    const auto count = static_cast<double>(of_rank.size());
    CHECK(std::abs(sum / count - 1) < 4 * 0.05 / std::sqrt(count));
  }
}

TEST_CASE("a plan's costs are predicted again from what it holds, also through its file") {
  const Plan plan = small_plan();
  CHECK(predicted_costs(plan) == plan.costs);
  const testing::TemporaryFolder folder;
  CHECK_NOTHROW(require_predicted_costs(read_plan(folder.write("plan.json", to_json(plan))), "x"));
  Plan edited = plan;
  edited.costs.stages.front().forward = edited.costs.stages.front().forward * 2;
  CHECK_THROWS_WITH(require_predicted_costs(edited, "here"), ContainsSubstring("edited"));
  edited.costs.provenance = "profile of x";
  CHECK_THROWS_WITH(require_predicted_costs(edited, "here"), ContainsSubstring("measured"));
}

TEST_CASE("a variant's number takes along what it stands in for, unless the variant gives that too") {
  const Scenario scenario =
      read_text(scenario_text("cluster: {ranks: 2, cores: 2}\nlayout: {pipeline: 2}\nsplit: uniform\n"));
  const Plan plan = make_plan(scenario, only_choice(scenario));
  const auto device = [&](const std::string& machine) {
    return variants("- {name: a, machine: " + machine + "}", plan).front().plan.cluster.machine.device;
  };
  CHECK(device("{matmul_efficiency: 0.25}").attention_efficiency.value == 0.25);
  CHECK(device("{matmul_efficiency: 0.25, attention_efficiency: 0.5}").attention_efficiency.value == 0.5);
  CHECK(device("{attention_efficiency: 0.5, matmul_efficiency: 0.25}").attention_efficiency.value == 0.5);
  const Machine slow = variants("- {name: a, machine: {inside: {latency: 1 ms}}}", plan).front().plan.cluster.machine;
  CHECK(slow.collective_latency.value.value == 1e-3);
  CHECK_THAT(message("machine: {zzzzzz: 1}", plan), !ContainsSubstring("inside, inside"));
  CHECK_THAT(message("software: {post_validation: true}", plan), ContainsSubstring("published tables"));
}

TEST_CASE("the costs of a plan that redoes some layers of each stage are those of the layers that its split says") {
  const Scenario scenario =
      read_text(scenario_text(replaced(rest, "precision: bf16", "precision: bf16, recompute: {layers: 1}")));
  for (const std::string split : {"uniform", "dynamic"}) {
    SplitChoice choice = scenario.splits.front();
    if (split == "dynamic") choice.method = SplitMethod::dynamic;
    const Plan plan = make_plan(scenario, {1, scenario.schedules.front(), choice});
    CHECK(predicted_costs(plan) == plan.costs);
    const auto kept = [](const Plan& of) {
      Bytes sum;
      for (const ComputeCost& stage : of.costs.stages) sum += stage.kept_bytes;
      return sum;
    };
    CHECK(kept(plan) < kept(small_plan()));
  }
}

TEST_CASE("variants of costs are the plan of the changed scenario") {
  const Plan plan = small_plan();
  const auto found = variants(
      "- {name: nic, cluster: {outside: {bandwidth: 5 GB/s}}}\n- {name: worse, machine: {matmul_efficiency: 0.4}}\n"
      "- {name: batch, training: {global_batch: 32}}\n- {name: skew, experts: {skew: 2}}\n"
      "- {name: system, software: {gradients: bf16}}",
      plan);
  REQUIRE(found.size() == 5);
  const auto same_as = [&](const std::string& changed) {
    const Scenario scenario = read_text(scenario_text(changed));
    return make_plan(scenario, {1, scenario.schedules.front(), scenario.splits.front()}).costs;
  };
  CHECK(found[0].plan.costs == same_as(replaced(rest, "nodes: 2", "nodes: 2, outside: {bandwidth: 5 GB/s}")));
  CHECK(found[1].plan.costs.stages[0].forward > plan.costs.stages[0].forward);
  CHECK(whole_microbatches(found[2].plan.schedule) == 2 * whole_microbatches(plan.schedule));
  CHECK(found[2].plan.costs == same_as(replaced(rest, "global_batch: 16", "global_batch: 32")));
  // Layers with experts are in the second half of the model.
  CHECK(found[3].plan.costs.stages[0].forward == plan.costs.stages[0].forward);
  CHECK(found[3].plan.costs.stages[3].forward > plan.costs.stages[3].forward);
  CHECK_FALSE(found[3].note.empty());
  CHECK(found[4].plan.costs == same_as(rest + "software: {like: plumb, data_overlap: true, gradients: bf16}\n"));
}

TEST_CASE("faults become disturbances of ranks, and failures are named") {
  const Plan plan = small_plan();
  const auto found = variants(
      "- {name: a, host: {rank: 2, fails_at: 0.5 s}}\n"
      "- {name: b, link: [{machine: 0, factor: 0.5, until: 1 s}, {between: [1, 0], fails: true, from: 2 ms}]}",
      plan);
  REQUIRE(found[0].disturbances.size() == 2);
  CHECK(found[0].disturbances[0] == Disturbance{.rank = 2, .factor = 0, .from = {0.5}});
  CHECK(found[0].disturbances[1].what == Disturbed::ports);
  CHECK(found[1].disturbances.size() == static_cast<std::size_t>(plan.costs.ranks_per_machine) + 1);
  CHECK(found[1].disturbances.back() ==
        Disturbance{.what = Disturbed::way, .rank = 1, .peer = 0, .factor = 0, .from = {2e-3}});
  const auto stuck = [](const ScheduleGraph&, const PipelineCosts&, const std::vector<Disturbance>&) {
    return StepOutcome{.evaluation = {}, .unfinished = {0, 1}};
  };
  const WhatIfOutcome outcome = predict_what_if(found[0], stuck);
  CHECK(outcome.never_ran == 2);
  REQUIRE(outcome.why.causes.size() == 1);
  CHECK(outcome.why.causes.front() == found[0].disturbances[0]);
  CHECK(outcome.why.rank == 0);
  CHECK_THAT(outcome.failure, ContainsSubstring("rank 2 failed at 500.0 ms: 2 actions never ended, the first: rank 0"));
}

TEST_CASE("dates behind the step's end are told apart from those that it meets") {
  const auto found = [](std::vector<Disturbance> disturbances) {
    return predict_what_if({.plan = uniform(), .disturbances = std::move(disturbances)}, outcome_by_path).unmet;
  };
  const double end = step({});  // of a step that no disturbance changes
  CHECK(found({}).empty());
  CHECK(found({{.rank = 1, .factor = 0.5}, {.rank = 1, .factor = 0.5, .from = {end - 1}}}).empty());
  CHECK(found({{.rank = 1, .factor = 0.5}, {.rank = 1, .factor = 0, .from = {end}}}) ==
        "nothing met of what begins at " + to_text(Seconds{end}) + ": the step has ended by then");
  CHECK_THAT(found({{.factor = 0, .from = {2 * end}}, {.factor = 0, .from = {end}}}),
             ContainsSubstring(" at " + to_text(Seconds{end}) + " and later: "));
}

TEST_CASE("impossible variants are refused with file and line") {
  const Plan plan = small_plan();
  const auto refused = [&](const std::string& block, const std::string& part) {
    INFO(block);
    const std::string found = message(block, plan);
    CHECK_THAT(found, ContainsSubstring("w.yaml:1:"));
    CHECK_THAT(found, ContainsSubstring(part));
  };
  refused("strangler: {rank: 1}", "did you mean 'straggler'?");
  refused("straggler: {rank: 4, slower: 2}", "the pipeline has ranks 0 to 3, not 4");
  refused("straggler: {rank: -1, slower: 2}", "the pipeline has ranks 0 to 3, not -1");
  refused("straggler: {slower: 2}", "which rank");
  refused("straggler: {rank: 1}", "slower");
  refused("straggler: {action: W, slower: 2}", "nothing that the plan does");
  refused("straggler: {action: X, slower: 2}", "X");
  refused("jitter: {seed: 1}", "spread");
  refused("link: {rank: 1, factor: 0.5, from: 3}", "unit");
  refused("link: {rank: 1, factor: 0.5, from: 3 s, until: 2 s}", "later");
  refused("link: {rank: 1, machine: 0, factor: 0.5}", "exactly one of: rank, between, machine, switch, leaf");
  refused("link: {rank: 1}", "exactly one of: factor, fails");
  refused("link: {rank: 1, factor: 2}", "from 0 to 1");
  refused("link: {between: [0, 3], factor: 0.5}", "nothing");
  refused("link: {leaf: 0, factor: 0.5}", "no leaf switches");
  refused("host: {rank: 1}", "fails_at");
  refused("host: {rank: 1, fails_at: 1 s, until: 2 s}", "stays away");
  refused("machine: {matmul_eficiency: 0.5}", "did you mean 'matmul_efficiency'?");
  refused("cluster: {outside: {bandwidth: 5}}", "unit");
  refused("training: {microbatch: 3}", "divide");
  refused("experts: {skew: 0.5}", "from 1");
  CHECK_THAT(message("jitter: {spread: 5%}}\n- {name: a, jitter: {spread: 1%}", plan),
             ContainsSubstring("two variants"));
  Plan measured = plan;
  measured.costs.provenance = "profile of x";
  CHECK_THAT(message("machine: {matmul_efficiency: 0.5}", measured), ContainsSubstring("measured"));
  CHECK(message("straggler: {rank: 1, slower: 2}", measured) == "no error");
}

TEST_CASE("a variant's name is on one line, without control characters") {
  const Plan plan = small_plan();
  const auto named = [&](const std::string& name) {
    return variants("- {name: " + name + ", straggler: {rank: 0, slower: 2}}\n", plan);
  };
  CHECK(named("\"größer – 2×\"").front().name == "größer – 2×");
  for (const char* name : {"\"a\\e[31mb\"", "\"a\\nb\"", "\"a\\x07b\"", "\"a\\x7Fb\""}) {
    CAPTURE(name);
    CHECK_THROWS_WITH(named(name), ContainsSubstring("w.yaml:1:10") && ContainsSubstring("control characters"));
  }
}
