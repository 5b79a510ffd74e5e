// A vocabulary divided over the pipeline in plans: what each rank holds, receives and takes, against counts of the
// model and closed forms; and what cannot be planned with it.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/graph/memory.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"
#include "tests/common/plan/plan_files.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr double hidden_state_bytes = 512.0 * 1024 * 2;  // bytes of a microbatch's hidden states
constexpr double statistics = 512.0 * 3 * 4;             // of its tokens, in fp32
constexpr std::int64_t table = 1024 * 1024;              // elements of the head's weights, and of the embedding's

std::int64_t parameters_of(const Plan& plan, int rank) {
  std::int64_t sum = 0;
  for (const int stage : stages_of_rank(plan.schedule, rank)) {
    sum += plan.costs.stages[static_cast<std::size_t>(stage)].parameters;
  }
  return sum;
}

Scenario scenario_with(const std::string& layout, const std::string& rest = "schedule: 1f1b\n",
                       const std::string& model = "vocabulary: 512") {
  return read_text("model: {" + model +
                   ", hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*8\"}\n"
                   "cluster: {machine: dgx-h100, nodes: 2, ranks: 8}\n"
                   "training: {sequence: 64, global_batch: 32, microbatch: 1}\nlayout: {" +
                   layout + "}\n" + rest);
}

std::string refusal(const Scenario& scenario) {
  try {
    (void)make_plan(scenario, only_choice(scenario));
  } catch (const InputError& error) {
    return error.where() + ": " + error.problem();
  }
  return "none";
}

Seconds step_of(const Plan& plan) { return median_step(predict_by_path(plan)).duration; }

}  // namespace

TEST_CASE(
    "vocabulary over the pipeline: the ranks hold the whole model between them, each an equal part of the tables") {
  for (const bool tied : {false, true}) {
    for (const int barriers : {1, 2}) {
      const LayoutCase c{.pipeline = 4, .tied = tied};
      LayoutCase divided = c;
      divided.vocabulary_barriers = barriers;
      const Plan whole = plumb::testing::plan_of(c);
      const Plan plan = plumb::testing::plan_of(divided);
      std::int64_t sum = 0;
      for (int rank = 0; rank < 4; ++rank) sum += parameters_of(plan, rank);
      CAPTURE(tied, barriers);
      CHECK(sum == count_parameters(plan.model).total);
      const std::int64_t tables = tied ? table : 2 * table;
      const std::int64_t layers_between = parameters_of(whole, 1);  // of a rank that has neither end
      CHECK(parameters_of(plan, 0) == layers_between + tables / 4);
      CHECK(parameters_of(plan, 1) == layers_between + tables / 4);
      CHECK(parameters_of(plan, 3) == layers_between + tables / 4 + 1024);  // and the final norm
    }
  }
}

TEST_CASE("vocabulary over the pipeline: received bytes are those of the ring that passes each rank") {
  for (const int barriers : {1, 2}) {
    const LayoutCase c{.pipeline = 4, .vocabulary_barriers = barriers};
    const Timeline predicted = predict_by_path(plumb::testing::plan_of(c));
    const double softmax = 2 * 3.0 / 4 * statistics;
    // Messages of neighbours; of the head a broadcast from the last rank and a sum to it, which begins on the first; of
    // the embedding a sum to the first, which begins on the second, and a broadcast from it.
    const std::array<double, 4> moved{1 + 1 + 1, 2 + 2 + 1, 2 + 2 + 2, 1 + 1 + 2};
    for (std::size_t rank = 0; rank < 4; ++rank) {
      CAPTURE(barriers, rank);
      CHECK(static_cast<double>(predicted.ranks[rank].received_bytes.value) ==
            16 * (moved[rank] * hidden_state_bytes + softmax));
      CHECK(predicted.ranks[rank].by_axis.value().pipeline == predicted.ranks[rank].received_bytes);
    }
  }
}

// Traffic of t ranks for each microbatch, in parts of hidden_state_bytes, f = (t−1)/t: the head's logits of gathered
// tokens (sp), its statistics, the gradient of its input, in W (sp) its input again; with one barrier the targets'
// rows; and what the embedding looks up, in W (sp) its gradient. Rank 1 of the pipeline has neither end of a model that
// is whole.
TEST_CASE("vocabulary over the pipeline: beside tensor ranks each has its part of the tables, and their moves") {
  for (const int tensor : {2, 4}) {
    for (const bool sp : {false, true}) {
      for (const int barriers : {1, 2}) {
        for (const bool tied : {false, true}) {
          const LayoutCase c{.nodes = 2,
                             .pipeline = 4,
                             .tensor = tensor,
                             .sequence_parallel = sp,
                             .tied = tied,
                             .vocabulary_barriers = barriers};
          const Plan plan = plumb::testing::plan_of(c);
          LayoutCase whole_vocabulary = c;
          whole_vocabulary.vocabulary_barriers = 0;
          const Plan whole = plumb::testing::plan_of(whole_vocabulary);
          CAPTURE(tensor, sp, barriers, tied);
          CHECK(parameters_of(plan, 1) == parameters_of(whole, 1) + (tied ? 1 : 2) * table / (4 * tensor));
          const double f = 1 - 1.0 / tensor;
          const double own = sp ? hidden_state_bytes / tensor : hidden_state_bytes;
          const double times = sp ? 1 : 2;  // of a gather or a reduce-scatter, or of an all-reduce
          const double of_head =
              times * f * hidden_state_bytes * (1 + (barriers == 1 ? 1 : 0)) + (sp ? 2 * f * hidden_state_bytes : 0);
          const double of_embedding = times * f * hidden_state_bytes + (sp ? f * hidden_state_bytes : 0);
          const Timeline predicted = predict_by_path(plan);
          const AxisTraffic with = predicted.ranks[1].by_axis.value();
          const AxisTraffic without = predict_by_path(whole).ranks[1].by_axis.value();
          CHECK(static_cast<double>(with.tensor.value - without.tensor.value) ==
                16 * (of_head + of_embedding + 2 * f * statistics));
          CHECK(static_cast<double>(with.pipeline.value - without.pipeline.value) ==
                16 * ((1 + 1 + 1) * own + 2 * 3.0 / 4 * statistics));
          // Kept of the head: what it reads, the logarithms of its softmax in fp32 with a number of each target, and
          // rows.
          const double logits = 512 * (4.0 * 1024 / 4 + 8) / tensor;
          CHECK(static_cast<double>(plan.costs.stages[4].kept_bytes.value) == own + logits + (barriers == 1 ? own : 0));
        }
      }
    }
  }
}

TEST_CASE("vocabulary over the pipeline: what a rank took for its parts and messages is free at the end of the step") {
  struct Tensor {
    int degree = 1;
    bool sequence_parallel = false;
    const char* software = "plumb";
  };
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const char* recompute : {"none", "full"}) {
      for (const auto& [barriers, tensor] : std::vector<std::pair<int, Tensor>>{
               {1, {}}, {2, {}}, {1, {2, true}}, {2, {2}}, {2, {2, false, "megatron-2022"}}}) {
        const LayoutCase c{.pipeline = 4,
                           .tensor = tensor.degree,
                           .sequence_parallel = tensor.sequence_parallel,
                           .schedule = schedule,
                           .software = tensor.software,
                           .recompute = recompute,
                           .vocabulary_barriers = barriers};
        const Plan plan = plumb::testing::plan_of(c);
        const Schedule lowered = lowered_schedule(plan);
        const ScheduleGraph graph = build_graph(lowered, plan.costs);
        CAPTURE(schedule, recompute, barriers);
        for (const RankMemory& memory : memory_over_time(graph, evaluate(graph), plan.costs, lowered)) {
          const Bytes states = memory.parameter_bytes + memory.gradient_bytes + memory.optimizer_bytes;
          CHECK(memory.over_time.back().bytes.value == states.value);
          CHECK(std::ranges::min_element(memory.over_time, {}, &MemoryPoint::bytes)->bytes.value == states.value);
        }
      }
    }
  }
}

TEST_CASE("vocabulary over the pipeline: the logits of one microbatch at a time") {
  for (const int barriers : {1, 2}) {
    const Schedule schedule =
        generate_schedule("1f1b", {.ranks = 4, .microbatches = 12, .vocabulary_barriers = barriers});
    PipelineCosts costs = even_costs(12, {.forward = {4}, .input_gradient = {4}, .weight_gradient = {4}});
    costs.vocabulary.parts = 4;
    for (std::size_t part = 4; part < 8; ++part) {
      costs.stages[part].kept_bytes = {1000};
      costs.stages[part].kept_for_weight_bytes = {1000};
    }
    const Schedule lowered = lower(schedule, {});
    const ScheduleGraph graph = build_graph(lowered, costs);
    for (const RankMemory& memory : memory_over_time(graph, evaluate(graph), costs, lowered)) {
      CHECK(memory.peak_bytes == Bytes{1000});
    }
  }
}

TEST_CASE("vocabulary over the pipeline: a plan is read as it was written, and says so if it was edited") {
  const Plan plan = plumb::testing::plan_of({.pipeline = 4, .tied = true, .vocabulary_barriers = 2});
  const TemporaryFolder folder;
  const std::string text = to_json(plan);
  CHECK(read_plan(folder.write("plan.json", text)) == plan);
  CHECK(plan.costs == predicted_costs(plan));
  std::string edited = text;
  const std::string key = "\"vocabulary_barriers\": 2";
  edited.replace(edited.find(key), key.size(), "\"vocabulary_barriers\": 1");
  CHECK_THROWS_WITH(read_plan(folder.write("plan.json", edited)), ContainsSubstring("barriers of a vocabulary"));
  for (const std::string sent : {"\"inside_bytes\": ", "\"outside_bytes\": "}) {
    std::string negative = text;
    negative.insert(negative.find(sent) + sent.size(), "-1");
    CHECK_THROWS_WITH(read_plan(folder.write("plan.json", negative)), ContainsSubstring("expected a number from zero"));
  }
  const auto refused = [&](const std::string& part, const std::string& field, const std::string& put) {
    std::string other = text;
    const std::size_t at = other.find("\"" + field + "\": ", other.find("\"" + part + "\": ")) + field.size() + 4;
    other.replace(at, other.find_first_of(",}\n", at) - at, put);
    CHECK_THROWS_WITH(read_plan(folder.write("plan.json", other)), ContainsSubstring("costs.vocabulary." + part));
  };
  for (const char* part : {"head_broadcast", "statistics", "head_sum", "embedding_sum", "embedding_broadcast"}) {
    refused(part, "bytes", "0");
    refused(part, "bytes", "1000000000000000000");
    refused(part, "outside_bytes", "1e300");
  }
  std::string stopped = text;
  const std::string rate = "\"inside_bytes_per_s\": ";
  const std::size_t at = stopped.find(rate, stopped.find("\"embedding_broadcast\"")) + rate.size();
  stopped.replace(at, stopped.find_first_of(",}\n", at) - at, "0");
  CHECK_THROWS_WITH(read_plan(folder.write("plan.json", stopped)), ContainsSubstring("expected a bandwidth"));
}

TEST_CASE("vocabulary over the pipeline: all ranks of a layout take what the pipeline's take") {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const int barriers : {1, 2}) {
      for (const auto& [sharding, tensor, sp] :
           {std::tuple("none", 1, false), std::tuple("zero1", 1, false), std::tuple("none", 2, false),
            std::tuple("zero1", 2, true), std::tuple("none", 4, true)}) {
        const LayoutCase c{.nodes = 2,
                           .pipeline = 4,
                           .tensor = tensor,
                           .data = 4 / tensor,
                           .sequence_parallel = sp,
                           .schedule = schedule,
                           .sharding = tensor < 4 ? sharding : "none",
                           .vocabulary_barriers = barriers};
        const Plan plan = plumb::testing::plan_of(c);
        const auto path = [](const ScheduleGraph& graph) { return evaluate(graph); };
        const Timeline unfolded = unfolded_timeline(plan, path_engine, path, {});
        CAPTURE(schedule, barriers, sharding, tensor, sp);
        CHECK(median_step(unfolded).duration.value == Approx(step_of(plan).value).epsilon(1e-9));
        const Timeline folded = predict_by_path(plan);
        for (std::size_t rank = 0; rank < unfolded.ranks.size(); ++rank) {  // tensor and data innermost
          CHECK(unfolded.ranks[rank].received_bytes == folded.ranks[rank / 4].received_bytes);
        }
      }
    }
  }
}

TEST_CASE("vocabulary over the pipeline: the dynamic split gives the last rank as many layers as others") {
  const std::string model = "vocabulary: 65536";
  const auto plan = [&](const std::string& layout) {
    const Scenario scenario = scenario_with(layout, "schedule: 1f1b\nsplit: dynamic\n", model);
    return make_plan(scenario, only_choice(scenario));
  };
  const Plan whole = plan("pipeline: 8");
  const Plan divided = plan("pipeline: 8, vocabulary: {}");
  CHECK(whole.split.layers.back() == 0);  // a head of 65536 tokens is heavier than all eight layers of 64 features
  CHECK(divided.split.layers == std::vector<int>(8, 1));
  CHECK(step_of(divided).value < step_of(whole).value);
}

TEST_CASE("vocabulary over the pipeline: what cannot be planned is refused by name, at its line and key") {
  const std::string divided = "vocabulary: {over: pipeline, barriers: 1}";
  const auto told = [&](const std::string& layout, const std::string& rest = "schedule: 1f1b\n",
                        const std::string& model = "vocabulary: 512") -> std::string {
    try {
      return refusal(scenario_with(layout + ", " + divided, rest, model));
    } catch (const InputError& error) {
      return error.what();
    }
  };
  const auto at_vocabulary = [](const std::string& layout, const std::string& problem) {
    return ContainsSubstring(
        "scenario.yaml:4:" + std::to_string(std::string("layout: {" + layout + ", vocabulary: ").size() + 1) + ": " +
        problem);
  };
  const std::string panels = "pipeline: 2, tensor: {degree: 4, kind: 2d}";
  CHECK_THAT(told(panels),
             at_vocabulary(panels, "a vocabulary over the pipeline cannot be planned yet with a 2d tensor layout"));
  const std::string pieces = "pipeline: 4, tensor: {degree: 2, sequence_parallel: true, asynchronous: true}";
  CHECK_THAT(told(pieces), at_vocabulary(pieces,
                                         "a vocabulary over the pipeline cannot be planned yet with "
                                         "asynchronous tensor parallelism"));
  const std::string parallel = "pipeline: 4, tensor: {degree: 2}";
  CHECK(told(parallel) == "none");
  CHECK_THAT(
      told(parallel, "schedule: 1f1b\n", "vocabulary: 500"),
      at_vocabulary(parallel, "a vocabulary of 500 does not divide over 4 pipeline ranks of 2 tensor ranks each"));
  const std::string sharded = "pipeline: 4, data: {degree: 2, sharding: fsdp}";
  CHECK_THAT(told(sharded),
             at_vocabulary(sharded, "a vocabulary over the pipeline cannot be planned yet with sharding fsdp"));
  CHECK_THAT(told("pipeline: 8", "schedule: 1f1b\n", "vocabulary: 500"),
             at_vocabulary("pipeline: 8", "a vocabulary of 500 does not divide over 8 pipeline ranks"));
  CHECK_THAT(
      told("pipeline: 8", "schedule: gpipe\n"),
      ContainsSubstring(
          "scenario.yaml:5:11: the whole head of gpipe cannot be planned yet with a vocabulary over the pipeline"));
  const std::string alone = "pipeline: 1, data: {degree: 8}";
  CHECK_THAT(told(alone), at_vocabulary(alone, "a vocabulary is divided over at least two ranks"));
  // Of several schedules planning tells which of them cannot.
  const Scenario several = scenario_with("pipeline: 8, " + divided, "schedule: [gpipe, 1f1b]\n");
  CHECK_THAT(refusal(several),
             ContainsSubstring("the whole head of gpipe cannot be planned yet with a vocabulary over the pipeline"));
}
