// Plans of ZeRO++ (arXiv 2306.10209): what ranks receive and hold by the formulas of its section 4, what goes between
// machines, and that all ranks take the time of those that stand for them.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "common/cost/shard_moves.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/unfolded.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/plan_files.hpp"
#include "tests/common/plan/sharded_plans.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr double int8_bytes = 1 + 4.0 / 128;  // bytes of an element, with its part of a scale
constexpr double int4_bytes = 1.0 / 2 + 4.0 / 128;

Plan plan_of_shape(int hidden, int layers, int data, const std::string& sharding, const std::string& recompute) {
  const auto text = [](int number) { return std::to_string(number); };
  const Scenario scenario = read_text(
      "model: {vocabulary: 512, hidden: " + text(hidden) + ", heads: 2, ffn: " + text(3 * hidden) +
      ", layers: \"full/dense*" + text(layers) + "\"}\ncluster: {machine: dgx-a100, nodes: 4, ranks: " + text(data) +
      "}\ntraining: {sequence: 128, precision: bf16, global_batch: " + text(microbatches * data) +
      ", recompute: " + recompute + "}\nlayout: {pipeline: 1, data: {degree: " + text(data) +
      ", sharding: " + sharding + "}}\nsplit: uniform\n");
  return make_plan(scenario, only_choice(scenario));
}

double all_but_own(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

// Of what travels as so many bits, all parts: of each weight each rank has its own, begun with a block of its own.
double in_blocks(const Parameter& parameter, int ranks, int bits) {
  std::int64_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t part = elements(parameter) / ranks + (rank < elements(parameter) % ranks ? 1 : 0);
    bytes += (part * bits + 7) / 8 + (part + 127) / 128 * 4;
  }
  return static_cast<double>(bytes);
}

std::vector<Parameter> parameters_of_block(const Model& model, int block) {
  const int layers = static_cast<int>(model.layers.size());
  if (block == 0) return embedding_parameters(model);
  if (block <= layers) return layer_parameters(model, static_cast<std::size_t>(block - 1));
  std::vector<Parameter> head = final_norm_parameters(model);
  for (const Parameter& parameter : head_parameters(model)) head.push_back(parameter);
  return head;
}

// Of a rank's weights, of which a pipeline of one chunk each has a stage.
double blocks_of_rank(const Plan& plan, int rank, int bits) {
  const BlockRange range = blocks_of_stage(plan.split, rank);
  double sum = 0;
  for (int block = range.first; block < range.last; ++block) {
    for (const Parameter& parameter : parameters_of_block(plan.model, block)) {
      sum += in_blocks(parameter, plan.layout.data.degree, bits);
    }
  }
  return sum;
}

}  // namespace

// m microbatches of F, I and a reduction, n ranks, k to a machine: m·(n−1)/n·Ψ of int8, m·(k−1)/k·Ψ of weights as they
// are, as much again where F is redone, and m·(n−1)/n·Ψ of int4, which are two all-to-alls.
TEST_CASE("ranks receive what the parts of ZeRO++ say, of any shape") {
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    const int hidden = 64 * (1 + static_cast<int>(random() % 6));
    const int layers = 1 + static_cast<int>(random() % 4);
    const int k = 1 << (1 + random() % 3);
    const int n = k * (1 + static_cast<int>(random() % 3));
    if (n == k) continue;
    const std::string in_groups = "secondary_shard: " + std::to_string(k);
    const bool redone = round % 2 == 0;
    const std::string recompute = redone ? "full" : "none";
    const auto check = [&](const std::string& sharding, double in_forward, double again, double of_gradients) {
      CAPTURE(hidden, layers, n, k, sharding, redone);
      const double each = in_forward + (redone ? 2 : 1) * again + of_gradients;
      const double bytes = received(plan_of_shape(hidden, layers, n, sharding, recompute), 0);
      CHECK(bytes == Approx(microbatches * each).epsilon(1e-15).margin(0.6));  // it is rounded to a byte
    };
    const Plan plain = plan_of_shape(hidden, layers, n, "zero3", recompute);
    const double psi = parameters_of_rank(plain, 0);
    const double whole = all_but_own(n) * weight * psi;
    const double near = all_but_own(k) * weight * psi;
    const double blocks = all_but_own(n) * blocks_of_rank(plain, 0, 8);
    const double sums = all_but_own(n) * gradient * psi;
    const double int4 = all_but_own(n) * blocks_of_rank(plain, 0, 4);
    check("zero3", whole, whole, sums);
    check("zero3, quantized_weights: true", blocks, blocks, sums);
    check("fsdp, " + in_groups, whole, near, sums);
    check("fsdp, reshard_after_forward: " + std::to_string(k), whole, near, sums);
    check("zero3, quantized_gradients: " + std::to_string(k), whole, whole, int4);
    check("zero++, " + in_groups, blocks, near, int4);
  }
}

TEST_CASE("under a pipeline gradients are quantised once a step, and so are weights that are gathered once") {
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    for (int rank = 0; rank < 2; ++rank) {
      const Plan all = plan_of(sharded("zero++, secondary_shard: 4", 16, 2, schedule));
      const double blocks = all_but_own(16) * blocks_of_rank(all, rank, 8);
      const double near = all_but_own(4) * weight * parameters_of_rank(all, rank);
      const double int4 = all_but_own(16) * blocks_of_rank(all, rank, 4);
      CHECK(received(all, rank) == std::round(microbatches * (blocks + near) + int4));
      const Plan once = plan_of(sharded("zero++, reshard_after_forward: false", 16, 2, schedule));
      CHECK(received(once, rank) == std::round(blocks + int4));
    }
  }
}

// Where both ends stand in one stage, actions gather it for either and its gradient is one; in two each has a copy.
TEST_CASE("a tied table is gathered for both its blocks, and its gradient is quantised once a step") {
  for (const int pipeline : {1, 2}) {
    LayoutCase c =
        sharded("zero3, quantized_weights: true, quantized_gradients: 4, reduce: each_microbatch", 16, pipeline);
    c.sharding += ", reshard_after_forward: true";
    c.tied = true;
    const Plan plan = plan_of(c);
    const Parameter table = embedding_parameters(plan.model).front();
    for (int rank = 0; rank < pipeline; ++rank) {
      CAPTURE(pipeline, rank);
      const bool has_embedding = rank == 0;
      const bool has_head = rank == pipeline - 1;
      const double gathered = blocks_of_rank(plan, rank, 8) + (has_head ? in_blocks(table, 16, 8) : 0);
      const double late = in_blocks(table, 16, 4);
      const double reduced = blocks_of_rank(plan, rank, 4) - (has_embedding ? late : 0);
      CHECK(received(plan, rank) == std::round(all_but_own(16) * (microbatches * (2 * gathered + reduced) + late)));
    }
  }
}

// Section 4.2: the second copy is 2Ψ/k bytes more, for as long as the rank trains.
TEST_CASE("a rank holds its part of the second copy beside its part of all, all the time") {
  constexpr double states = 12;
  for (const int k : {2, 4, 8}) {
    const std::string in_groups = ", secondary_shard: " + std::to_string(k);
    const Plan plan = plan_of(sharded("zero3" + in_groups, 16));
    const Plan without = plan_of(sharded("zero3", 16));
    const ComputeCost& cost = plan.costs.stages.front();
    const double psi = static_cast<double>(cost.parameters);
    CHECK(static_cast<double>(states_held(cost).value) == psi * ((weight + gradient + states) / 16 + weight / k));
    CHECK(cost.data_moves.second_copy.value == static_cast<std::int64_t>(psi * weight / k));
    // Nothing else of a step needs more or less memory.
    const RankSummary with = predict_by_path(plan).ranks.front();
    const RankSummary alone = predict_by_path(without).ranks.front();
    CHECK(with.peak_bytes - alone.peak_bytes == cost.data_moves.second_copy);
    CHECK(with.parameter_bytes - alone.parameter_bytes == cost.data_moves.second_copy);
  }
}

// While a block's weights come as int8 these are there beside them, and nothing is computed; beside another block they
// are there alone. Of the gradients what goes and comes as int4, and the sums of the first exchange in fp32.
TEST_CASE("blocks that are on their way have their place in the peak") {
  const Plan plan = plan_of(sharded("zero++", 16));
  const DataMoves& moves = plan.costs.stages.front().data_moves;
  const double psi = static_cast<double>(plan.costs.stages.front().parameters);
  CHECK(static_cast<double>(moves.quantised.forward.value) == Approx(psi * int8_bytes).margin(16));
  CHECK(moves.quantised.input_gradient == Bytes{});  // the second copy comes as it is
  CHECK(static_cast<double>(moves.quantised.weight_gradient.value) ==
        Approx(psi * (2 * int4_bytes + 4.0 / 8)).margin(64));
  const Plan alone = plan_of(sharded("zero3, quantized_weights: true", 16));
  CHECK(alone.costs.stages.front().data_moves.quantised.input_gradient == moves.quantised.forward);
  const auto in_forward = [](const std::string& sharding, const std::string& overlap) {
    LayoutCase c = sharded(sharding, 16);
    c.software = "{like: plumb, data_overlap: " + overlap + "}";
    return plan_of(c).costs.stages.front().forward_workspace_bytes;
  };
  CHECK(in_forward("zero3, quantized_weights: true", "false") == in_forward("zero3", "false"));
  CHECK(in_forward("zero3, quantized_weights: true", "true") < in_forward("zero3", "true"));
  CHECK(in_forward("zero3, quantized_weights: true", "true") > in_forward("zero3", "false"));
}

namespace {

// Bytes that a machine's ranks send to others in the actions of one microbatch, counted in all groups of the graph.
double sent_between_machines(const Plan& plan) {
  const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
  const UnfoldedGraph unfolded = unfolded_graph(plan, folded);
  const int devices = plan.cluster.machine.devices;
  double sum = 0;
  for (const Node& node : unfolded.graph.nodes) {
    const bool counts =
        node.kind == NodeKind::collective && is_compute(node.action.kind) && node.action.microbatch == 0;
    if (!counts) continue;
    const double outside = unfolded.graph.flows[static_cast<std::size_t>(node.flow)].outside;
    const std::vector<int>& members = unfolded.graph.groups[static_cast<std::size_t>(node.group)];
    const auto here = std::ranges::count_if(members, [&](int rank) { return rank / devices == 0; });
    sum += outside * static_cast<double>(here);
  }
  return sum;
}

}  // namespace

// The paper's headline: 3Ψ elements of 16 bits between machines become ½Ψ + 0 + ¼Ψ; scales add 1/32 byte an element.
TEST_CASE("ZeRO++ leaves three quarters of one part out of three between machines") {
  const std::string software = "{like: plumb, gradients: bf16}";
  const auto sent = [&](const std::string& sharding) {
    LayoutCase c = sharded(sharding, 32);
    c.software = software;
    const Plan plan = plan_of(c);
    return sent_between_machines(plan) / (weight * parameters_of_rank(plan, 0));
  };
  const double ring = all_but_own(32);
  const double scales = 4.0 / 128 / weight;
  CHECK(sent("zero3") == Approx(3 * ring));
  CHECK(sent("zero3, quantized_weights: true") == Approx(2 * (0.5 + scales) * ring + ring));
  CHECK(sent("zero3, secondary_shard: 8") == Approx(2 * ring));
  CHECK(sent("zero3, quantized_gradients: 8") == Approx(2 * ring + (0.25 + scales) * all_but_own(4)));
  CHECK(sent("zero++") == Approx((0.5 + scales) * ring + (0.25 + scales) * all_but_own(4)));
}

TEST_CASE("folded and unfolded ranks of ZeRO++ take the same time, with every part of it") {
  for (const std::string& sharding :
       {std::string("zero++"), std::string("zero3, secondary_shard: 2"), std::string("fsdp, quantized_weights: true"),
        std::string("zero++, secondary_shard: 2, reduce: last_microbatch"),
        std::string("zero++, reshard_after_forward: false"),
        std::string("zero3, quantized_gradients: 2, reduce: each_microbatch")}) {
    for (const int pipeline : {1, 2}) {
      for (const std::string schedule : {"1f1b", "zb-h1"}) {
        if (pipeline == 1 && schedule == "zb-h1") continue;
        for (const int tensor : {1, 2}) {
          for (const bool overlap : {false, true}) {
            CAPTURE(sharding, pipeline, schedule, tensor, overlap);
            LayoutCase c = sharded(sharding, 16 / pipeline, pipeline, schedule);
            c.tensor = tensor;
            c.sequence_parallel = tensor > 1;
            c.recompute = overlap ? "full" : "none";
            c.software = overlap ? "{like: plumb, data_overlap: true}" : "{like: plumb, data_overlap: false}";
            const Plan plan = plan_of(c);
            const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
            const Seconds step = evaluate(folded).makespan;
            CHECK(evaluate(unfolded_graph(plan, folded).graph).makespan.value == Approx(step.value).epsilon(1e-9));
          }
        }
      }
    }
  }
}

TEST_CASE("each collective of ZeRO++ waits for its own group alone") {
  const Plan plan = plan_of(sharded("zero++, secondary_shard: 4", 16));
  const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
  const ScheduleGraph graph = unfolded_graph(plan, folded).graph;
  std::map<std::size_t, int> of_size;
  for (const Node& node : graph.nodes) {
    if (node.kind != NodeKind::collective || !is_compute(node.action.kind)) continue;
    const std::vector<int>& members = graph.groups[static_cast<std::size_t>(node.group)];
    const int first = members.front();
    const bool all = members.size() == 16;
    const bool near = node.action.kind == ActionKind::forward ? all : members == inside_group(plan.layout, first);
    CHECK((near || members == across_group(plan.layout, first)));
    ++of_size[members.size()];
  }
  // Ten blocks and four microbatches: a gather of all in F; four groups of four that gather in B, and exchange in two.
  CHECK(of_size == std::map<std::size_t, int>{{4, microbatches * 10 * 4 * 3}, {16, microbatches * 10}});
}

TEST_CASE("on slow links between machines ZeRO++ is faster than ZeRO-3, on one machine its second copy is no use") {
  const auto step = [](const std::string& sharding, const std::string& bandwidth, int data) {
    LayoutCase c = sharded(sharding, data);
    c.network = ", outside: {bandwidth: " + bandwidth + ", latency: 5 us}";
    return predict_by_path(plan_of(c)).steps.front().duration.value;
  };
  CHECK(step("zero++", "1 GB/s", 32) < 0.5 * step("zero3", "1 GB/s", 32));
  CHECK(step("zero3, secondary_shard: 8", "1 GB/s", 32) < step("zero3", "1 GB/s", 32));
  CHECK(describe(plan_of(sharded("zero++", 8)).layout) == "dp8·zero3·qwZ·qgZ8");
}

TEST_CASE("plans of ZeRO++ are read back as they were, and others have none of its keys") {
  std::vector<Plan> plans;
  for (const std::string sharding : {"zero3", "zero++", "zero3, secondary_shard: 4", "zero3, quantized_weights: true",
                                     "fsdp, quantized_gradients: 2"}) {
    plans.push_back(plan_of(sharded(sharding, 16)));
    CHECK(read_back(plans.back()) == plans.back());
    CHECK(to_json(read_back(plans.back())) == to_json(plans.back()));
    CHECK_NOTHROW(require_predicted_costs(plans.back(), "plan.json"));
  }
  const std::string text = to_json(plans.front());
  for (const char* key : {"quantized", "quantised", "secondary", "second_copy", "gathering_again", "recompute_s"}) {
    CHECK(text.find(key) == std::string::npos);
  }
  for (const std::size_t edited : {1U, 2U, 3U}) {
    const std::string message = message_after(plans[0], [&](Plan& plan) { plan.layout = plans[edited].layout; });
    CHECK_THAT(message, ContainsSubstring("costs.stages") && ContainsSubstring("the layout's sharding, zero3"));
  }
}

// Times may be edited, so they tell nothing: what is quantised does, in bytes, also of what moves once a step.
TEST_CASE("a plan may not be edited into another part of ZeRO++, in actions or once a step") {
  for (const int pipeline : {1, 2}) {
    std::vector<Plan> plans;
    for (const std::string sharding :
         {"zero3", "zero3, quantized_weights: true", "zero3, quantized_gradients: 2", "zero3, quantized_gradients: 4",
          "zero3, quantized_weights: true, quantized_gradients: 4"}) {
      plans.push_back(plan_of(sharded(sharding, 16, pipeline, "1f1b")));
      CHECK_NOTHROW(read_back(plans.back()));
    }
    for (std::size_t from = 0; from < plans.size(); ++from) {
      for (std::size_t to = 0; to < plans.size(); ++to) {
        if (from == to) continue;
        CAPTURE(pipeline, from, to);
        const std::string message = message_after(plans[from], [&](Plan& plan) { plan.layout = plans[to].layout; });
        CHECK_THAT(message, ContainsSubstring("costs.stages") && ContainsSubstring("the layout's sharding, zero3"));
      }
    }
  }
}
