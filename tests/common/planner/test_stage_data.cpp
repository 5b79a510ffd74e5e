// Stages with different data degrees: their costs, messages, memory and steps against uniform plans and closed forms.
#include <algorithm>
#include <map>

#include "common/base/document/yaml.hpp"
#include "common/base/error.hpp"
#include "common/cost/links/stage_links.hpp"
#include "common/layout/message_shares.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "common/scenario_file/stage_data_choices.hpp"
#include "common/study/what_if.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

struct Case {
  std::string data = "{by_stage: [2, 1]}";
  int pipeline = 2;
  int nodes = 1;
  int tensor = 1;
  int microbatch = 1;
  int batch = 24;
  std::string machine = "dgx-a100";
  std::string schedule = "1f1b";
  std::string software = "plumb";
  std::string recompute = "none";
  std::string split = "uniform";
  std::string tied = "false";
};

std::string text_of(const Case& c) {
  const auto text = [](int number) { return std::to_string(number); };
  return "model: {vocabulary: 1024, hidden: 1024, heads: 16, ffn: 4096, layers: \"full/dense*8\", tied_embeddings: " +
         c.tied + "}\ncluster: {machine: " + c.machine + (c.nodes > 1 ? ", nodes: " + text(c.nodes) : "") +
         "}\ntraining: {sequence: 512, precision: bf16, microbatch: " + text(c.microbatch) +
         ", global_batch: " + text(c.batch) + ", recompute: " + c.recompute +
         "}\nlayout: {pipeline: " + text(c.pipeline) + ", tensor: {degree: " + text(c.tensor) + "}, data: " + c.data +
         "}\nschedule: " + c.schedule + "\nsoftware: " + c.software + "\nsplit: " + c.split + "\n";
}

Plan plan_of(const Case& c) {
  const Scenario scenario = read_text(text_of(c));
  return make_plan(scenario, only_choice(scenario));
}

template <class F>
std::string problem_of(const F& refused) {
  try {
    refused();
  } catch (const InputError& error) {
    return error.problem();
  }
  return "no error";
}

Seconds step_of(const Timeline& timeline) { return timeline.steps.front().duration; }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* software : {"plumb", "megatron-2021", "{like: megatron-2022, data_overlap: true}"}) {
    for (const char* schedule : {"gpipe", "1f1b", "{name: interleaved-1f1b, chunks: 2}", "zb-h1"}) {
      for (const char* recompute : {"none", "full", "{layers: 1}"}) {
        Case c{.schedule = schedule, .software = software, .recompute = recompute};
        all.push_back(c);
        c.data = "{by_stage: [3, 1]}";
        c.tensor = 2;
        all.push_back(c);
        c.data = "{by_stage: [2, 3, 1, 1]}";
        c.pipeline = 4;
        c.tensor = 1;
        c.microbatch = 2;
        c.batch = 48;
        all.push_back(c);
        c.data = "{by_stage: [4, 12]}";
        c.pipeline = 2;
        c.nodes = 2;
        c.microbatch = 1;
        c.batch = 48;
        all.push_back(c);
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a stage computes and keeps what a stage of a plain plan does with its share of a microbatch") {
  for (const char* recompute : {"none", "selective", "full", "{layers: 1}"}) {
    const Plan plan = plan_of({.data = "{by_stage: [4, 2]}", .recompute = recompute});
    for (int stage = 0; stage < 2; ++stage) {
      // Four sequences in all: one on each replica of the first stage, two on each of the second.
      const Plan plain = plan_of({.data = "{degree: 1}", .microbatch = stage == 0 ? 1 : 2, .recompute = recompute});
      ComputeCost cost = plan.costs.stages[static_cast<std::size_t>(stage)];
      CHECK(cost.gradient_reduction > Seconds{});
      cost.gradient_reduction = {};
      CHECK(cost == plain.costs.stages[static_cast<std::size_t>(stage)]);
      CHECK(boundary_of_stage(plan.costs, stage, 0) == plain.costs.boundary_bytes);
    }
    CHECK(plan.schedule.microbatches == 6);
  }
}

TEST_CASE("planners of replicas count what a stage works in beside what it keeps, as its plan does") {
  for (const char* recompute : {"none", "full"}) {
    CAPTURE(recompute);
    const Scenario scenario =
        read_text(text_of({.data = "{by_stage: [2, 1]}", .recompute = recompute, .split = "[3, 5]"}));
    const Plan plan = make_plan(scenario, only_choice(scenario));
    const ReplicaProblem problem = replica_problem(scenario, layout_with(scenario.layout, {1}), 3, 1, 2);
    const auto working = [&](int stage) {
      const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
      const Bytes kept_by_planner = problem.kept.front()[1];  // of a layer: nothing where F is redone
      const Bytes in_two =
          std::max(cost.input_gradient_workspace_bytes,
                   cost.kept_for_weight_bytes + cost.weight_gradient_workspace_bytes - cost.kept_bytes);
      // Which schedule it will be is open.
      return std::max(cost.forward_workspace_bytes, std::min(in_two, backward_workspace(cost))) +
             (kept_by_planner > Bytes{} ? Bytes{} : cost.kept_bytes);
    };
    CHECK(problem.working(2, 0, 4) == working(0));
    CHECK(problem.working(1, 4, 10) == working(1));
    CHECK(working(0) > Bytes{});
  }
}

TEST_CASE("gradients are reduced over the replicas of their own stage") {
  const Plan plan = plan_of({.data = "{by_stage: [4, 1]}"});
  const Plan plain = plan_of({.data = "{degree: 4}"});
  CHECK(plan.costs.stages[0].gradient_reduction == plain.costs.stages[0].gradient_reduction);
  CHECK(plan.costs.stages[1].gradient_reduction == Seconds{});
}

TEST_CASE("a message takes what its busiest port does") {
  const auto alone = [](const Plan& plan) { return boundary_time(plan.costs.boundaries.front()).value; };
  // 512 tokens of 1024 channels in two bytes, for each sequence of a microbatch.
  const double sequence = 512.0 * 1024 * 2;
  for (const auto& [degrees, microbatch, whole, part] : {std::tuple{"[4, 1]", 1, 4, 1.0},
                                                         {"[1, 4]", 1, 4, 1.0},
                                                         {"[2, 3]", 2, 6, 1.0 / 2},
                                                         {"[3, 2]", 2, 6, 1.0 / 2},
                                                         {"[4, 2]", 1, 4, 1.0 / 2}}) {
    const Plan plan = plan_of({.data = std::string("{by_stage: ") + degrees + "}", .microbatch = microbatch});
    const Link& link = plan.cluster.machine.inside;
    CHECK(alone(plan) == Approx(link.latency.value.value + part * whole * sequence / link.bandwidth.value.value));
  }
  // Sixteen devices, four to a machine and its one NIC: of 15 replicas 12 send through the last machine's NIC.
  const Plan plan = plan_of({.data = "{by_stage: [15, 1]}", .nodes = 4, .batch = 60, .machine = "pcie-rtx3090"});
  const Link& link = plan.cluster.machine.outside;
  CHECK(alone(plan) == Approx(link.latency.value.value + 12 * sequence / link.bandwidth.value.value));
}

TEST_CASE("a step of two such stages is that of the closed form") {
  // GPipe: ΣF + (m − 1) max F, the messages' time once each way, ΣB + (m − 1) max B; then each stage's gradients.
  for (const char* degrees : {"[2, 1]", "[1, 2]", "[4, 1]", "[1, 7]", "[3, 2]"}) {
    for (const char* split : {"uniform", "[1, 7]", "[6, 2]"}) {
      CAPTURE(degrees, split);
      const Plan plan = plan_of({.data = std::string("{by_stage: ") + degrees + "}",
                                 .microbatch = 2,
                                 .batch = 336,
                                 .schedule = "gpipe",
                                 .split = split});
      const std::vector<ComputeCost>& stages = plan.costs.stages;
      const double m = plan.schedule.microbatches;
      const double c = boundary_time(plan.costs.boundaries[0]).value;
      const auto after = [&](int stage) {
        const ComputeCost& cost = stages[static_cast<std::size_t>(stage)];
        return (cost.gradient_reduction + cost.optimizer).value;
      };
      const auto f = [&](int stage) { return stages[static_cast<std::size_t>(stage)].forward.value; };
      const auto b = [&](int stage) { return backward_time(stages[static_cast<std::size_t>(stage)]).value; };
      const double forward = f(0) + c + f(1) + (m - 1) * std::max(f(0), f(1));
      const double first = forward + b(1) + c + b(0) + (m - 1) * std::max(b(0), b(1)) + after(0);
      const double last = forward + m * b(1) + after(1);
      CHECK(step_of(predict_by_path(plan)).value == Approx(std::max(first, last)).epsilon(1e-12));
    }
  }
}

TEST_CASE("a rank of such a stage holds its own share") {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const char* recompute : {"none", "full"}) {
      const Timeline mixed =
          predict_by_path(plan_of({.data = "{by_stage: [4, 2]}", .schedule = schedule, .recompute = recompute}));
      for (int stage = 0; stage < 2; ++stage) {
        // Six microbatches of the same share; when messages come differs, and each is 1 or 2 MiB.
        const Timeline plain = predict_by_path(plan_of({.data = "{degree: 1}",
                                                        .microbatch = stage + 1,
                                                        .batch = 6 * (stage + 1),
                                                        .schedule = schedule,
                                                        .recompute = recompute}));
        const RankSummary& own = mixed.ranks[static_cast<std::size_t>(stage)];
        const RankSummary& other = plain.ranks[static_cast<std::size_t>(stage)];
        CHECK(own.parameter_bytes == other.parameter_bytes);
        CHECK(own.optimizer_bytes == other.optimizer_bytes);
        CHECK(std::abs((own.peak_bytes - other.peak_bytes).value) <= 2 * (std::int64_t{2} << 20));
      }
    }
  }
}

TEST_CASE("without contention all ranks of such stages take what those that stand for them do") {
  std::size_t tried = 0;
  for (const Case& c : cases()) {
    if (!testing::tries(tried++)) continue;
    INFO(c.software << " " << c.schedule << " " << c.recompute << " " << c.data);
    const Plan plan = plan_of(c);
    const Timeline folded = predict_by_path(plan);
    const Timeline all = unfolded_timeline(plan, "path", [](const ScheduleGraph& graph) { return evaluate(graph); });
    const Timeline back =
        folded_back_timeline(plan, "path", [](const ScheduleGraph& graph) { return evaluate(graph); });
    REQUIRE(std::ssize(all.ranks) == ranks(plan.layout));
    CHECK(step_of(all).value == Approx(step_of(folded).value).epsilon(1e-9));
    CHECK(step_of(back).value == Approx(step_of(folded).value).epsilon(1e-9));
    for (int rank = 0; rank < ranks(plan.layout); ++rank) {
      const int stage = coordinates(plan.layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline));
      const RankSummary& own = all.ranks[static_cast<std::size_t>(rank)];
      const RankSummary& of_stage = folded.ranks[static_cast<std::size_t>(stage)];
      CHECK(own.parameter_bytes == of_stage.parameter_bytes);
      CHECK(own.received_bytes == of_stage.received_bytes);
      CHECK(own.peak_bytes / of_stage.peak_bytes == Approx(1).epsilon(1e-9));
    }
  }
}

TEST_CASE("every rank has its actions, and what it receives of each message adds up") {
  const Plan plan = plan_of({.data = "{by_stage: [2, 3, 1]}", .pipeline = 3, .tensor = 1, .microbatch = 2});
  const Schedule lowered = lowered_schedule(plan);
  const ScheduleGraph folded = build_graph(lowered, plan.costs);
  const UnfoldedGraph unfolded = unfolded_graph(plan, folded);
  CHECK(unfolded.graph.ranks == 6);
  std::map<int, int> computed;
  std::map<int, std::int64_t> received;
  for (NodeId id = 0; id < unfolded.graph.nodes.size(); ++id) {
    const Node& node = unfolded.graph.nodes[id];
    for (const auto next : successors(unfolded.graph, id)) CHECK(next > id);
    if (node.kind == NodeKind::compute) ++computed[node.rank];
    if (node.kind == NodeKind::transfer) received[node.rank] += node.bytes.value;
  }
  const int microbatches = plan.schedule.microbatches;
  for (int rank = 0; rank < 6; ++rank) {
    CHECK(computed[rank] == 2 * microbatches);
    const int stage = coordinates(plan.layout, rank).at(static_cast<std::size_t>(MeshAxis::pipeline));
    const std::int64_t share = share_of_stage(plan.layout, stage, 2) * 512 * 1024 * 2;
    CHECK(received[rank] == share * microbatches * (stage == 1 ? 2 : 1));
  }
}

TEST_CASE("a plan with degrees by stage is read as it was written") {
  const TemporaryFolder folder;
  const Plan plan = plan_of({.data = "{by_stage: [4, 2]}", .split = "dynamic"});
  CHECK(read_plan(folder.write("plan.json", to_json(plan))) == plan);
  CHECK(predicted_costs(plan) == plan.costs);
}

TEST_CASE("the dynamic split is the fastest of all of a short chain") {
  for (const char* degrees : {"[4, 1]", "[1, 4]", "[2, 3]"}) {
    const std::string data = std::string("{by_stage: ") + degrees + "}";
    const Seconds dynamic = step_of(predict_by_path(plan_of({.data = data, .microbatch = 2, .split = "dynamic"})));
    Seconds best{1e9};
    for (int first = 0; first <= 8; ++first) {
      const std::string split = "[" + std::to_string(first) + ", " + std::to_string(8 - first) + "]";
      best = std::min(best, step_of(predict_by_path(plan_of({.data = data, .microbatch = 2, .split = split}))));
    }
    CHECK(dynamic == best);
  }
}

TEST_CASE("impossible data degrees by stage are refused with their place and a hint") {
  const auto refused = [](const Case& c) { return message_for(text_of(c)); };
  CHECK(
      refused({.data = "{by_stage: [3, 2]}"}) ==
      "scenario.yaml:4:61: a microbatch of 3 sequences (1 on each of 3 replicas) does not divide among the 2 replicas "
      "of pipeline rank 1\n  hint: microbatch: 2, or a multiple of it");
  CHECK_THAT(refused({.data = "{by_stage: [2, 1, 1]}"}),
             ContainsSubstring("3 data degrees for a pipeline of 2 ranks\n  hint: pipeline: 3"));
  CHECK_THAT(refused({.data = "{by_stage: [2, 1], degree: 2}"}), ContainsSubstring("leave one of them out"));
  CHECK_THAT(refused({.data = "{by_stage: [0, 1]}"}), ContainsSubstring("by_stage"));
  CHECK_THAT(refused({.data = "{by_stage: []}"}), ContainsSubstring("4:61: the list is empty"));
  CHECK_THAT(refused({.data = "{by_stage: [8, 1]}"}), ContainsSubstring("pp2·dp8-1 needs 9 ranks, the cluster has 8"));
  CHECK_THAT(message_for("model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*4\"}\n"
                         "layout: {order: [pipeline, data], data: {by_stage: [2, 1]}}\n"),
             ContainsSubstring("must end with 'pipeline'"));
  CHECK_THAT(message_for("model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*4\"}\n"
                         "layout: {tensor: auto, data: {by_stage: [2, 1]}}\n"),
             ContainsSubstring("no other of its degrees, nor its order, can be open"));
  const auto not_built = [](const Case& c) { return problem_of([&] { (void)plan_of(c); }); };
  CHECK_THAT(not_built({.schedule = "zb-auto"}), ContainsSubstring("made for times"));
  CHECK_THAT(not_built({.schedule = "chimera"}), ContainsSubstring("two replicas"));
  CHECK_THAT(not_built({.data = "{by_stage: [2, 1, 1, 1]}", .pipeline = 4, .schedule = "bpipe"}),
             ContainsSubstring("evicts"));
  CHECK_THAT(not_built({.tied = "true"}), ContainsSubstring("tied"));
}

// A frozen table has no gradient that two stages would have to add up.
TEST_CASE(
    "a tied table stands in the way of degrees by stage only where it is trained, and why there are none is said") {
  const auto scenario_with = [](const std::string& tied, const std::string& training, const std::string& layout,
                                int ranks) {
    return read_text(
        "model: {vocabulary: 1024, hidden: 1024, heads: 16, ffn: 4096, layers: \"full/dense*4\", tied_embeddings: " +
        tied + "}\ncluster: {machine: dgx-a100, ranks: " + std::to_string(ranks) +
        "}\ntraining: {sequence: 128, precision: bf16, " + training + "}\nlayout: " + layout + "\nschedule: 1f1b\n");
  };
  const std::string open = "{pipeline: auto, data: {by_stage: auto}}";
  const std::string batch = "global_batch: 12, microbatch: 1";
  const auto by_stage = [](const Scenario& scenario) {
    return std::ranges::count_if(scenario.layouts, has_stage_data);
  };
  const Scenario untied = scenario_with("false", batch, open, 4);
  CHECK(by_stage(untied) > 0);
  const Scenario tuned = scenario_with("true", batch + ", lora: {rank: 4}", open, 4);
  CHECK(by_stage(tuned) == by_stage(untied));
  const auto layout = std::ranges::find_if(tuned.layouts, has_stage_data);
  REQUIRE(layout != tuned.layouts.end());
  CHECK(weigh_candidate(tuned, {1, tuned.schedules.front(), tuned.splits.front(), *layout}, predict_by_path).built);
  const Scenario trained = scenario_with("true", batch, open, 4);
  CHECK(by_stage(trained) == 0);
  CHECK_THAT(why_no_stage_data(trained), ContainsSubstring("tied_embeddings: false"));
  const Scenario few = scenario_with("false", batch, open, 2);
  CHECK(by_stage(few) == 0);
  CHECK_THAT(why_no_stage_data(few), ContainsSubstring("at least three"));
}

TEST_CASE("faults of machines and links are refused for data degrees by stage") {
  const Plan plan = plan_of(Case{});
  const auto message_of = [&](const std::string& text) {
    return problem_of([&] { (void)read_what_if(YamlValue::parse("- name: it\n  " + text, "what-if.yaml"), plan); });
  };
  CHECK_THAT(message_of("link: {rank: 0, factor: 0.5}\n"), ContainsSubstring("not told apart yet"));
  CHECK_THAT(message_of("straggler: {machine: 0, slower: 2}\n"), ContainsSubstring("not told apart yet"));
  CHECK(message_of("straggler: {rank: 0, slower: 2}\n") == "no error");
}
