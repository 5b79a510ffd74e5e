// The runner on an asynchronous device and the local transport between such: every schedule, with plain loops as
// oracle.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "exec/device/host_device.hpp"
#include "exec/launch/launch.hpp"
#include "exec/run/rank_log.hpp"
#include "exec/run/rank_stages.hpp"
#include "exec/run/runner.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/receive_arena.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/effort.hpp"
#include "tests/exec/device/async_device.hpp"
#include "tests/exec/plans.hpp"
#include "tests/exec/run/hashing_stage.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::AsyncDevice;
using test::Speeds;

namespace {

using std::chrono::microseconds;

// Where copies are slow, values are used before they came unless somebody waits for them; where compute is slow, they
// are copied before they are there.
const Speeds slow_copies{.compute = microseconds(4), .copies = microseconds(400), .unhurried = microseconds(400)};
const Speeds slow_compute{.compute = microseconds(120)};
const Speeds slow_evictions{.compute = microseconds(4), .unhurried = microseconds(4000)};

struct Case {
  Plan plan;
  Schedule lowered;
  bool tied = false;
};

Case case_of(const ScheduleEntry& entry, int ranks) {
  const ScheduleShape shape = shape_for(entry, {.chunks = 2, .microbatches = 2 * ranks, .ranks = ranks});
  Case made;
  made.plan = emulated_plan({.schedule = entry.name, .shape = shape, .boundary_bytes = test::boundary_bytes});
  made.tied = made.plan.schedule.update_every == 0;
  made.lowered = lower(made.plan.schedule, {.tied_embeddings = made.tied});
  return made;
}

std::vector<float> values_of(Stage& stage) {
  std::vector<float> all;
  for (const DeviceFloats& of : stage.gradients()) all.insert(all.end(), of.on_host().begin(), of.on_host().end());
  return all;
}

// On each rank, whose stages then are compared with the oracle. All is looked at when the ranks have ended their steps.
void require_expected(const Case& of, const RankStages::List& stages) {
  const test::Expected expected = test::expected_step(plumb::stages(of.lowered), of.lowered.microbatches);
  for (int replica = 0; replica < replicas(of.lowered); ++replica) {
    for (int stage = 0; stage < plumb::stages(of.lowered); ++stage) {
      const auto& here = stages[stage_slot(of.lowered, replica, stage)];
      if (!here) continue;
      std::vector<float> wanted = expected.gradients[static_cast<std::size_t>(stage)];
      const bool end = stage == 0 || stage + 1 == plumb::stages(of.lowered);
      if (of.tied && end) wanted.insert(wanted.end(), expected.tied.begin(), expected.tied.end());
      if (values_of(*here) != wanted) throw RunError("", "gradients of stage " + std::to_string(stage) + " differ");
    }
  }
}

RankStages::List stages_of(const Case& of, int rank, Device& device, const test::Put& put) {
  const int count = stages(of.lowered);
  RankStages::List made(stage_slot(of.lowered, replicas(of.lowered), 0));
  for (int replica = 0; replica < replicas(of.lowered); ++replica) {
    for (int stage = 0; stage < count; ++stage) {
      if (rank_in_replica(of.lowered, replica, stage) != rank) continue;
      made[stage_slot(of.lowered, replica, stage)] =
          std::make_unique<test::HashingStage>(device, put, stage, count, of.tied);
    }
  }
  return made;
}

std::vector<std::unique_ptr<AsyncDevice>> devices_of(int ranks, const Speeds& speeds) {
  std::vector<std::unique_ptr<AsyncDevice>> devices;
  for (int rank = 0; rank < ranks; ++rank) {
    devices.push_back(std::make_unique<AsyncDevice>(100U * static_cast<std::uint32_t>(rank + 1), speeds));
  }
  return devices;
}

std::vector<Device*> pointers(const std::vector<std::unique_ptr<AsyncDevice>>& devices) {
  std::vector<Device*> all;
  for (const auto& device : devices) all.push_back(device.get());
  return all;
}

// All that is planned has its slot when it comes: only what is evicted may hold one longer.
std::vector<RankLog> run_on(const Case& of, const std::vector<std::unique_ptr<AsyncDevice>>& devices) {
  std::vector<RankLog> logs(devices.size());
  const std::vector<ReceiveSlots> slots = plan_receive_arenas(of.lowered, of.plan.costs);
  run_on_threads(make_local_device_transports(pointers(devices)), [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    AsyncDevice& device = *devices[rank];
    const auto stages = stages_of(of, transport.rank(), device,
                                  [&](std::function<void()> work) { device.compute().run(std::move(work)); });
    const ReceiveArena arena(device, slots[rank]);
    logs[rank] = run_rank(of.plan, of.lowered, transport, stages, {.steps = 2, .device = &device, .arena = &arena});
    require_expected(of, stages);
    if (arena.refused() > 0 && !evicts(of.lowered)) throw RunError("", "a slot was held longer than planned");
    transport.barrier(Clock::now() + std::chrono::seconds(60));  // until all have looked, nobody lets go of anything
  });
  return logs;
}

double loss_of(const Case& of, const std::vector<RankLog>& logs) {
  double loss = 0;
  for (int replica = 0; replica < replicas(of.lowered); ++replica) {
    const int last = rank_in_replica(of.lowered, replica, stages(of.lowered) - 1);
    loss += logs[static_cast<std::size_t>(last)].steps.back().loss;
  }
  return loss;
}

}  // namespace

TEST_CASE("every schedule computes the same on an asynchronous device as by plain loops") {
  const std::pair<const char*, Speeds> kinds[] = {
      {"slow copies", slow_copies}, {"slow compute", slow_compute}, {"slow evictions", slow_evictions}};
  std::size_t tried = 0;
  for (const auto& [kind, speeds] : kinds) {
    for (const ScheduleEntry& entry : schedule_entries()) {
      for (const int ranks : {2, 4}) {
        if (!testing::tries(tried++)) continue;
        INFO(entry.name << " on " << ranks << ", " << kind);
        const Case of = case_of(entry, ranks);
        const auto devices = devices_of(ranks, speeds);
        std::vector<RankLog> logs;
        REQUIRE_NOTHROW(logs = run_on(of, devices));
        CHECK(loss_of(of, logs) == test::expected_step(stages(of.lowered), of.lowered.microbatches).loss);
      }
    }
  }
}

TEST_CASE("and so does the host, over the transport that hands over pointers") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    for (const int ranks : {2, 4}) {
      INFO(entry.name << " on " << ranks);
      const Case of = case_of(entry, ranks);
      std::vector<RankLog> logs(static_cast<std::size_t>(ranks));
      REQUIRE_NOTHROW(run_on_threads(make_local_transports(ranks), [&](Transport& transport) {
        const auto device = make_host_device();
        const auto stages = stages_of(of, transport.rank(), *device, [](const std::function<void()>& work) { work(); });
        logs[static_cast<std::size_t>(transport.rank())] =
            run_rank(of.plan, of.lowered, transport, stages, {.steps = 2, .device = device.get()});
        require_expected(of, stages);
      }));
      CHECK(loss_of(of, logs) == test::expected_step(stages(of.lowered), of.lowered.microbatches).loss);
    }
  }
}

TEST_CASE("the norm is that of complete gradients, by bits on every rank, and what is applied is scaled by it") {
  const auto* const name = GENERATE("1f1b", "interleaved-1f1b", "zb-h1", "dualpipe");
  constexpr double limit = 8;
  Case of = case_of(find_schedule(name), 4);
  of.plan.training.gradient_clipping = limit;
  of.lowered = lower(of.plan.schedule, {.optimizer = true, .clips_gradients = true, .tied_embeddings = of.tied});
  const test::Expected expected = test::expected_step(stages(of.lowered), of.lowered.microbatches);
  double squares = 0;  // of whole numbers: exact
  const auto add = [&](float value) { squares += static_cast<double>(value) * value; };
  for (const auto& gradient : expected.gradients) std::ranges::for_each(gradient, add);
  std::ranges::for_each(expected.tied, add);
  const auto scale = static_cast<float>(limit / (std::sqrt(squares) + 1e-6));
  REQUIRE(scale < 0.5F);
  for (const Speeds& speeds : {slow_copies, slow_compute}) {
    const auto devices = devices_of(4, speeds);
    run_on_threads(make_local_device_transports(pointers(devices)), [&](Transport& transport) {
      AsyncDevice& device = *devices[static_cast<std::size_t>(transport.rank())];
      const auto made = stages_of(of, transport.rank(), device,
                                  [&](std::function<void()> work) { device.compute().run(std::move(work)); });
      const RankLog log = run_rank(of.plan, of.lowered, transport, made, {.steps = 2, .device = &device});
      for (const RankStep& step : log.steps) {
        if (step.gradient_norm != std::sqrt(squares)) throw RunError("", "another norm");
      }
      for (std::size_t slot = 0; slot < made.size(); ++slot) {
        if (!made[slot]) continue;
        std::vector<float> wanted = expected.gradients[slot % expected.gradients.size()];
        for (float& value : wanted) value *= scale;
        if (dynamic_cast<test::HashingStage&>(*made[slot]).applied() != wanted) throw RunError("", "another update");
      }
      transport.barrier(Clock::now() + std::chrono::seconds(60));
    });
  }
}

TEST_CASE(
    "a timeline has the device's times: what a rank computes follows each other, and what it receives came before") {
  const auto* const name = GENERATE("1f1b", "zb-h1", "bpipe", "dualpipe");
  const Case of = case_of(find_schedule(name), 4);
  const auto devices = devices_of(4, slow_compute);
  const std::vector<RankLog> logs = run_on(of, devices);
  for (const RankLog& log : logs) {
    for (const RankStep& step : log.steps) {
      const auto& actions = of.lowered.actions[static_cast<std::size_t>(log.rank)];
      REQUIRE(step.events.size() == actions.size());
      Seconds computed = step.start;
      Seconds lasted{0};
      for (std::size_t i = 0; i < actions.size(); ++i) {
        const Event& event = step.events[i];
        INFO(name << ", rank " << log.rank << ", " << to_string(event.action));
        CHECK(event.action == actions[i]);
        if (!is_compute(event.action.kind)) continue;
        CHECK(event.start >= computed);
        CHECK(event.end >= event.start);
        computed = event.end;
        lasted += event.end - event.start;
        for (const Event& other : step.events) {
          const bool loads = other.action.kind == ActionKind::load || other.action.kind == ActionKind::receive_backward;
          const bool feeds = event.action.kind == ActionKind::forward
                                 ? other.action.kind == ActionKind::receive_forward
                                 : loads && event.action.kind != ActionKind::weight_gradient;
          const bool same =
              other.action.stage == event.action.stage && other.action.microbatch == event.action.microbatch;
          if (feeds && same) CHECK(other.end <= event.start);
        }
      }
      // Nothing was waited for on the host: the work took as long on the device as it must.
      CHECK(lasted.value > 0);
    }
  }
  const Timeline timeline = merge_logs(of.plan, of.lowered, logs, "test");
  CHECK(timeline.steps.size() == 2);
}

// 1 ms of work per action, put on the stream within microseconds.
TEST_CASE("a rank puts its whole step on the device without waiting for it") {
  const Case of = case_of(find_schedule("gpipe"), 1);
  AsyncDevice device(1, {.compute = microseconds(2000)});
  Clock::time_point put_last;
  class Noting final : public Stage {
   public:
    Noting(std::unique_ptr<Stage> stage, Clock::time_point& last) : stage_(std::move(stage)), last_(last) {}
    void begin_step(std::int64_t step) override { stage_->begin_step(step); }
    Payload forward(int m, Payload input) override { return stage_->forward(m, std::move(input)); }
    void recompute(int m) override { stage_->recompute(m); }
    Payload input_gradient(int m, Payload gradient) override { return stage_->input_gradient(m, std::move(gradient)); }
    Parcel evict(int m) override { return stage_->evict(m); }
    void load(int m, Parcel parcel) override { stage_->load(m, std::move(parcel)); }
    void weight_gradient(int m) override { stage_->weight_gradient(m); }
    std::vector<DeviceFloats> gradients() override { return stage_->gradients(); }
    DeviceFloats tied_gradient() override { return stage_->tied_gradient(); }
    std::vector<StoredWeight> stored_weights() override { return stage_->stored_weights(); }
    void optimizer_step() override { last_ = Clock::now(); }
    void end_step() override { stage_->end_step(); }
    double loss() const override { return stage_->loss(); }

   private:
    std::unique_ptr<Stage> stage_;
    Clock::time_point& last_;
  };
  RankStep step;
  run_on_threads(make_local_device_transports(std::vector<Device*>{&device}), [&](Transport& transport) {
    auto stages = stages_of(of, 0, device, [&](std::function<void()> work) { device.compute().run(std::move(work)); });
    stages[0] = std::make_unique<Noting>(std::move(stages[0]), put_last);
    step = run_rank(of.plan, of.lowered, transport, stages, {.steps = 1, .device = &device}).steps.front();
  });
  const Seconds host = seconds_of(put_last) - step.start;
  const Seconds all = step.events.back().end - step.start;
  CHECK(all.value > 0.006);  // 2 microbatches, at least 3 pieces of work of 1 ms each
  CHECK(host < all / 2);
}

TEST_CASE("work that does not end on the device is named when its deadline has passed") {
  const Case of = case_of(find_schedule("1f1b"), 2);
  const auto devices = devices_of(2, slow_compute);
  std::mutex held;
  RunOptions options{.deadline_factor = 1};
  options.deadline_floor = {0.3};
  std::unique_lock lock(held);
  const auto transports = make_local_device_transports(pointers(devices));  // they end with their streams' work
  const auto run = [&] {
    run_on_threads(transports, [&](Transport& transport) {
      AsyncDevice& device = *devices[static_cast<std::size_t>(transport.rank())];
      int work = 0;
      const auto stages = stages_of(of, transport.rank(), device, [&](std::function<void()> piece) {
        device.compute().run(std::move(piece));
        const bool stops = transport.rank() == 1 && ++work == 5;
        if (stops) device.compute().run([&held] { const std::scoped_lock until_released(held); });
      });
      RunOptions mine = options;
      mine.device = &device;
      (void)run_rank(of.plan, of.lowered, transport, stages, mine);
    });
  };
  CHECK_THROWS_WITH(run(),
                    ContainsSubstring("has not ended on test before the deadline") && ContainsSubstring("step 1, "));
  lock.unlock();
}

TEST_CASE("sums on a device are the same bits on every rank, added in the order of the group") {
  const auto devices = devices_of(3, slow_copies);
  // In fp32 the order matters: (1 + 1e8) - 1e8 = 0, 1 + (1e8 - 1e8) = 1.
  const std::vector<float> parts{1.0F, 1e8F, -1e8F};
  std::vector<float> sums(3);
  run_on_threads(make_local_device_transports(pointers(devices)), [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    AsyncDevice& device = *devices[rank];
    const Payload values = device.allocate(sizeof(float));
    auto* const value = reinterpret_cast<float*>(values.data);
    for (int times = 0; times < 3; ++times) {
      device.compute().run([=, &parts] { *value = parts[rank]; });
      transport.all_reduce(std::vector<int>{0, 1, 2}, {value, 1}, Clock::now() + std::chrono::seconds(600));
    }
    device.align_clock();
    sums[rank] = *value;
    transport.barrier(Clock::now() + std::chrono::seconds(600));
  });
  CHECK(sums == std::vector<float>{0, 0, 0});
}

// Counted: the arena once, and what the stages make, by their own description.
TEST_CASE(
    "what a run receives goes into the arena that was planned, and nothing is allocated for it within the steps") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    Case of = case_of(entry, 4);
    if (replicas(of.lowered) == 2 || evicts(of.lowered)) continue;
    of.tied = false;
    of.lowered = lower(of.plan.schedule, {});
    INFO(entry.name);
    const auto devices = devices_of(4, {});
    REQUIRE_NOTHROW(run_on(of, devices));
    const std::vector<ReceiveSlots> slots = plan_receive_arenas(of.lowered, of.plan.costs);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      int values = 0;  // of the size of a message, in a step
      for (const Action& action : of.lowered.actions[rank]) {
        if (action.kind == ActionKind::forward) values += action.stage == 0 ? 2 : 1;
        const bool gradient = action.kind == ActionKind::backward || action.kind == ActionKind::input_gradient;
        if (gradient) values += action.stage + 1 == stages(of.lowered) ? 2 : 1;
      }
      const auto held = static_cast<int>(stages_of_rank(of.lowered, static_cast<int>(rank)).size());
      const std::size_t of_stages = static_cast<std::size_t>(held) *
                                        ((test::gradient_values + test::tied_values) * sizeof(float) + sizeof(double)) +
                                    2 * static_cast<std::size_t>(values) * test::boundary_bytes;
      CHECK(devices[rank]->allocated() - Bytes{static_cast<std::int64_t>(of_stages)} == arena_bytes(slots[rank]));
      CHECK(devices[rank]->allocations() == 2 * held + 2 * values + 1);
    }
  }
}

TEST_CASE("a slot that is held longer than planned costs memory beside the arena, and the run stays right") {
  const Case of = case_of(find_schedule("zb-h1"), 4);
  const auto devices = devices_of(4, slow_copies);
  std::vector<ReceiveSlots> slots = plan_receive_arenas(of.lowered, of.plan.costs);
  std::vector<std::int64_t> refused(4);
  run_on_threads(make_local_device_transports(pointers(devices)), [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    // As if all came one after the other.
    for (std::int32_t& slot : slots[rank].slot_of) slot = std::min(slot, 0);
    slots[rank].count = 1;
    AsyncDevice& device = *devices[rank];
    const auto stages = stages_of(of, transport.rank(), device,
                                  [&](std::function<void()> work) { device.compute().run(std::move(work)); });
    const ReceiveArena arena(device, slots[rank]);
    (void)run_rank(of.plan, of.lowered, transport, stages, {.steps = 2, .device = &device, .arena = &arena});
    require_expected(of, stages);
    refused[rank] = arena.refused();
    transport.barrier(Clock::now() + std::chrono::seconds(60));
  });
  CHECK(refused[2] > 0);  // two microbatches at a time, and their gradients
}

TEST_CASE("a device's buffers are given back when the step has ended") {
  const Case of = case_of(find_schedule("1f1b"), 4);
  const auto devices = devices_of(4, slow_copies);
  (void)run_on(of, devices);
  // Stages, transports and all they held are gone.
  for (const auto& device : devices) CHECK(device->in_use() == 0);
}
