// Memory over time against a second, naive count: every tensor with the interval in which it is alive.
#include "common/graph/memory.hpp"
#include "common/split/weighed_chain.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "common/split/split.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/random_schedule.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

struct Tensor {
  int rank;
  double from;
  double until;
  std::int64_t bytes;
};

PipelineCosts random_costs(std::mt19937& random, int stages) {
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  PipelineCosts costs = even_costs(stages, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}, .hop = {1}});
  for (ComputeCost& stage : costs.stages) {
    stage.forward.value = pick(1, 8);
    stage.input_gradient.value = pick(1, 8);
    stage.weight_gradient.value = pick(1, 8);
    stage.parameter_bytes.value = pick(0, 100);
    stage.gradient_bytes.value = pick(0, 100);
    stage.optimizer_bytes.value = pick(0, 100);
    stage.kept_bytes.value = pick(20, 90);
    stage.kept_for_weight_bytes.value = pick(0, static_cast<int>(stage.kept_bytes.value));
    stage.forward_workspace_bytes.value = pick(0, 40);
    stage.input_gradient_workspace_bytes.value = pick(20, 40);
    stage.weight_gradient_workspace_bytes.value = pick(0, 40);
  }
  costs.boundary_bytes.value = 16;
  costs.inside = {.latency = {1}, .bandwidth = {16}};  // two units of time
  return costs;
}

// Gradients that slices hand back: of even stages from the next slice to each, as of states, of odd ones all from the
// last slice, as of keys and values.
int maker_of_gradient(int stage, int slice, int slices) { return stage % 2 == 0 ? slice + 1 : slices - 1; }

// All that lives when, action by action from the definitions in costs.hpp.
std::vector<Tensor> tensors_of(const ScheduleGraph& graph, const Evaluation& times, const PipelineCosts& costs,
                               const Schedule& schedule) {
  std::map<Action, std::pair<double, double>> ran;
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    ran[graph.nodes[node].action] = {times.start[node].value, times.end[node].value};
  }
  const auto when = [&](ActionKind kind, int s, int k) { return ran.find(Action{kind, s, k}); };
  const int last = stages(schedule) - 1;
  std::vector<Tensor> all;
  for (int s = 0; s <= last; ++s) {
    const ComputeCost& cost = costs.stages[s];
    const int rank = schedule.rank_of_stage[s];
    for (int k = 0; k < schedule.microbatches; ++k) {
      const auto slice = static_cast<std::size_t>(k % schedule.slices);
      const SliceBytes own = cost.slice_bytes.empty()
                                 ? SliceBytes{cost.kept_bytes, cost.kept_for_weight_bytes, cost.forward_workspace_bytes,
                                              cost.input_gradient_workspace_bytes, cost.weight_gradient_workspace_bytes}
                                 : cost.slice_bytes[slice];
      const std::int64_t kept = own.kept.value, for_weight = own.kept_for_weight.value;
      // Sixteen bytes a token of the longest slice.
      const std::int64_t boundary =
          costs.slice_tokens.empty() ? costs.boundary_bytes.value : 16 * costs.slice_tokens[slice];
      const auto f = when(ActionKind::forward, s, k)->second;
      const auto r = when(ActionKind::recompute, s, k);
      const bool redone = r != ran.end();
      const auto b = when(ActionKind::backward, s, k), i = when(ActionKind::input_gradient, s, k),
                 w = when(ActionKind::weight_gradient, s, k);
      const auto gradient = b != ran.end() ? b->second : i->second;
      const std::int64_t input = s > 0 ? boundary : 0;
      // F, and from it on what is kept.
      all.push_back({rank, f.first, f.second, kept + own.forward_workspace.value});
      if (redone) {
        all.push_back({rank, f.second, r->second.first, input});
        all.push_back({rank, r->second.first, r->second.second, kept + own.forward_workspace.value});
        all.push_back({rank, r->second.second, gradient.first, kept});
      } else {
        all.push_back({rank, f.second, gradient.first, kept});
      }
      const auto ended = [&](int of) {
        const auto whole = when(ActionKind::backward, s, of);
        return (whole != ran.end() ? whole : when(ActionKind::input_gradient, s, of))->second.second;
      };
      if (own.gradients_taken.value > 0) {
        const int maker = k - static_cast<int>(slice) + maker_of_gradient(s, static_cast<int>(slice), schedule.slices);
        all.push_back({rank, ended(maker), ended(k), own.gradients_taken.value});
      }
      // I and W, or B which is one after the other.
      if (b != ran.end()) {
        const std::int64_t in_i = kept + own.input_gradient_workspace.value;
        // I has freed and left gradients by then.
        const std::int64_t in_w =
            for_weight + own.weight_gradient_workspace.value + own.gradients_left.value - own.gradients_taken.value;
        all.push_back({rank, gradient.first, gradient.second, std::max(in_i, in_w)});
      } else {
        all.push_back({rank, gradient.first, gradient.second, kept + own.input_gradient_workspace.value});
        all.push_back({rank, gradient.second, w->second.first, for_weight});
        all.push_back({rank, w->second.first, w->second.second, for_weight + own.weight_gradient_workspace.value});
      }
      // Boundaries: on the producer until they are sent, on the consumer until it starts.
      if (s < last) {
        const auto sent = when(ActionKind::receive_forward, s + 1, k);
        const double arrived = sent == ran.end() ? f.second : sent->second.second;
        all.push_back({rank, f.second, arrived, boundary});
        all.push_back(
            {schedule.rank_of_stage[s + 1], arrived, when(ActionKind::forward, s + 1, k)->second.first, boundary});
      }
      if (s > 0) {
        const auto sent = when(ActionKind::receive_backward, s - 1, k);
        const double arrived = sent == ran.end() ? gradient.second : sent->second.second;
        const auto next_b = when(ActionKind::backward, s - 1, k), next_i = when(ActionKind::input_gradient, s - 1, k);
        all.push_back({rank, gradient.second, arrived, boundary});
        all.push_back(
            {schedule.rank_of_stage[s - 1], arrived, (next_b != ran.end() ? next_b : next_i)->second.first, boundary});
      }
    }
  }
  return all;
}

std::int64_t fixed_bytes(const PipelineCosts& costs, const Schedule& schedule, int rank) {
  std::int64_t sum = 0;
  for (int s = 0; s < stages(schedule); ++s) {
    const ComputeCost& cost = costs.stages[s];
    if (schedule.rank_of_stage[s] != rank) continue;
    sum += cost.parameter_bytes.value + cost.gradient_bytes.value + cost.optimizer_bytes.value;
  }
  return sum;
}

void require_sum_of_alive(const Schedule& schedule, const PipelineCosts& costs) {
  const ScheduleGraph graph = build_graph(schedule, costs);
  const Evaluation times = evaluate(graph);
  const std::vector<RankMemory> memory = memory_over_time(graph, times, costs, schedule);
  const std::vector<Tensor> tensors = tensors_of(graph, times, costs, schedule);
  std::set<double> instants{times.makespan.value};
  for (const Tensor& tensor : tensors) instants.insert({tensor.from, tensor.until});
  REQUIRE(memory.size() == static_cast<std::size_t>(schedule.ranks));
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const RankMemory& found = memory[static_cast<std::size_t>(rank)];
    const std::int64_t fixed = fixed_bytes(costs, schedule, rank);
    std::int64_t peak = fixed;
    for (auto from = instants.begin(), to = std::next(from); to != instants.end(); ++from, ++to) {
      const double middle = (*from + *to) / 2;
      std::int64_t level = fixed;
      for (const Tensor& tensor : tensors) {
        if (tensor.rank == rank && tensor.from < middle && middle < tensor.until) level += tensor.bytes;
      }
      const auto point = std::find_if(found.over_time.rbegin(), found.over_time.rend(),
                                      [&](const MemoryPoint& p) { return p.time.value < middle; });
      CHECK(point->bytes.value == level);
      peak = std::max(peak, level);
    }
    CHECK(found.peak_bytes.value == peak);
    CHECK(sum(found.peak.held).value == peak - fixed);
    CHECK((found.peak.held.kept.value >= 0 && found.peak.held.messages.value >= 0 &&
           found.peak.held.workspace.value >= 0));
    CHECK((found.parameter_bytes + found.gradient_bytes + found.optimizer_bytes).value == fixed);
    CHECK(found.over_time.back().bytes.value == fixed);
  }
}

}  // namespace

TEST_CASE("memory over time is the sum of what is alive, for random schedules and costs") {
  std::mt19937 random(21);
  for (int round = 0; round < plumb::testing::cases(150); ++round) {
    const Schedule schedule = lower(random_schedule(random), {});
    require_sum_of_alive(schedule, random_costs(random, stages(schedule)));
  }
}

TEST_CASE("slices count their own bytes, kept, at work, on their way, and handed back") {
  std::mt19937 random(22);
  const auto bytes = [&](int from, int to) { return Bytes{std::uniform_int_distribution<int>(from, to)(random)}; };
  const auto seconds = [&] { return Seconds{static_cast<double>(bytes(1, 8).value)}; };
  for (int round = 0; round < 40; ++round) {
    const int slices = 2 + round % 3;
    Schedule schedule = generate_schedule("seq-1f1b", {.ranks = 2 + round % 2, .microbatches = 3, .slices = slices});
    for (int slice = 0; slice < slices; ++slice) schedule.slice_tokens.push_back(bytes(1, 9).value);
    PipelineCosts costs = random_costs(random, stages(schedule));
    costs.slice_tokens = schedule.slice_tokens;
    costs.boundary_bytes = {16 * std::ranges::max(schedule.slice_tokens)};
    for (int s = 0; s < stages(schedule); ++s) {
      ComputeCost& stage = costs.stages[static_cast<std::size_t>(s)];
      for (int slice = 0; slice < slices; ++slice) {
        stage.slices.push_back({seconds(), seconds(), seconds()});
        const Bytes kept = bytes(20, 90);
        stage.slice_bytes.push_back({kept, bytes(0, 20), bytes(0, 40), bytes(20, 40), bytes(0, 40)});
      }
      for (int slice = 0; slice + 1 < slices; ++slice) {
        const Bytes gradient = bytes(1, 30);
        stage.slice_bytes[static_cast<std::size_t>(slice)].gradients_taken = gradient;
        const auto maker = static_cast<std::size_t>(maker_of_gradient(s, slice, slices));
        stage.slice_bytes[maker].gradients_left += gradient;
      }
    }
    require_sum_of_alive(lower(schedule, {}), costs);
  }
}

TEST_CASE("1F1B on two ranks, by hand") {
  PipelineCosts costs = even_costs(2, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  for (ComputeCost& stage : costs.stages) {
    stage.parameter_bytes = {1000};
    stage.kept_bytes = {100};
    stage.kept_for_weight_bytes = {60};
    stage.forward_workspace_bytes = {7};
    stage.input_gradient_workspace_bytes = {30};
    stage.weight_gradient_workspace_bytes = {50};
  }
  const Schedule schedule = lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 2}), {});
  const ScheduleGraph graph = build_graph(schedule, costs);
  const auto memory = memory_over_time(graph, evaluate(graph), costs, schedule);
  // Rank 0 holds two microbatches when B0 runs: I tops what it keeps by 30, W is 60 + 50 − 100 above it.
  CHECK(memory[0].peak_bytes.value == 1000 + 200 + 30);
  CHECK(to_string(memory[0].peak.action) == "0B0");
  CHECK(memory[0].peak.time.value == 4);
  CHECK(memory[0].peak.held.kept.value == 200);
  CHECK(memory[0].peak.held.messages.value == 0);
  CHECK(memory[0].peak.held.workspace.value == 30);
  CHECK(memory[1].peak_bytes.value == 1000 + 100 + 30);
  CHECK(to_string(memory[1].peak.action) == "1B0");
}

// Rank 0 of 4 with 6 microbatches: from F5 to the end of B2 it holds four and the weights of updates 0, 1 and 2; then
// STEP 2 makes a fourth version, when three are left. Each keeps 100.
TEST_CASE("PipeDream's versions of the weights count while they are there, by hand") {
  for (const auto& [weights, versions, activations] : {std::tuple{10, 3, 4}, std::tuple{1000, 4, 3}}) {
    PipelineCosts costs = even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
    for (ComputeCost& stage : costs.stages) {
      stage.parameter_bytes = {weights};
      stage.kept_bytes = {100};
    }
    const Schedule schedule = lower(generate_schedule("pipedream", {.ranks = 4, .microbatches = 6}), {});
    const ScheduleGraph graph = build_graph(schedule, costs);
    const RankMemory memory = memory_over_time(graph, evaluate(graph), costs, schedule)[0];
    CHECK(memory.parameter_bytes.value == versions * weights);
    CHECK(sum(memory.peak.held).value == activations * 100);
    CHECK(memory.peak_bytes.value == versions * weights + activations * 100);
    CHECK(memory.over_time.front().bytes.value == weights + 100);  // F0 begins
    CHECK(memory.over_time.back().bytes.value == weights);
  }
}

TEST_CASE("messages that wait at a slow rank count until they are received") {
  PipelineCosts costs = even_costs(2, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}, .hop = {1}});
  costs.boundary_bytes = {10};
  costs.inside.bandwidth = {1e300};
  costs.stages[1].forward = {3};
  costs.stages[1].kept_bytes = {1};
  costs.stages[1].forward_workspace_bytes = {50};
  const Schedule schedule = lower(generate_schedule("gpipe", {.ranks = 2, .microbatches = 4}), {});
  const ScheduleGraph graph = build_graph(schedule, costs);
  const PeakMoment peak = memory_over_time(graph, evaluate(graph), costs, schedule)[1].peak;
  // Arrivals at 2, 3, 4 and 5; rank 1 computes from 2 on, 3 each: at 5 it takes the second, and two others wait.
  CHECK(to_string(peak.action) == "1F1");
  CHECK(peak.time.value == 5);
  CHECK(peak.held.kept.value == 2);
  CHECK(peak.held.messages.value == 20);
  CHECK(peak.held.workspace.value == 50);
}

TEST_CASE("evicted activations count on both ranks while in flight") {
  PipelineCosts costs = even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  for (ComputeCost& stage : costs.stages) stage.kept_bytes = stage.kept_for_weight_bytes = {100};
  costs.inside = {.latency = {0.5}, .bandwidth = {1e300}};
  const Schedule schedule = lower(generate_schedule("bpipe", {.ranks = 4, .microbatches = 6}), {});
  const ScheduleGraph graph = build_graph(schedule, costs);
  const auto memory = memory_over_time(graph, evaluate(graph), costs, schedule);
  const auto level = [&](std::size_t rank, double time) {
    Bytes bytes;
    for (const MemoryPoint& point : memory[rank].over_time) {
      if (point.time.value < time) bytes = point.bytes;
    }
    return bytes.value;
  };
  // 0EVICT2 leaves at 3, when 0F3 begins, and arrives at 3.5; 3F0 begins at 4.5.
  CHECK(level(0, 3.25) == 400);
  CHECK(level(3, 3.25) == 100);
  CHECK(level(0, 3.75) == 300);
  CHECK(level(3, 3.75) == 100);
}

TEST_CASE("every version of the weights that a rank keeps counts") {
  PipelineCosts costs = even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  for (ComputeCost& stage : costs.stages) stage.parameter_bytes = {1000};
  const auto parameters = [&](const char* name, std::size_t rank) {
    const Schedule schedule = lower(generate_schedule(name, {.ranks = 4, .microbatches = 12}), {});
    const ScheduleGraph graph = build_graph(schedule, costs);
    return memory_over_time(graph, evaluate(graph), costs, schedule)[rank].parameter_bytes.value;
  };
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(parameters("pipedream", r) == 1000 * (4 - static_cast<int>(r)));
    CHECK(parameters("1f1b", r) == 1000);
  }
  CHECK(parameters("pipedream-2bw", 0) == 2000);
}

TEST_CASE("a recomputed stage keeps only its input between F and R") {
  PipelineCosts costs = even_costs(2, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}, .hop = {1}});
  costs.boundary_bytes = {10};
  costs.inside.bandwidth = {1e9};
  for (ComputeCost& stage : costs.stages) stage.kept_bytes = {100};
  const Schedule gpipe = generate_schedule("gpipe", {.ranks = 2, .microbatches = 8});
  const auto peak = [&](const Schedule& compute) {
    const Schedule schedule = lower(compute, {});
    const ScheduleGraph graph = build_graph(schedule, costs);
    return memory_over_time(graph, evaluate(graph), costs, schedule)[1].peak_bytes.value;
  };
  CHECK(peak(gpipe) == 800);
  CHECK(peak(with_recompute(gpipe, {true, true})) == 7 * 10 + 100);
}

TEST_CASE("memory of a graph of another plan is refused") {
  const PipelineCosts costs = even_costs(2, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
  const Schedule schedule = lower(generate_schedule("gpipe", {.ranks = 2, .microbatches = 2}), {});
  const ScheduleGraph graph = build_graph(schedule, costs);
  CHECK_THROWS_AS(memory_over_time(graph, Evaluation{}, costs, schedule), InputError);
}

TEST_CASE("peak activations count chunks, and a redone forward from its R on") {
  const Schedule gpipe = generate_schedule("gpipe", {.ranks = 2, .microbatches = 3});
  CHECK(peak_activations(with_recompute(gpipe, {true, false})) == std::vector<double>{1, 3});
  const Schedule interleaved = generate_schedule("interleaved-1f1b", {.ranks = 2, .microbatches = 4, .chunks = 2});
  CHECK(peak_activations(interleaved) == std::vector<double>{2.5, 1.5});
}

namespace {

// All that a rank holds at any moment, by the text of the header: a microbatch from F (from R if that redoes it, and
// while F runs) to W.
std::set<std::vector<int>> all_moments(const Schedule& schedule, int rank) {
  std::vector<int> own;
  for (int s = 0; s < stages(schedule); ++s) {
    if (schedule.rank_of_stage[static_cast<std::size_t>(s)] == rank) own.push_back(s);
  }
  std::vector<int> held(own.size(), 0);
  std::set<std::vector<int>> all{held};
  const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
  for (const Action& action : list) {
    const auto place = static_cast<std::size_t>(std::find(own.begin(), own.end(), action.stage) - own.begin());
    const Action redone{ActionKind::recompute, action.stage, action.microbatch};
    const bool is_redone = std::find(list.begin(), list.end(), redone) != list.end();
    if (action.kind == ActionKind::recompute || action.kind == ActionKind::forward) ++held[place];
    if (action.kind == ActionKind::backward || action.kind == ActionKind::weight_gradient) --held[place];
    all.insert(held);
    if (action.kind == ActionKind::forward && is_redone) --held[place];
  }
  return all;
}

bool exceeds(const std::vector<int>& a, const std::vector<int>& b) {
  return a != b && std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
}

}  // namespace

TEST_CASE("the fullest moments are those that no other exceeds, each once") {
  std::mt19937 random(22);
  int several = 0;
  for (int round = 0; round < 200; ++round) {
    const Schedule schedule = random_schedule(random);
    const auto found = fullest_moments(schedule);
    REQUIRE(found.size() == static_cast<std::size_t>(schedule.ranks));
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const auto all = all_moments(schedule, rank);
      std::set<std::vector<int>> fullest;
      for (const auto& moment : all) {
        if (std::none_of(all.begin(), all.end(), [&](const auto& other) { return exceeds(other, moment); })) {
          fullest.insert(moment);
        }
      }
      if (fullest == std::set<std::vector<int>>{{}}) fullest.clear();  // a rank without stages
      const auto& of_rank = found[static_cast<std::size_t>(rank)];
      CHECK(std::set(of_rank.begin(), of_rank.end()) == fullest);
      CHECK(of_rank.size() == fullest.size());
      several += of_rank.size() > 1 ? 1 : 0;
    }
  }
  CHECK(several > 50);
}

TEST_CASE("a rank's memory under a split is the peak over time, without workspaces and messages") {
  std::mt19937 random(23);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  for (int round = 0; round < 200; ++round) {
    const int ranks = pick(1, 4);
    const int chunks = pick(1, 3);
    Schedule schedule =
        generate_schedule("interleaved-1f1b", {.ranks = ranks, .microbatches = ranks * pick(1, 3), .chunks = chunks});
    const int count = stages(schedule);
    const bool recompute = pick(0, 2) == 0;
    if (recompute) schedule = with_recompute(schedule, std::vector<bool>(static_cast<std::size_t>(count), true));
    SplitProblem problem{.block_times = {},
                         .block_fixed_bytes = {},
                         .block_kept_bytes = {},
                         .rank_of_stage = schedule.rank_of_stage,
                         .moments = fullest_moments(schedule),
                         .memory_per_rank = {}};
    Split split{std::vector<int>(static_cast<std::size_t>(count), 0)};
    int layers = 0;
    for (int& of_stage : split.layers) layers += of_stage = pick(1, 4);
    for (int block = 0; block < layers + 2; ++block) {
      problem.block_times.push_back({static_cast<double>(pick(1, 9))});
      problem.block_fixed_bytes.push_back({pick(0, 100)});
      problem.block_kept_bytes.push_back({pick(0, 50)});
    }
    PipelineCosts costs = even_costs(count, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
    costs.boundary_bytes = {};
    for (int stage = 0; stage < count; ++stage) {
      ComputeCost& cost = costs.stages[static_cast<std::size_t>(stage)];
      cost.forward = {};
      const BlockRange range = blocks_of_stage(split, stage);
      for (int block = range.first; block < range.last; ++block) {
        const auto n = static_cast<std::size_t>(block);
        cost.forward += problem.block_times[n];
        cost.parameter_bytes += problem.block_fixed_bytes[n];
        cost.kept_bytes += problem.block_kept_bytes[n];
      }
      cost.kept_for_weight_bytes = cost.kept_bytes;
    }
    const Schedule lowered = lower(schedule, {});
    const ScheduleGraph graph = build_graph(lowered, costs);
    const std::vector<RankMemory> memory = memory_over_time(graph, evaluate(graph), costs, lowered);
    const std::vector<Bytes> by_moments = rank_memory(problem, split);
    CAPTURE(round, ranks, chunks, recompute);
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      CHECK(by_moments[rank] == memory[rank].peak_bytes);
    }
  }
}
