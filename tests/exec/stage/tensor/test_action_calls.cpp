// What the actions of a rank make with its groups, against the moves of its blocks, and in an order that ends.
#include "exec/stage/tensor/action_calls.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "common/model/lora.hpp"
#include "common/planner/traffic.hpp"
#include "common/schedule/reductions.hpp"
#include "exec/stage/primitives/block_parameters.hpp"
#include "exec/stage/tensor/division.hpp"
#include "exec/transport/launch_plan/launch_check.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"
#include "tests/exec/transport/launch_plan/made_up_calls.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// Bytes that each rank receives of it by a ring; all are of fp32 here.
double received(const GroupCall& call) {
  const auto ranks = static_cast<double>(call.of.ranks.size());
  const double bytes = 4 * static_cast<double>(call.count);
  return call.kind == Collective::all_reduce ? 2 * (ranks - 1) / ranks * bytes : (ranks - 1) * bytes;
}

std::vector<std::string> said(const GroupCalls& calls) {
  std::vector<std::string> all;
  for (const auto& call : calls) all.push_back(describe(*call));
  return all;
}

Model of_heads(Model model, int kv_heads) {
  for (Layer& layer : model.layers) {
    auto& attention = std::get<SoftmaxAttention>(layer.mixer);
    attention.kv_heads = kv_heads;
    attention.qk_norm = true;
  }
  return model;
}

struct Case {
  const char* schedule;
  int ranks;
  int tensor;
  bool sequence_parallel;
  int data;
  TensorKind kind = TensorKind::one_d;
  int depth = 1;
};

Plan plan_of(const Model& model, const Case& of) {
  return test::training_plan({.model = model,
                              .schedule = of.schedule,
                              .ranks = of.ranks,
                              .chunks = fewest_chunks(of.schedule),
                              .microbatches = 4,
                              .data = of.data,
                              .tensor = of.tensor,
                              .sequence_parallel = of.sequence_parallel,
                              .kind = of.kind,
                              .depth = of.depth,
                              .microbatch = of.kind == TensorKind::one_d ? 2 : 4});
}

const std::vector<Case> cases{{"1f1b", 1, 2, false, 1},  {"zb-h1", 1, 4, true, 1}, {"1f1b", 2, 2, true, 2},
                              {"zb-h1", 2, 2, false, 2}, {"1f1b", 1, 1, false, 4}, {"interleaved-1f1b", 2, 2, true, 2}};
const std::vector<Case> grids{{"1f1b", 1, 4, false, 1, TensorKind::two_d},
                              {"zb-h1", 2, 4, false, 2, TensorKind::two_d},
                              {"1f1b", 2, 8, false, 1, TensorKind::two_and_half_d, 2},
                              {"zb-h1", 1, 8, false, 2, TensorKind::three_d}};
std::vector<Case> all_cases() {
  std::vector<Case> all = cases;
  all.insert(all.end(), grids.begin(), grids.end());
  return all;
}
// How many heads of keys these have: a grid's rows or columns divide them.
std::vector<int> key_heads(const Case& of) {
  return of.kind == TensorKind::one_d ? std::vector<int>{1, 4} : std::vector<int>{4};
}

// All communicators of a rank's calls are made before the run.
void require_declared(const Plan& plan) {
  const auto declared = plan_communicators(lowered_schedule(plan), plan.layout, tensor_parts(plan));
  for (int rank = 0; rank < ranks(plan.layout); ++rank) {
    for (const auto& [action, calls] : calls_of_rank(plan, rank)) {
      for (const auto& call : calls) {
        CHECK(std::ranges::find(declared, call->of) != declared.end());
        CHECK(std::ranges::find(call->of.ranks, rank) != call->of.ranks.end());
      }
    }
  }
}

}  // namespace

TEST_CASE("a layer's calls are its moves in their order, of the sizes that each rank gives or gets") {
  // Microbatches of 2 sequences of 32 tokens, hidden 32, a vocabulary of 256.
  const Plan plan = plan_of(of_heads(test::llama(1), 4), {"zb-h1", 1, 2, true, 1});
  const RankCalls calls = calls_of_rank(plan, 1);
  const std::string layer = ", block 1 on tensor (ranks 0, 1)";
  const GroupCalls& forward = calls.at({ActionKind::forward, 0});
  const std::vector<std::string> all = said(forward);
  const auto first = std::ranges::find(all, "all-gather of the input norm_1 (site attention.q)" + layer);
  REQUIRE(all.end() - first > 4);
  CHECK(first[1] == "reduce-scatter of the output attention.out (site attention.out)" + layer);
  CHECK(first[2] == "all-gather of the input norm_2 (site mlp.gate)" + layer);
  CHECK(first[3] == "reduce-scatter of the output mlp.down (site mlp.down)" + layer);
  const std::size_t part = 2 * 16 * 32;
  for (std::ptrdiff_t i = 0; i < 4; ++i)
    CHECK(forward[static_cast<std::size_t>(first - all.begin() + i)]->count == part);
  // The loss: of each of 64 rows the largest logit, then two sums.
  REQUIRE(forward.size() > 2);
  const GroupCall& largest = **(forward.end() - 2);
  const GroupCall& sums = *forward.back();
  CHECK(largest.reduction == exec::Reduction::maximum);
  CHECK(largest.count == 64);
  CHECK(sums.reduction == exec::Reduction::sum);
  CHECK(sums.count == 2 * 64);
  CHECK(calls.at({ActionKind::recompute, 0}) == forward);
  // A full backward goes block by block, I and W of each.
  const GroupCalls& input = calls.at({ActionKind::input_gradient, 0});
  const GroupCalls& weight = calls.at({ActionKind::weight_gradient, 0});
  const GroupCalls& backward = calls.at({ActionKind::backward, 0});
  CHECK(backward.size() == input.size() + weight.size());
  const auto last = [](const GroupCalls& of) { return of.back()->what.substr(of.back()->what.rfind(", block")); };
  // W alone reads the whole gradient of the embedding's output.
  CHECK(last(input) == ", block 1");
  CHECK(last(weight) == ", block 0");
  CHECK(last(backward) == ", block 0");
  CHECK(input.front()->what.find(", block 2") != std::string::npos);
}

TEST_CASE(
    "what a rank's actions make brings it the bytes that the plan's programs say, once a step and with each action") {
  for (const Case& of : all_cases()) {
    if (of.tensor == 1) continue;
    for (const int kv_heads : key_heads(of)) {
      const Plan plan = plan_of(of_heads(test::llama(4), kv_heads), of);
      INFO(plan.name << ", " << describe(plan.layout) << ", " << kv_heads);
      const std::vector<StageMoves> moves = tensor_moves(plan, {});
      for (int rank = 0; rank < ranks(plan.layout); ++rank) {
        std::map<std::pair<ActionKind, int>, double> by_action;
        for (const auto& [action, calls] : calls_of_rank(plan, rank)) {
          // Sums of gradients with other data are not the tensor group's; what is summed once goes before them.
          const bool once = action.kind == ActionKind::reduce_gradient;
          for (const auto& call : calls) {
            if (call->open) continue;
            by_action[{once ? ActionKind::optimizer_step : action.kind, action.stage}] += received(*call);
          }
        }
        for (const int stage : stages_of_rank(plan.schedule, lane_of(plan.layout, rank).pipeline_rank)) {
          for (const auto& [kind, predicted] : moves[static_cast<std::size_t>(stage)]) {
            INFO(to_string(Action{kind, stage, 0}));
            CHECK(by_action[{kind, stage}] == predicted.received);
          }
        }
      }
    }
  }
}

TEST_CASE("the collectives of real plans cannot deadlock among their messages") {
  for (const Case& of : all_cases()) {
    const Plan plan = plan_of(of_heads(test::llama(4), key_heads(of).front()), of);
    INFO(plan.name << ", " << describe(plan.layout));
    const Schedule lowered = lowered_schedule(plan);
    std::vector<RankCalls> calls;
    for (int rank = 0; rank < ranks(plan.layout); ++rank) calls.push_back(calls_of_rank(plan, rank));
    const LaunchPlan launches = test::all_launches(plan.layout, lowered, plan_launches(lowered, plan.costs), calls);
    for (const StreamOrder order : {StreamOrder::concurrent, StreamOrder::serial}) {
      CHECK(check_launches(lowered, plan.layout, calls, launches, order) == std::vector<std::string>{});
    }
  }
}

namespace {

Plan reduced_beside(Plan plan, std::int64_t bytes, bool first_only = false) {
  plan.software.data_overlap = true;
  plan.software.data_bucket = {.bytes = {bytes}, .first_stage_only = first_only};
  return plan;
}

// Of one rank's last W or B of a stage.
const GroupCalls& last_calls(const Plan& plan, int rank, const RankCalls& calls, int stage) {
  const auto place = static_cast<std::size_t>(lane_of(plan.layout, rank).pipeline_rank);
  for (const Action& action : last_weight_gradients(plan.schedule.actions[place])) {
    if (action.stage == stage) return calls_of(calls, action);
  }
  throw InputError("test", "the stage is not on this rank");
}

}  // namespace

TEST_CASE("buckets have all gradients that are complete in the backward once, behind the moves of their blocks") {
  for (const Case& of : cases) {
    if (of.data == 1) continue;
    for (const std::int64_t bytes : {1, 9000, 1 << 30}) {
      const Plan plan = reduced_beside(plan_of(of_heads(test::llama(4), 1), of), bytes);
      INFO(plan.name << ", " << describe(plan.layout) << ", " << bytes << " bytes");
      for (int rank = 0; rank < ranks(plan.layout); ++rank) {
        const RankCalls calls = calls_of_rank(plan, rank);
        for (const int stage : stages_of_rank(plan.schedule, lane_of(plan.layout, rank).pipeline_rank)) {
          const GroupCalls& last = last_calls(plan, rank, calls, stage);
          std::vector<std::size_t> summed;
          GroupCalls moves;
          for (const auto& call : last) {
            if (!is_beside_compute(*call)) {
              moves.push_back(call);
              continue;
            }
            CHECK(call->of == CommunicatorSpec{CommunicatorUse::data, group(plan.layout, rank, MeshAxis::data)});
            CHECK(call->count == std::accumulate(call->bucket.begin(), call->bucket.end(), std::size_t{0}));
            const bool full = static_cast<std::int64_t>(4 * call->count) >= bytes;
            CHECK((full || call == last.back()));
            CHECK((!full || static_cast<std::int64_t>(4 * (call->count - call->bucket.back())) < bytes));
            summed.insert(summed.end(), call->bucket.begin(), call->bucket.end());
          }
          // The moves are those of any other microbatch, in their order.
          const bool split = std::string(of.schedule) == "zb-h1";
          const auto other =
              calls.find({split ? ActionKind::weight_gradient : ActionKind::backward, stage, no_microbatch});
          CHECK(said(moves) == said(other == calls.end() ? GroupCalls() : other->second));
          // The gradients are those of the stage's blocks from the last to the first, whose parts are whole here.
          std::vector<std::size_t> wanted;
          const BlockRange range = blocks_of_stage(plan.split, stage);
          for (int block = range.last; block-- > range.first;) {
            const Division division(plan.model, block, plan.layout.tensor, plan.training,
                                    coordinates(plan.layout, rank).at(static_cast<std::size_t>(MeshAxis::tensor)));
            for (const Parameter& parameter : block_parameters(plan.model, block)) {
              if (of.tensor > 1 && !division.summands(parameter.name).empty()) continue;
              std::size_t size = 1;
              for (const std::int64_t length : division.local_shape(parameter))
                size *= static_cast<std::size_t>(length);
              wanted.push_back(size);
            }
          }
          CHECK(summed == wanted);
        }
      }
    }
  }
}

TEST_CASE("no bucket has a tied table or frozen weights, and none is where the software does not overlap") {
  const Plan tied = reduced_beside(plan_of(test::gpt2(4, true), {"1f1b", 2, 1, false, 2}), 1);
  const auto buckets = [](const GroupCalls& calls) {
    std::vector<std::string> all;
    for (const auto& call : calls) {
      if (is_beside_compute(*call)) all.push_back(call->what);
    }
    return all;
  };
  for (int rank = 0; rank < 4; ++rank) {
    const int stage = lane_of(tied.layout, rank).pipeline_rank;
    for (const std::string& what : buckets(last_calls(tied, rank, calls_of_rank(tied, rank), stage))) {
      CHECK(what.find("embedding.weight") == std::string::npos);
    }
  }
  Plan tuned = reduced_beside(plan_of(test::llama(4), {"zb-h1", 2, 1, false, 2}), 1 << 30);
  tuned.training.lora = Lora{.rank = 4, .targets = {LoraTarget::query}};
  CHECK(buckets(last_calls(tuned, 0, calls_of_rank(tuned, 0), 0)) ==
        std::vector<std::string>{"sum of the gradients of layers.1.attention.q.lora_a.weight to "
                                 "layers.0.attention.q.lora_b.weight"});
  const Plan first_only = reduced_beside(plan_of(test::llama(4), {"1f1b", 2, 1, false, 2}), 1, true);
  CHECK_FALSE(buckets(last_calls(first_only, 0, calls_of_rank(first_only, 0), 0)).empty());
  CHECK(buckets(last_calls(first_only, 2, calls_of_rank(first_only, 2), 1)).empty());
  Plan behind = first_only;
  behind.software.data_overlap = false;
  CHECK(buckets(last_calls(behind, 0, calls_of_rank(behind, 0), 0)).empty());
}

TEST_CASE("real plans with buckets cannot deadlock either") {
  for (const Case& of : cases) {
    if (of.data == 1) continue;
    for (const std::int64_t bytes : {1, 9000, 1 << 30}) {
      const Plan plan = reduced_beside(plan_of(of_heads(test::llama(4), 1), of), bytes);
      INFO(plan.name << ", " << describe(plan.layout) << ", " << bytes << " bytes");
      const Schedule lowered = lowered_schedule(plan);
      std::vector<RankCalls> calls;
      for (int rank = 0; rank < ranks(plan.layout); ++rank) calls.push_back(calls_of_rank(plan, rank));
      const LaunchPlan launches = test::all_launches(plan.layout, lowered, plan_launches(lowered, plan.costs), calls);
      for (const StreamOrder order : {StreamOrder::concurrent, StreamOrder::serial}) {
        CHECK(check_launches(lowered, plan.layout, calls, launches, order) == std::vector<std::string>{});
      }
    }
  }
}

namespace {

struct Rule {
  Sharding sharding;
  bool by_block = false;
  bool each_microbatch = false;
  int prefetch = 1;
  int layers_per_unit = 1;
};
constexpr std::array rules{Rule{Sharding::zero1},
                           Rule{Sharding::zero2, false, true},
                           Rule{Sharding::fsdp},
                           Rule{Sharding::fsdp, true},
                           Rule{Sharding::fsdp, true, true},
                           Rule{Sharding::fsdp, true, true, 0},
                           Rule{Sharding::fsdp, true, true, 3},
                           Rule{Sharding::fsdp, true, true, 1, 2},
                           Rule{Sharding::fsdp, false, true},
                           Rule{Sharding::hsdp, true, true},
                           Rule{Sharding::hsdp}};

Plan shared_out(Plan plan, const Rule& rule) {
  DataLayout& data = plan.layout.data;
  data.sharding = rule.sharding;
  data.reshard_after_forward = rule.by_block;
  data.reduces_each_microbatch = rule.each_microbatch;
  data.prefetch = rule.prefetch;
  data.layers_per_unit = rule.layers_per_unit;
  if (rule.sharding == Sharding::hsdp) data.shard = data.replicate = 2;
  return plan;
}

// Elements of what these calls do so.
std::size_t moved(const GroupCalls& calls, Collective kind) {
  std::size_t all = 0;
  for (const auto& call : calls) {
    if (call->of.use == CommunicatorUse::data && call->kind == kind) all += call->count;
  }
  return all;
}

// Of a stage's own tensors, what its blocks have: of a table at both ends of it twice where `twice`.
std::size_t elements_of_stage(const Plan& plan, int stage, bool twice, bool late) {
  std::map<std::string, std::size_t> by_name;
  std::size_t all = 0;
  const BlockRange range = blocks_of_stage(plan.split, stage);
  for (int block = range.first; block < range.last; ++block) {
    for (const Parameter& parameter : block_parameters(plan.model, block)) {
      if (!late && parameter.name == "embedding.weight" && plan.model.tied_embeddings) continue;
      const auto size = static_cast<std::size_t>(elements(parameter));
      if (by_name.emplace(parameter.name, size).second || twice) all += size;
    }
  }
  return all;
}

}  // namespace

TEST_CASE("each shard is gathered and reduced once where its rule says, and no order can deadlock") {
  for (const Rule& rule : rules) {
    for (const bool beside : {false, true}) {
      for (const Case& of : {Case{"1f1b", 1, 1, false, 4}, Case{"zb-h1", 2, 1, false, 4},
                             Case{"interleaved-1f1b", 2, 1, false, 4}, Case{"1f1b", 2, 2, true, 4}}) {
        const Model model = of.tensor > 1 ? of_heads(test::llama(4), 2) : test::gpt2(4, true);
        Plan plan = shared_out(plan_of(model, of), rule);
        plan.software.data_overlap = beside;
        plan.software.data_bucket = {.bytes = {9000}};
        INFO(plan.name << ", " << describe(plan.layout) << ", " << rule.by_block << rule.each_microbatch << beside);
        const Schedule lowered = lowered_schedule(plan);
        std::vector<RankCalls> calls;
        for (int rank = 0; rank < ranks(plan.layout); ++rank) calls.push_back(calls_of_rank(plan, rank));
        const LaunchPlan launches = test::all_launches(plan.layout, lowered, plan_launches(lowered, plan.costs), calls);
        for (const StreamOrder order : {StreamOrder::concurrent, StreamOrder::serial}) {
          CHECK(check_launches(lowered, plan.layout, calls, launches, order) == std::vector<std::string>{});
        }
        if (of.tensor > 1) continue;
        const auto declared = plan_communicators(lowered, plan.layout, {});
        for (int rank = 0; rank < ranks(plan.layout); ++rank) {
          const RankCalls& own = calls[static_cast<std::size_t>(rank)];
          for (const auto& [action, made] : own) {
            for (const auto& call : made) CHECK(std::ranges::find(declared, call->of) != declared.end());
          }
          for (const int stage : stages_of_rank(plan.schedule, lane_of(plan.layout, rank).pipeline_rank)) {
            const auto sums = [&](const Action& action) {
              return moved(calls_of(own, action), Collective::reduce_scatter);
            };
            const auto gathers = [&](ActionKind kind) {
              return moved(calls_of(own, {kind, stage, 1}), Collective::all_gather);
            };
            const std::size_t in_action = rule.by_block ? elements_of_stage(plan, stage, true, true) : 0;
            CHECK(gathers(ActionKind::forward) == in_action);
            CHECK(gathers(ActionKind::input_gradient) == in_action);
            CHECK(gathers(ActionKind::backward) == in_action);
            CHECK(gathers(ActionKind::weight_gradient) == 0);
            CHECK(gathers(ActionKind::unshard) == (rule.by_block ? 0 : elements_of_stage(plan, stage, false, true)));
            const std::size_t complete = elements_of_stage(plan, stage, false, false);
            const std::size_t late = elements_of_stage(plan, stage, false, true) - complete;
            const bool split = std::string(of.schedule) == "zb-h1";
            const ActionKind last = split ? ActionKind::weight_gradient : ActionKind::backward;
            // Of the microbatch before the last, of the last, and once a step.
            const bool at_last = beside && !rule.each_microbatch;
            CHECK(sums({last, stage, 0}) == (rule.each_microbatch ? complete : 0));
            CHECK(sums({last, stage, 3}) == (rule.each_microbatch || at_last ? complete : 0));
            CHECK(sums({ActionKind::reduce_gradient, stage, no_microbatch}) ==
                  late + (rule.each_microbatch || at_last ? 0 : complete));
          }
        }
      }
    }
  }
}

TEST_CASE("ranks that have one head of keys are parts of their group, and have a communicator for their sums") {
  const auto parts = [](int kv_heads, int tensor) {
    return tensor_parts(plan_of(of_heads(test::llama(1), kv_heads), {"1f1b", 1, tensor, false, 1}));
  };
  CHECK(parts(4, 4).empty());
  CHECK(parts(2, 4) == std::vector<std::vector<int>>{{0, 1}, {2, 3}});
  CHECK(parts(1, 2).empty());  // the whole group
  CHECK(parts(4, 1).empty());
  const Plan plan = plan_of(of_heads(test::llama(1), 2), {"1f1b", 1, 4, false, 1});
  require_declared(plan);
}

TEST_CASE("rows, columns and layers of a grid have communicators") {
  for (const Case& of : grids) {
    const Plan plan = plan_of(of_heads(test::llama(4), 4), of);
    CHECK(std::ranges::count(tensor_parts(plan), 2U, &std::vector<int>::size) == (of.tensor == 4 ? 4 : 12));
    require_declared(plan);
  }
}

TEST_CASE("where gradients are clipped all that a rank's stages sum once comes before, in the order of the stages") {
  Plan plan = plan_of(of_heads(test::llama(4), 1), {"interleaved-1f1b", 2, 2, true, 1});
  const auto once = [&](ActionKind kind, int stage) {
    const RankCalls calls = calls_of_rank(plan, 1);
    return said(calls_of(calls, {kind, stage}));
  };
  std::vector<std::string> of_steps = once(ActionKind::optimizer_step, 0);
  const std::vector<std::string> of_last = once(ActionKind::optimizer_step, 2);
  REQUIRE(std::min(of_steps.size(), of_last.size()) > 0);
  of_steps.insert(of_steps.end(), of_last.begin(), of_last.end());
  plan.training.gradient_clipping = 1;
  CHECK(once(ActionKind::clip_gradients, 0) == of_steps);
  CHECK(once(ActionKind::optimizer_step, 0).empty());
}

TEST_CASE("stages that move nothing make only the sums of their gradients with other data") {
  const Plan plan = plan_of(test::llama(4), {"1f1b", 2, 2, false, 2});
  const RankCalls calls = calls_of_rank(plan, 5, true);
  REQUIRE(calls.size() == 1);
  CHECK(said(calls.at({ActionKind::reduce_gradient, 1})) ==
        std::vector<std::string>{"sum of gradients on data (ranks 5, 7)"});
}
