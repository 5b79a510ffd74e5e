#include "exec/run/runner.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <thread>

#include "common/graph/evaluate.hpp"
#include "common/graph/schedule_graph.hpp"
#include "common/timeline/diff/replay.hpp"
#include "exec/launch/launch.hpp"
#include "exec/run/rank_log.hpp"
#include "exec/run/watchdog.hpp"
#include "exec/stage/emulated_stage.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/plans.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

using Logs = std::vector<RankLog>;

Logs run_emulated(const Plan& plan, const Schedule& lowered, const RunOptions& options) {
  const int ranks = plumb::ranks(plan.layout);
  Logs logs(static_cast<std::size_t>(ranks));
  run_on_threads(make_local_transports(ranks), [&](Transport& transport) {
    const auto stages = make_emulated_stages(plan, transport.rank());
    logs[static_cast<std::size_t>(transport.rank())] = run_rank(plan, lowered, transport, stages, options);
  });
  return logs;
}

Action* find(Schedule& schedule, int rank, const Action& action) {
  auto& actions = schedule.actions[static_cast<std::size_t>(rank)];
  const auto found = std::find(actions.begin(), actions.end(), action);
  REQUIRE(found != actions.end());
  return &*found;
}

}  // namespace

// By hand: F, I and W of 0.5 ms each, messages of 256 bytes, gradients of 400 bytes.
TEST_CASE("ranks of two pipelines each perform their pipeline's list, and log themselves as ranks of the layout") {
  const auto order =
      GENERATE(std::array{MeshAxis::data, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::pipeline},
               std::array{MeshAxis::pipeline, MeshAxis::data, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert});
  const std::string schedule = GENERATE("1f1b", "zb-h1", "bpipe");
  const int ranks = schedule == "bpipe" ? 4 : 2;
  Plan plan = emulated_plan({.schedule = schedule, .shape = {.ranks = ranks, .microbatches = 8}});
  plan.layout.order = order;
  plan.layout.data.degree = 2;
  for (ComputeCost& cost : plan.costs.stages) cost.gradient_bytes = {400};
  const Schedule lowered = lowered_schedule(plan);
  const Logs logs = run_emulated(plan, lowered, {.steps = 2});
  REQUIRE(logs.size() == static_cast<std::size_t>(2 * ranks));
  for (std::size_t rank = 0; rank < logs.size(); ++rank) {
    const std::vector<int> lane = group(plan.layout, static_cast<int>(rank), MeshAxis::pipeline);
    const auto place = static_cast<std::size_t>(std::ranges::find(lane, static_cast<int>(rank)) - lane.begin());
    CHECK(logs[rank].rank == static_cast<int>(rank));
    for (const RankStep& step : logs[rank].steps) {
      REQUIRE(step.events.size() == lowered.actions[place].size());
      Bytes received;
      for (std::size_t i = 0; i < step.events.size(); ++i) {
        const Event& event = step.events[i];
        CHECK(event.action == lowered.actions[place][i]);
        CHECK(event.rank == static_cast<int>(rank));
        if (event.peer >= 0) CHECK(std::ranges::find(lane, event.peer) != lane.end());
        if (is_receive(event.action.kind) || event.action.kind == ActionKind::reduce_gradient) received += event.bytes;
      }
      if (schedule != "bpipe") CHECK(step.received_bytes == received);
    }
  }
  const Timeline timeline = merge_logs(plan, lowered, logs, "test");
  REQUIRE(timeline.layout == plan.layout);
  CHECK(timeline.ranks.size() == logs.size());
  // All ranks of a sum see it from when the last one came.
  for (const StepTimeline& step : timeline.steps) {
    for (const Event& event : step.events) {
      if (event.action.kind != ActionKind::reduce_gradient) continue;
      for (const Event& other : step.events) {
        if (other.action != event.action) continue;
        CHECK(other.start == event.start);
        CHECK(other.end == event.end);
      }
    }
  }
  // Every event has its place in the graph of both pipelines. Pauses end late, not early; a busy machine's gaps between
  // them are in the measured step alone.
  const Replay again = replay(graph_of(timeline), median_step(timeline));
  CHECK(again.step.value >= 8 * 3 * 0.5e-3);
  CHECK(again.error_fraction < 0.2);
}

TEST_CASE("a rank that fails is named as the layout counts it, with the place in its pipeline's list") {
  Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 2, .microbatches = 2}});
  plan.layout.data.degree = 2;
  Schedule lowered = lowered_schedule(plan);
  // F twice on the second stage: ranks 2 and 3.
  *find(lowered, 1, {ActionKind::backward, 1, 1}) = {ActionKind::forward, 1, 1};
  CHECK_THROWS_WITH(run_emulated(plan, lowered, {}),
                    ContainsSubstring("rank 2, step 1, 1F1") || ContainsSubstring("rank 3, step 1, 1F1"));
}

TEST_CASE("each rank performs exactly its list, in its order, every step") {
  const std::string name = GENERATE("gpipe", "1f1b", "interleaved-1f1b", "zb-h1");
  const int ranks = GENERATE(1, 2, 4);
  const int chunks = fewest_chunks(name);
  const Plan plan = emulated_plan({.schedule = name, .shape = {.ranks = ranks, .microbatches = 8, .chunks = chunks}});
  const Schedule lowered = lower(plan.schedule, {});
  const Logs logs = run_emulated(plan, lowered, {.steps = 2});
  for (const RankLog& log : logs) {
    REQUIRE(log.steps.size() == 2);
    const auto& actions = lowered.actions[static_cast<std::size_t>(log.rank)];
    for (const RankStep& step : log.steps) {
      REQUIRE(step.events.size() == actions.size());
      std::int64_t received = 0;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        CHECK(step.events[i].action == actions[i]);
        CHECK(step.events[i].start >= step.start);
        if (is_receive(actions[i].kind)) received += 256;
      }
      CHECK(step.received_bytes.value == received);
    }
  }
}

TEST_CASE("evicted activations return before their backward, and no rank keeps any") {
  const int ranks = GENERATE(4, 8);
  Plan plan = emulated_plan({.schedule = "bpipe", .shape = {.ranks = ranks, .microbatches = 2 * ranks}});
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    plan.costs.stages[stage].kept_bytes = {1000 + static_cast<std::int64_t>(stage)};
  }
  const Schedule lowered = lower(plan.schedule, {});
  const Logs logs = run_emulated(plan, lowered, {.steps = 2});
  const Timeline timeline = merge_logs(plan, lowered, logs, "test");
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  for (const StepTimeline& step : timeline.steps) {
    // The same events as the graph has nodes, with the same sizes and peers.
    std::int64_t evictions = 0;
    for (const Node& node : graph.nodes) {
      if (node.kind != NodeKind::host_copy) continue;
      ++evictions;
      const auto found = std::find_if(step.events.begin(), step.events.end(), [&](const Event& event) {
        return event.action == node.action && event.rank == node.rank;
      });
      REQUIRE(found != step.events.end());
      CHECK(found->bytes == node.bytes);
      CHECK(found->peer == node.peer);
      CHECK(found->end >= found->start);
    }
    CHECK(evictions > 0);
    CHECK(std::count_if(step.events.begin(), step.events.end(),
                        [](const Event& event) { return is_eviction(event.action.kind); }) == evictions);
    for (const Event& load : step.events) {
      if (load.action.kind != ActionKind::load) continue;
      const Action backward{ActionKind::backward, load.action.stage, load.action.microbatch};
      const auto needs = std::find_if(step.events.begin(), step.events.end(),
                                      [&](const Event& event) { return event.action == backward; });
      CHECK(load.end <= needs->start);
    }
  }
}

// Rank 3 sends back what rank 0 evicted only after work that needs what rank 0 does then.
TEST_CASE("a rank that waits for evicted activations ends at the deadline, and stands at its LOAD") {
  const Plan plan = emulated_plan({.schedule = "bpipe", .shape = {.ranks = 4, .microbatches = 8}});
  Schedule lowered = lower(plan.schedule, {});
  const Action load{ActionKind::load, 0, 2};
  std::stable_partition(lowered.actions[3].begin(), lowered.actions[3].end(),
                        [](const Action& action) { return action.kind != ActionKind::load; });
  Watchdog watchdog(4, {.on_hang = [](int, const Position&, Seconds) {}, .on_stuck = [] {}});
  RunOptions options{.deadline_factor = 1};
  options.deadline_floor = {1};
  options.watchdog = &watchdog;
  CHECK_THROWS_WITH(run_emulated(plan, lowered, options), ContainsSubstring("before the deadline"));
  CHECK_THAT(describe_waits(lowered, plan.layout, watchdog.positions()),
             ContainsSubstring("rank 0: step 1, 0LOAD2 waits for rank 3's 0LOAD2") &&
                 ContainsSubstring("a cycle of waits: rank 0 -> 3"));

  std::erase(lowered.actions[3], load);
  CHECK_THROWS_WITH(run_emulated(plan, lowered, options), ContainsSubstring("no other rank has 0LOAD2"));
}

TEST_CASE("emulated stages redo their forward where the schedule says so") {
  const std::string name = GENERATE("1f1b", "zb-h1");
  Plan plan = emulated_plan({.schedule = name, .shape = {.ranks = 2, .microbatches = 3}});
  plan.schedule = with_recompute(plan.schedule, {true, false});
  const Schedule lowered = lower(plan.schedule, {});
  const Logs logs = run_emulated(plan, lowered, {.steps = 2});
  for (const RankLog& log : logs) {
    for (const RankStep& step : log.steps) {
      const auto again = std::count_if(step.events.begin(), step.events.end(),
                                       [](const Event& event) { return event.action.kind == ActionKind::recompute; });
      CHECK(again == (log.rank == 0 ? 3 : 0));
    }
  }
  // A stage that is not to be redone refuses it.
  Plan without = plan;
  without.schedule = emulated_plan({.schedule = name, .shape = {.ranks = 2, .microbatches = 3}}).schedule;
  CHECK_THROWS_WITH(run_emulated(without, lowered, {}), ContainsSubstring("microbatch 0 is forwarded, expected it"));
}

TEST_CASE("each action of an emulated stage takes its own time at least") {
  Plan plan = emulated_plan({.shape = {.ranks = 1, .microbatches = 2}});
  plan.schedule = with_recompute(generate_schedule("zb-h1", {.ranks = 1, .microbatches = 2}), {true});
  ComputeCost& cost = plan.costs.stages.front();
  cost.forward = {0.002};
  cost.input_gradient = {0.003};
  cost.weight_gradient = {0.004};
  cost.optimizer = {0.005};
  const std::map<ActionKind, double> least{{ActionKind::forward, 0.002},
                                           {ActionKind::recompute, 0.002},
                                           {ActionKind::input_gradient, 0.003},
                                           {ActionKind::weight_gradient, 0.004},
                                           {ActionKind::optimizer_step, 0.005}};
  const Logs logs = run_emulated(plan, lower(plan.schedule, {}), {});
  const std::vector<Event>& events = logs.front().steps.front().events;
  REQUIRE(events.size() == 2 * 4 + 1);
  // Times are written down in seconds since the machine's start: the last digits are lost.
  for (const Event& event : events) {
    CAPTURE(to_string(event.action));
    CHECK((event.end - event.start).value >= least.at(event.action.kind) - 1e-6);
  }
}

// In real time, with the longest path as the oracle. No upper bound: the machine may be busy.
TEST_CASE("an emulated step takes at least its longest path") {
  const std::string name = GENERATE("1f1b", "zb-h1");
  const Plan plan = emulated_plan({.schedule = name, .shape = {.ranks = 8, .microbatches = 32}, .time = {0.005}});
  const Schedule lowered = lower(plan.schedule, {});
  const Seconds ideal = evaluate(build_graph(lowered, plan.costs)).makespan;
  const Logs logs = run_emulated(plan, lowered, {});
  Seconds start = logs.front().steps.front().start;
  Seconds end{0};
  for (const RankLog& log : logs) {
    start = std::min(start, log.steps.front().start);
    for (const Event& event : log.steps.front().events) end = std::max(end, event.end);
  }
  const double ratio = (end - start) / ideal;
  WARN(name << " on 8 threads, m = 32, 5 ms: " << (end - start).value << " s, " << (ratio - 1) * 100
            << "% over the longest path of " << ideal.value << " s");
  CHECK(ratio >= 1.0);
}

TEST_CASE("emulated slices of different lengths take their own times, and their messages their own bytes") {
  Plan plan = emulated_plan({.schedule = "seq-1f1b", .shape = {.ranks = 2, .microbatches = 2, .slices = 2}});
  plan.schedule.slice_tokens = plan.costs.slice_tokens = {3, 1};
  plan.costs.boundary_bytes = {768};
  for (ComputeCost& cost : plan.costs.stages) cost.slices = {{{1e-3}, {1e-3}, {1e-3}}, {{4e-3}, {4e-3}, {4e-3}}};
  const Schedule lowered = lowered_schedule(plan);
  for (const RankLog& log : run_emulated(plan, lowered, {.steps = 2})) {
    for (const Event& event : log.steps.back().events) {
      const bool second = event.action.microbatch % 2 == 1;
      if (is_receive(event.action.kind)) CHECK(event.bytes.value == (second ? 256 : 768));
      if (event.action.kind != ActionKind::forward) continue;
      CHECK((event.end - event.start).value >= (second ? 4e-3 : 1e-3));
    }
  }
}

TEST_CASE("tied gradients are summed over both ranks, or between the chunks of one") {
  const int ranks = GENERATE(1, 3);
  const int steps = GENERATE(1, 2);
  Plan plan = emulated_plan({.schedule = ranks == 1 ? "interleaved-1f1b" : "1f1b",
                             .shape = {.ranks = ranks, .microbatches = 6, .chunks = ranks == 1 ? 3 : 1}});
  plan.costs.tied_bytes = {3 * sizeof(float)};
  const Schedule lowered = lower(plan.schedule, {.tied_embeddings = true});
  std::mutex mutex;
  std::map<int, std::vector<float>> sums;
  run_on_threads(make_local_transports(ranks), [&](Transport& transport) {
    const auto stages = make_emulated_stages(plan, transport.rank());
    for (const int stage : {0, 2}) {
      if (!stages[static_cast<std::size_t>(stage)]) continue;
      const auto gradient = stages[static_cast<std::size_t>(stage)]->tied_gradient().on_host();
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<float>(stage * 10 + static_cast<int>(i) + 1);
    }
    (void)run_rank(plan, lowered, transport, stages, {.steps = steps});
    const std::scoped_lock lock(mutex);
    for (const int stage : {0, 2}) {
      if (!stages[static_cast<std::size_t>(stage)]) continue;
      const auto gradient = stages[static_cast<std::size_t>(stage)]->tied_gradient().on_host();
      sums[stage] = {gradient.begin(), gradient.end()};
    }
  });
  // An emulated stage keeps its gradient, so that a second step adds the two sums.
  const auto times = static_cast<float>(steps);
  const std::vector<float> expected{22 * times, 24 * times, 26 * times};
  CHECK(sums[0] == expected);
  CHECK(sums[2] == expected);
}

TEST_CASE("a schedule that drops a weight gradient is caught at the end of the step") {
  const Plan plan = emulated_plan({.schedule = "zb-h1", .shape = {.ranks = 2, .microbatches = 4}});
  Schedule lowered = lower(plan.schedule, {});
  auto& actions = lowered.actions[1];
  actions.erase(actions.begin() + (find(lowered, 1, {ActionKind::weight_gradient, 1, 2}) - actions.data()));
  CHECK_THROWS_WITH(run_emulated(plan, lowered, {}), ContainsSubstring("rank 1, after step 1") &&
                                                         ContainsSubstring("microbatch 2 is left without its weight"));
}

TEST_CASE("an action before what it needs is named") {
  const Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 2, .microbatches = 4}});
  Schedule lowered = lower(plan.schedule, {});
  std::swap(*find(lowered, 1, {ActionKind::forward, 1, 1}), *find(lowered, 1, {ActionKind::forward, 1, 3}));
  CHECK_THROWS_WITH(run_emulated(plan, lowered, {}), ContainsSubstring("rank 1, step 1, 1F3") &&
                                                         ContainsSubstring("activation for stage 1, microbatch 3"));
}

TEST_CASE("ranks that wait for each other end at the deadline") {
  const Plan plan = emulated_plan({.shape = {.ranks = 2, .microbatches = 2}});
  Schedule lowered = lower(plan.schedule, {});
  // Rank 0 wants its first gradient before it sends the second activation; rank 1 wants both activations first.
  for (int rank = 0; rank < 2; ++rank) {
    auto& actions = lowered.actions[static_cast<std::size_t>(rank)];
    const Action wanted =
        rank == 0 ? Action{ActionKind::receive_backward, 0, 0} : Action{ActionKind::receive_forward, 1, 1};
    const auto found = std::find(actions.begin(), actions.end(), wanted);
    REQUIRE(found != actions.end());
    std::rotate(
        rank == 0 ? std::find(actions.begin(), actions.end(), Action{ActionKind::forward, 0, 1}) : actions.begin(),
        found, found + 1);
  }
  RunOptions options{.deadline_factor = 1};
  options.deadline_floor = {0.2};
  CHECK_THROWS_WITH(run_emulated(plan, lowered, options),
                    ContainsSubstring("before the deadline; --deadline SECONDS gives ranks longer"));
}

// The slow stage takes 0.4 s once where all work of the step was predicted as 128 ms, and that of one microbatch as 8
// ms: more than the floor and than ten times a microbatch, less than ten times the step.
TEST_CASE("a rank waits for the deadline factor's multiple of the predicted work") {
  class Slow : public Stage {
   public:
    explicit Slow(std::unique_ptr<Stage> stage) : stage_(std::move(stage)) {}
    void begin_step(std::int64_t step) override { stage_->begin_step(step); }
    Payload forward(int microbatch, Payload input) override {
      if (microbatch == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      return stage_->forward(microbatch, std::move(input));
    }
    void recompute(int microbatch) override { stage_->recompute(microbatch); }
    Payload input_gradient(int microbatch, Payload gradient) override {
      return stage_->input_gradient(microbatch, std::move(gradient));
    }
    Parcel evict(int microbatch) override { return stage_->evict(microbatch); }
    void load(int microbatch, Parcel parcel) override { stage_->load(microbatch, std::move(parcel)); }
    void weight_gradient(int microbatch) override { stage_->weight_gradient(microbatch); }
    std::vector<DeviceFloats> gradients() override { return stage_->gradients(); }
    DeviceFloats tied_gradient() override { return stage_->tied_gradient(); }
    std::vector<StoredWeight> stored_weights() override { return stage_->stored_weights(); }
    void optimizer_step() override { stage_->optimizer_step(); }
    void end_step() override { stage_->end_step(); }
    double loss() const override { return 0; }

   private:
    std::unique_ptr<Stage> stage_;
  };
  const Plan plan = emulated_plan({.shape = {.ranks = 2, .microbatches = 16}, .time = {0.001}});
  const Schedule lowered = lower(plan.schedule, {});
  const auto run = [&](double factor) {
    RunOptions options{.deadline_factor = factor};
    options.deadline_floor = {0.1};
    run_on_threads(make_local_transports(2), [&](Transport& transport) {
      auto stages = make_emulated_stages(plan, transport.rank());
      if (transport.rank() == 0) stages[0] = std::make_unique<Slow>(std::move(stages[0]));
      (void)run_rank(plan, lowered, transport, stages, options);
    });
  };
  CHECK_NOTHROW(run(10));
  CHECK_THROWS_WITH(run(1), ContainsSubstring("the deadline"));
}

// Nobody waits for a message's deadline, which is an hour.
TEST_CASE("a rank that fails stops the others, and its error is the one that is told") {
  class Failing : public Stage {
   public:
    void begin_step(std::int64_t) override {}
    Payload forward(int microbatch, Payload) override {
      if (microbatch == 2) throw std::runtime_error("out of memory");
      auto buffer = std::make_shared<std::vector<std::byte>>(256);
      return {.owner = buffer, .data = buffer->data(), .size = 256};
    }
    void recompute(int) override {}
    Payload input_gradient(int, Payload) override { return {}; }
    Parcel evict(int) override { return {}; }
    void load(int, Parcel) override {}
    void weight_gradient(int) override {}
    std::vector<DeviceFloats> gradients() override { return {}; }
    DeviceFloats tied_gradient() override { return {}; }
    std::vector<StoredWeight> stored_weights() override { return {}; }
    void optimizer_step() override {}
    void end_step() override {}
    double loss() const override { return 0; }
  };
  const Plan plan = emulated_plan({.schedule = "gpipe", .shape = {.ranks = 4, .microbatches = 4}});
  const Schedule lowered = lower(plan.schedule, {});
  const auto run = [&] {
    run_on_threads(make_local_transports(4), [&](Transport& transport) {
      auto stages = make_emulated_stages(plan, transport.rank());
      if (transport.rank() == 1) stages[1] = std::make_unique<Failing>();
      (void)run_rank(plan, lowered, transport, stages, {.deadline_floor = {3600}});
    });
  };
  CHECK_THROWS_WITH(run(), ContainsSubstring("rank 1, step 1, 1F2: out of memory") &&
                               ContainsSubstring("before it: ") && ContainsSubstring("1SEND_F1"));
}

TEST_CASE("an emulated stage does not wait out a predicted time once its run is told to stop") {
  Plan plan = emulated_plan({.shape = {.ranks = 1, .microbatches = 2}, .time = {0.2}});
  plan.costs.stages[0].optimizer = {0.2};
  const auto transports = make_local_transports(1);
  const auto stages = make_emulated_stages(plan, 0, {.run = transports[0].get()});
  Stage& stage = *stages[0];
  stage.begin_step(1);
  for (int microbatch = 0; microbatch < 2; ++microbatch) CHECK_NOTHROW((void)stage.forward(microbatch, {}));
  transports[0]->abort("told to");
  CHECK_THROWS_AS((void)stage.input_gradient(0, {}), plumb::exec::Stopped);
  CHECK_THROWS_AS(stage.weight_gradient(0), plumb::exec::Stopped);
  CHECK_THROWS_AS((void)stage.backward(1, {}), plumb::exec::Stopped);
  CHECK_THROWS_AS(stage.optimizer_step(), plumb::exec::Stopped);
  stage.begin_step(2);
  CHECK_THROWS_AS((void)stage.forward(0, {}), plumb::exec::Stopped);
}
