// The planner's choice is the best of all its candidates.
#include "common/planner/planner.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <sstream>

#include "common/block_cost/block_costs.hpp"
#include "common/graph/memory.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/common/plan/steps.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

const std::string two_ranks = "cluster: {machine: local-cpu, ranks: 2, cores: 2}\n";

Seconds by_hand(const Plan& plan) {
  const ScheduleGraph graph = build_graph(lowered_schedule(plan), plan.costs);
  return evaluate(graph).makespan;
}

Bytes peak_by_hand(const Plan& plan) {
  Bytes peak;
  for (const RankMemory& memory : memory_by_path(plan)) peak = std::max(peak, memory.peak_bytes);
  return peak;
}

}  // namespace

TEST_CASE("the dynamic split of a plan of two stages has the shortest step of all splits") {
  const Scenario scenario = read_text(scenario_text(two_ranks + "training: {sequence: 32, global_batch: 8}\n"));
  const Plan plan = make_plan(scenario, {.microbatch = 1});
  Seconds best{1e9};
  for (int first = 0; first <= 8; ++first) {
    best = std::min(best, by_hand(make_plan(scenario, {.microbatch = 1, .split = counts_of({{first, 8 - first}})})));
  }
  CHECK(by_hand(plan) == best);
  const Plan uniform = make_plan(scenario, {.microbatch = 1, .split = {.method = SplitMethod::uniform}});
  CHECK(uniform.split == Split{{4, 4}});
  CHECK(by_hand(plan) < by_hand(uniform));
}

// Made first, a schedule of a million stages and what each of its ranks holds would fill all memory there is.
TEST_CASE("a layout with more stages than layers is refused before its schedule is made") {
  const Scenario scenario = read_text(scenario_text(two_ranks + "training: {sequence: 32, global_batch: 8}\n"));
  PlanChoice choice{.microbatch = 1, .layout = scenario.layout};
  choice.layout->pipeline = 1 << 20;
  for (const SplitMethod method : {SplitMethod::uniform, SplitMethod::dynamic}) {
    choice.split.method = method;
    CHECK_THROWS_WITH(make_plan(scenario, choice), ContainsSubstring("1048576 stages"));
  }
}

TEST_CASE("all candidates are weighed, uniform among them, and the best is first") {
  const Scenario scenario = read_text(scenario_text(
      two_ranks + "training: {sequence: 32, global_batch: 8, microbatch: auto}\nschedule: auto\nsplit: dynamic\n"));
  // Microbatches 1, 2, 4, 8; dynamic and uniform split.
  const int candidates = 4 * static_cast<int>(scenario.schedules.size()) * 2;
  int calls = 0;
  const PlanningResult result = plan_scenario(scenario, predict_by_path, [&](int done, int total, Seconds) {
    ++calls;
    CHECK(done == calls);
    CHECK(total == candidates);
  });
  CHECK(calls == candidates);
  REQUIRE(static_cast<int>(result.candidates.size()) == candidates);
  CHECK(result.evaluated + result.pruned == candidates);
  CHECK(result.simulated == 0);

  Seconds best{1e9};
  int uniform = 0;
  for (const Candidate& candidate : result.candidates) {
    uniform += candidate.choice.split.method == SplitMethod::uniform ? 1 : 0;
    if (!candidate.built) {
      CHECK_FALSE(candidate.reason.empty());
      continue;
    }
    const Plan plan = make_plan(scenario, candidate.choice);
    CHECK(candidate.plan == plan);
    CHECK(candidate.iteration == by_hand(plan));
    CHECK(candidate.peak_bytes == peak_by_hand(plan));
    CHECK(candidate.fits == (candidate.peak_bytes <= scenario.cluster.machine.device.memory.value));
    if (candidate.fits) best = std::min(best, candidate.iteration);
  }
  CHECK(uniform == candidates / 2);
  CHECK(best_fitting(result, scenario).iteration == best);
  CHECK(&best_fitting(result, scenario) == &result.candidates.front());
}

TEST_CASE("the uniform split is weighed to compare, and chosen only where the scenario names it") {
  const std::string rest = "training: {sequence: 32, global_batch: 8}\n";
  const Scenario uneven = read_text(scenario_text(two_ranks + rest + "split: [[1, 7], [2, 6]]\n"));
  const PlanningResult result = plan_scenario(uneven, predict_by_path);
  REQUIRE(result.candidates.size() == 3);
  CHECK(result.candidates.front().choice.split.method == SplitMethod::uniform);  // [4, 4] is faster
  CHECK_FALSE(result.candidates.front().own);
  CHECK(best_fitting(result, uneven).plan.split == Split{{2, 6}});

  const Scenario open = read_text(scenario_text(two_ranks + rest + "split: [uniform, [1, 7]]\n"));
  CHECK(best_fitting(plan_scenario(open, predict_by_path), open).plan.split == Split{{4, 4}});
}

TEST_CASE("where none of the scenario's splits fits, one that does is proposed and not taken") {
  const std::string training = "training: {sequence: 32, global_batch: 8}\nsplit: [1, 7]\n";
  const Scenario roomy = read_text(scenario_text(two_ranks + training));
  const PlanningResult weighed = plan_scenario(roomy, predict_by_path);
  Bytes uniform;
  for (const Candidate& candidate : weighed.candidates) {
    if (!candidate.own) uniform = candidate.peak_bytes;
  }
  const Scenario tight = read_text(
      scenario_text("cluster: {machine: local-cpu, ranks: 2, cores: 2, " + memory_line(uniform) + "}\n" + training));
  const PlanningResult result = plan_scenario(tight, predict_by_path);
  CHECK(result.candidates.front().fits);
  try {
    (void)best_fitting(result, tight);
    FAIL("[1, 7] does not fit");
  } catch (const InputError& error) {
    CHECK_THAT(error.hint(), ContainsSubstring("split: uniform (") || ContainsSubstring("split: dynamic ("));
  }
}

TEST_CASE("equally fast candidates are ranked by memory") {
  // GPipe and 1F1B have the same longest path where messages take no time beside compute (arXiv 2104.04473, 2.2).
  const Scenario scenario = read_text(
      scenario_text("cluster: {machine: local-cpu, ranks: 2, cores: 2}\ntraining: {sequence: 32, global_batch: 8}\n"
                    "schedule: [gpipe, 1f1b]\nsplit: [4, 4]\n"));
  const PlanningResult result = plan_scenario(scenario, [](const Plan& plan) {
    Plan free = plan;
    free.costs.inside = {.latency = {0}, .bandwidth = {std::numeric_limits<double>::infinity()}};
    for (ComputeCost& stage : free.costs.stages) stage.forward = stage.input_gradient = stage.weight_gradient = {1};
    return predict_by_path(free);
  });
  const Candidate& best = best_fitting(result, scenario);
  CHECK(best.choice.schedule.name == "1f1b");
  for (const Candidate& candidate : result.candidates) {
    if (candidate.own) CHECK(candidate.iteration.value == Approx(best.iteration.value));
  }
}

TEST_CASE("candidates that cannot be built come last, with the reason") {
  const Scenario scenario =
      read_text(scenario_text(two_ranks + "training: {sequence: 32, global_batch: 8}\nsplit: [[3, 5], [2, 2, 2, 2]]\n"
                                          "schedule: [1f1b, {name: interleaved-1f1b, chunks: 2}]\n"));
  const PlanningResult result = plan_scenario(scenario, predict_by_path);
  REQUIRE(result.candidates.size() == 6);  // each schedule with both lists and uniform
  CHECK(result.pruned == 2);
  CHECK(result.candidates[3].built);
  CHECK_FALSE(result.candidates[4].built);
  CHECK_FALSE(result.candidates[5].built);
  CHECK_THAT(result.candidates[4].reason, ContainsSubstring("4") && ContainsSubstring("2"));
}

TEST_CASE("a step of more actions than any memory holds is refused before it is made") {
  const Scenario scenario =
      read_text(scenario_text(two_ranks + "training: {sequence: 32, global_batch: 2147483648}\n"));
  CHECK_THROWS_WITH(make_plan(scenario, {.microbatch = 1}), ContainsSubstring("2147483648 microbatches on 2 stages"));
}

TEST_CASE("images are planned like text: a sequence is an image's patches and its class token") {
  const Scenario scenario = read_text(
      "model:\n  patches: {image: 32, patch: 4, classes: 10}\n  hidden: 48\n  heads: 4\n  ffn: 96\n"
      "  layers: full/dense*6\n" +
      two_ranks + "training: {global_batch: 8}\nschedule: {name: zb-v, chunks: 2}\n");
  CHECK(scenario.training.sequence == 65);
  const Plan plan = make_plan(scenario, {.microbatch = 2, .schedule = scenario.schedules.front()});
  REQUIRE(plan.boundary.tensors.size() == 1);
  const std::vector<NamedDimension> dimensions = {
      {.name = "microbatch", .size = 2}, {.name = "sequence", .size = 65}, {.name = "hidden", .size = 48}};
  CHECK(plan.boundary.tensors[0].dimensions == dimensions);
  const TemporaryFolder folder;
  CHECK(read_plan(folder.write("plan.json", to_json(plan))) == plan);
  PlanChoice sliced{.schedule = {.name = "seq-1f1b", .slices = 5}};
  CHECK_THROWS_WITH(make_plan(scenario, sliced), ContainsSubstring("a slice would need later slices"));
  sliced.microbatch = 2;
  sliced.schedule.given = generate_schedule("seq-1f1b", {.ranks = 2, .microbatches = 4, .slices = 5});  // of a file
  CHECK_THROWS_WITH(make_plan(scenario, sliced), ContainsSubstring("a slice would need later slices"));
}

TEST_CASE("a prediction holds every action once, its messages and the ranks' memory") {
  const Scenario scenario = read_text(scenario_text(two_ranks + "training: {sequence: 32, global_batch: 8}\n"));
  const Plan plan = make_plan(scenario, {.microbatch = 1});
  const Timeline timeline = predict_by_path(plan);
  CHECK(timeline.producer == "path");
  CHECK(timeline.tokens_per_step == 8 * 32);
  CHECK(timeline.plan_digest == plan_digest(plan));
  CHECK(timeline.schedule == lowered_schedule(plan));
  REQUIRE(timeline.steps.size() == 1);
  const std::vector<Event>& events = timeline.steps.front().events;
  // Per microbatch F and B on both stages, a message each way; a step of the optimizer on each rank.
  CHECK(events.size() == 8 * (4 + 2) + 2);
  Seconds last;
  for (const Event& event : events) {
    CHECK(event.start <= event.end);
    CHECK(event.waited >= Seconds{});
    CHECK(event.waited.value <= (event.end - event.start).value + 1e-12);
    last = std::max(last, event.end);
  }
  CHECK(last == timeline.steps.front().duration);
  REQUIRE(timeline.ranks.size() == 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const RankSummary& summary = timeline.ranks[rank];
    CHECK(summary.received_bytes == Bytes{8 * 32 * 64 * 4});  // eight boundaries
    CHECK(summary.parameter_bytes == plan.costs.stages[rank].parameter_bytes);
    CHECK(summary.optimizer_bytes == plan.costs.stages[rank].optimizer_bytes);
    CHECK(summary.peak_bytes > summary.parameter_bytes + summary.gradient_bytes + summary.optimizer_bytes);
  }
}

TEST_CASE("the second rank's first message is waited for, as long as the first rank computes and sends") {
  const Scenario scenario = read_text(scenario_text(two_ranks + "training: {sequence: 32, global_batch: 2}\n"));
  const Plan plan = make_plan(scenario, {.microbatch = 1});
  const Timeline timeline = predict_by_path(plan);
  const auto& events = timeline.steps.front().events;
  const auto first = std::find_if(events.begin(), events.end(), [](const Event& event) {
    return event.action == Action{ActionKind::receive_forward, 1, 0};
  });
  REQUIRE(first != events.end());
  const Seconds hop = plan.costs.inside.latency + plan.costs.boundary_bytes / plan.costs.inside.bandwidth;
  CHECK(first->start == plan.costs.stages[0].forward);  // handed over
  CHECK((first->end - first->start).value == Approx(hop.value));
  CHECK(first->waited.value == Approx(hop.value));  // the rank has nothing else to do
  CHECK(first->peer == 0);
}

TEST_CASE("the gradients of two replicas are summed by both their ranks, each stage once on each") {
  const char* name = GENERATE("chimera", "dualpipe");
  const Scenario scenario =
      read_text(scenario_text("cluster: {machine: local-cpu, ranks: 4}\n"
                              "training: {sequence: 32, global_batch: 8}\n"));
  const Plan plan = make_plan(scenario, {.microbatch = 1, .schedule = {.name = name}});
  const Timeline timeline = predict_by_path(plan);
  std::vector<std::vector<int>> summed(4);
  for (const Event& event : timeline.steps.front().events) {
    if (event.action.kind != ActionKind::reduce_gradient) continue;
    summed[static_cast<std::size_t>(event.rank)].push_back(event.action.stage);
    CHECK(event.peer == 3 - event.rank);
  }
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<int>& stages = summed[static_cast<std::size_t>(rank)];
    std::ranges::sort(stages);
    CHECK(stages == stages_of_rank(plan.schedule, rank));
  }
}

TEST_CASE("tied embeddings are exchanged between the first and the last rank, both with their own action") {
  Scenario scenario = read_text(scenario_text(two_ranks + "training: {sequence: 32, global_batch: 2}\n"));
  scenario.model.tied_embeddings = true;
  const Plan plan = make_plan(scenario, {.microbatch = 1});
  const Timeline timeline = predict_by_path(plan);
  const Bytes table{512 * 64 * 4};
  CHECK(plan.costs.tied_bytes == table);
  std::vector<Event> reductions;
  for (const Event& event : timeline.steps.front().events) {
    if (event.action.kind == ActionKind::reduce_tied) reductions.push_back(event);
  }
  REQUIRE(reductions.size() == 2);
  CHECK(reductions[0].rank == 0);
  CHECK(reductions[0].action.stage == 0);
  CHECK(reductions[1].rank == 1);
  CHECK(reductions[1].action.stage == 1);
  CHECK(reductions[1].start == reductions[0].start);
  CHECK(timeline.ranks[0].received_bytes == table + Bytes{2 * 32 * 64 * 4});
  // On one rank no exchange, but two stages still hold two tables.
  Scenario one_rank = scenario;
  one_rank.layout.pipeline = 1;
  one_rank.cluster.ranks = 1;
  const auto held = [&](const ScheduleChoice& schedule) {
    const Plan on_one = make_plan(one_rank, {.microbatch = 1, .schedule = schedule, .split = {SplitMethod::uniform}});
    CHECK(on_one.costs.tied_bytes == Bytes{0});
    std::int64_t parameters = 0;
    for (const ComputeCost& stage : on_one.costs.stages) parameters += stage.parameters;
    return parameters;
  };
  const std::int64_t rows = scenario.model.vocabulary * scenario.model.hidden;
  CHECK(held({.name = "interleaved-1f1b", .chunks = 2}) == held({.name = "1f1b", .chunks = 1}) + rows);
  // The last stage has the table, its gradient and its states as well.
  Scenario untied = scenario;
  untied.model.tied_embeddings = false;
  const Plan other = make_plan(untied, {.microbatch = 1, .split = {.method = SplitMethod::uniform}});
  const Plan same = make_plan(scenario, {.microbatch = 1, .split = {.method = SplitMethod::uniform}});
  CHECK(same.costs.stages[1].optimizer_bytes == other.costs.stages[1].optimizer_bytes);
}

TEST_CASE("full recompute trades a second forward for activations") {
  const std::string training = "training: {sequence: 32, global_batch: 8, microbatch: 1, recompute: ";
  const Scenario none = read_text(scenario_text(two_ranks + training + "none}\n"));
  const Scenario full = read_text(scenario_text(two_ranks + training + "full}\n"));
  const PlanChoice choice{.microbatch = 1, .schedule = {.name = "gpipe"}, .split = {.method = SplitMethod::uniform}};
  const Timeline before = predict_by_path(make_plan(none, choice));
  const Timeline after = predict_by_path(make_plan(full, choice));
  CHECK(after.steps.front().duration > before.steps.front().duration);
  CHECK(after.ranks[0].activation_bytes < before.ranks[0].activation_bytes / std::int64_t{2});
  CHECK(after.model_flops == before.model_flops);
}

TEST_CASE("the first layers of each stage are redone inside its backward") {
  const auto scenario_with = [](const std::string& recompute) {
    return read_text(
        "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*7\"}\n"
        "training: {sequence: 16, global_batch: 4, microbatch: 1, recompute: " +
        recompute + "}\ncluster: {machine: dgx-a100}\nlayout: {pipeline: 2}\nsoftware: megatron-2022\nsplit: [5, 2]\n");
  };
  const auto stages_with = [&](const std::string& recompute) {
    const Scenario scenario = scenario_with(recompute);
    return make_plan(scenario, {.microbatch = 1, .split = scenario.splits.front()}).costs.stages;
  };
  const std::vector<ComputeCost> none = stages_with("none");
  const std::vector<ComputeCost> three = stages_with("{layers: 3}");
  const ComputeCost layer = block_costs(scenario_with("none"), 1).at(1);
  const Bytes boundary{16 * 64 * 2};
  for (const auto& [stage, redone] : {std::pair{0U, 3}, std::pair{1U, 2}}) {
    CHECK((three[stage].input_gradient - none[stage].input_gradient).value ==
          Approx(layer.forward.value * redone).epsilon(1e-9));
    CHECK(none[stage].kept_bytes - three[stage].kept_bytes == (layer.kept_bytes - boundary) * redone);
    CHECK(three[stage].forward == none[stage].forward);
    CHECK(three[stage].weight_gradient == none[stage].weight_gradient);
  }
  CHECK(stages_with("{layers: 5}") == stages_with("full"));

  // A split of one's own is searched with what each of its stages redoes.
  const Scenario scenario = scenario_with("{layers: 2}");
  const Plan found = make_plan(scenario, {.microbatch = 1, .split = {.method = SplitMethod::dynamic}});
  const Seconds step = step_of(found).time;
  for (int first = 0; first <= 7; ++first) {
    const SplitChoice split = counts_of({{first, 7 - first}});
    CHECK(step.value <= step_of(make_plan(scenario, {.microbatch = 1, .split = split})).time.value * (1 + 1e-9));
  }
}

// Stages whose F is an action R of its own are refused where R has no place; single layers are redone in any backward.
TEST_CASE("schedules that cut sequences or evict redo layers, not stages, and say so") {
  for (const std::string schedule : {"{name: seq-1f1b, slices: 4}", "bpipe"}) {
    const auto peak = [&](const std::string& recompute) {
      const Scenario scenario = read_text(
          "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 256, layers: \"full/dense*8\"}\n"
          "training: {sequence: 256, global_batch: 8, microbatch: 1, recompute: " +
          recompute + "}\ncluster: {machine: dgx-a100}\nlayout: {pipeline: 4}\nschedule: " + schedule +
          "\nsplit: uniform\n");
      const Timeline timeline = predict_by_path(make_plan(scenario, only_choice(scenario)));
      return timeline.ranks[1].activation_bytes;
    };
    INFO(schedule);
    try {
      (void)peak("full");
      FAIL("a stage that is redone was planned");
    } catch (const InputError& error) {
      CHECK_THAT(error.problem(),
                 ContainsSubstring("recompute: full of whole stages cannot be planned yet with a schedule"));
      CHECK_THAT(error.hint(), ContainsSubstring("{layers: …} or {every: …}"));
    }
    CHECK(peak("{layers: 2}") < peak("{layers: 1}"));
    CHECK(peak("{layers: 1}") < peak("none"));
  }
}

// torchtitan counts the layers of a process: those of a rank, through its chunks. By hand: of 7 layers on 2 ranks with
// 2 chunks, split 2, 1, 1, 3, rank 0 has layers 0, 1, 3 and redoes 1; rank 1 has 2, 4, 5, 6 and redoes 4 and 6.
TEST_CASE("every n-th layer of a rank is redone inside its backward") {
  const auto plan_with = [](const std::string& recompute) {
    const Scenario scenario = read_text(
        "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*7\"}\n"
        "training: {sequence: 16, global_batch: 4, microbatch: 1, recompute: " +
        recompute +
        "}\ncluster: {machine: dgx-a100}\nlayout: {pipeline: 2}\nsoftware: torchtitan-2025\n"
        "schedule: {name: interleaved-1f1b, chunks: 2}\nsplit: [2, 1, 1, 3]\n");
    return make_plan(scenario, only_choice(scenario));
  };
  const Plan none = plan_with("none");
  const Plan every = plan_with("{every: 2}");
  CHECK(layers_redone_inside(every) == std::vector<bool>{false, true, false, false, true, false, true});
  const ComputeCost layer = block_costs(scenario_of(none), 1).at(1);
  const Bytes boundary{16 * 64 * 2};
  const std::array<int, 4> redone = {1, 0, 0, 2};
  for (std::size_t stage = 0; stage < redone.size(); ++stage) {
    const ComputeCost& with = every.costs.stages[stage];
    const ComputeCost& without = none.costs.stages[stage];
    CHECK((with.input_gradient - without.input_gradient).value ==
          Approx(layer.forward.value * redone[stage]).margin(1e-15));
    CHECK(without.kept_bytes - with.kept_bytes == (layer.kept_bytes - boundary) * redone[stage]);
  }
  CHECK(plan_with("{every: 1}").costs.stages == plan_with("full").costs.stages);
  const TemporaryFolder folder;
  CHECK(read_plan(folder.write("plan.json", to_json(every))).training == every.training);
}

TEST_CASE("a dynamic split obeys memory where uniform does not") {
  // Experts are cheap in time and heavy in bytes: eight of them in the last four layers.
  const std::string text = R"(model:
  vocabulary: 64
  hidden: 64
  heads: 4
  ffn: 64
  experts: {count: 32, top_k: 1, ffn: 64}
  layers: "full/dense*8, full/moe*4"
training: {sequence: 16, global_batch: 4}
split: dynamic
)";
  const Scenario roomy = read_text(text + two_ranks);
  const Plan uniform = make_plan(roomy, {.microbatch = 1, .split = {.method = SplitMethod::uniform}});
  const Bytes memory = peak_by_hand(uniform) - Bytes{1 << 20};
  const Scenario tight =
      read_text(text + "cluster: {machine: local-cpu, ranks: 2, cores: 2, " + memory_line(memory) + "}\n");
  const PlanningResult result = plan_scenario(tight, predict_by_path);
  const Candidate& best = best_fitting(result, tight);
  CHECK(best.choice.split.method == SplitMethod::dynamic);
  CHECK(best.peak_bytes <= memory);
  CHECK_FALSE(result.candidates.back().fits);
}
