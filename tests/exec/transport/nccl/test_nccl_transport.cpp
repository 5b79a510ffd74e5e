// The NCCL transport over a fake library that keeps NCCL's rules: pairing, sums, mismatch, errors, aborts, deadlines.
#include <array>
#include <atomic>
#include <thread>

#include "common/schedule/validate/validate.hpp"
#include "exec/calibrate/device_rates.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/device/host_with_streams.hpp"
#include "tests/exec/fake_nccl/fake_step.hpp"
#include "tests/exec/fake_nccl/nccl_ranks.hpp"
#include "tests/exec/run/evicting.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::AsyncDevice;

namespace {

PipelineCosts costs_of(const Schedule& lowered, std::size_t bytes = 64) {
  PipelineCosts costs =
      even_costs(stages(lowered), {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}});
  costs.boundary_bytes = {static_cast<std::int64_t>(bytes)};
  return costs;
}

Layout pipeline_of(int ranks) {
  Layout layout;
  layout.pipeline = ranks;
  return layout;
}

// So many steps of a schedule over the fake library, received into planned arenas; returns the inputs that were wrong,
// and the receives that found no room there, on all ranks together.
int run_schedule(const Schedule& lowered, int steps, double seconds = 600, std::size_t bytes = 64) {
  const LaunchPlan plan = plan_launches(lowered, costs_of(lowered, bytes));
  const std::vector<ReceiveSlots> slots = plan_receive_arenas(lowered, costs_of(lowered, bytes), plan);
  std::atomic<int> wrong = 0;
  const NcclRun run{.communicators = plan_communicators(lowered, pipeline_of(lowered.ranks)), .message_bytes = bytes};
  run_nccl_ranks(lowered.ranks, run, [&](Transport& transport, AsyncDevice& device) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    const ReceiveArena arena(device, slots[rank]);
    for (int step = 0; step < steps; ++step) {
      FakeStep one(lowered, transport, device, bytes, &arena);
      wrong += one.run(plan.ranks[rank], seconds);
      transport.barrier(in_seconds(seconds));
    }
    wrong += static_cast<int>(arena.refused());
  });
  return wrong;
}

Schedule one_f_one_b(int ranks, bool tied = false) {
  return lower(generate_schedule("1f1b", {.ranks = ranks, .microbatches = 2 * ranks}), {.tied_embeddings = tied});
}

}  // namespace

TEST_CASE("every schedule of the library runs over NCCL's rules: each value arrives where it belongs") {
  const int ranks = GENERATE(2, 4, 8);
  for (const ScheduleEntry& entry : schedule_entries()) {
    const GridShape grid{2, 2 * ranks, ranks};
    if (!applies(entry, grid)) continue;
    const Schedule lowered = lower(generate_schedule(entry.name, shape_for(entry, grid)), {});
    if (replicas(lowered) == 2) continue;  // below
    const FakeNccl fake;
    INFO(entry.name << ", p = " << ranks);
    CHECK(run_schedule(lowered, 1) == 0);
    const FakeNcclCounts counts = fake.counts();
    CHECK(counts.mismatches == 0);
    CHECK(counts.joined == (evicts(lowered) ? 3 : 2) * ranks);  // down and up, and evictions
    CHECK(counts.destroyed == counts.joined);
    CHECK(counts.aborted == 0);
    CHECK(counts.used_after_abort == 0);
  }
}

TEST_CASE("evicted activations come back as they were, on any number of ranks, of any sizes, step after step") {
  const int ranks = GENERATE(2, 4, 8);
  const Schedule lowered = lower(test::evicting_gpipe(ranks, 8), {});
  REQUIRE_NOTHROW(require_valid(lowered));
  const FakeNccl fake;
  INFO("p = " << ranks);
  CHECK(run_schedule(lowered, 3) == 0);
  const FakeNcclCounts counts = fake.counts();
  CHECK(counts.mismatches == 0);
  CHECK(counts.joined == 3 * ranks);
  CHECK(counts.aborted == 0);
}

TEST_CASE("two ranks that evict to each other do not wait in a circle") {
  const FakeNccl fake;
  CHECK(run_schedule(lower(test::evicting_to_each_other(), {}), 3) == 0);
  CHECK(fake.counts().mismatches == 0);
}

TEST_CASE("a rank that waits for the sizes of a parcel ends with the run") {
  const FakeNccl fake;
  const Schedule lowered = lower(test::evicting_gpipe(2, 4), {});
  const LaunchPlan plan = plan_launches(lowered, costs_of(lowered));
  const NcclRun run{.communicators = plan_communicators(lowered, pipeline_of(2))};
  CHECK_THROWS_WITH(run_nccl_ranks(2, run,
                                   [&](Transport& transport, AsyncDevice& device) {
                                     if (transport.rank() == 0) throw RunError("rank 0", "has had enough");
                                     FakeStep step(lowered, transport, device, 64);
                                     (void)step.run(plan.ranks[1], 3600);
                                   }),
                    ContainsSubstring("has had enough"));
}

TEST_CASE("two pipelines in opposite directions share both communicators") {
  for (const char* name : {"chimera", "dualpipe"}) {
    const Schedule lowered = lower(generate_schedule(name, {.ranks = 4, .microbatches = 8}), {});
    const FakeNccl fake;
    CHECK(run_schedule(lowered, 2) == 0);
    CHECK(fake.counts().mismatches == 0);
  }
}

TEST_CASE("steps follow each other, and a tied embedding's gradients are summed on their own communicator") {
  const FakeNccl fake;
  CHECK(run_schedule(one_f_one_b(4, true), 3, 600, 4096) == 0);
  CHECK(fake.counts().joined == 4 + 4 + 2);
}

TEST_CASE("collectives run on the communicator that they name") {
  const FakeNccl fake;
  std::atomic<int> wrong = 0;
  const NcclRun run{.communicators = {{CommunicatorUse::tensor, {0, 2, 3}}, {CommunicatorUse::data, {0, 1}}}};
  const std::vector<int> group{0, 2, 3};
  run_nccl_ranks(4, run, [&](Transport& transport, AsyncDevice&) {
    if (transport.rank() == 1) {
      CHECK_THROWS_WITH(transport.collective({.use = CommunicatorUse::tensor, .group = group}),
                        ContainsSubstring("is in no communicator tensor (ranks 0, 2, 3)"));
      return;
    }
    const int position = transport.rank() == 0 ? 0 : transport.rank() - 1;
    std::vector<float> own{static_cast<float>(position), 1, 2};
    std::vector<float> gathered(9);
    std::vector<float> exchanged(3);
    const auto call = [&](Collective kind, std::vector<float>& output, std::size_t count) {
      return transport.collective({.kind = kind,
                                   .use = CommunicatorUse::tensor,
                                   .group = group,
                                   .input = reinterpret_cast<const std::byte*>(own.data()),
                                   .output = reinterpret_cast<std::byte*>(output.data()),
                                   .count = count});
    };
    transport.await(call(Collective::all_gather, gathered, 3), in_seconds(600));
    transport.await(call(Collective::all_to_all, exchanged, 1), in_seconds(600));
    for (int rank = 0; rank < 3; ++rank)
      wrong += gathered[static_cast<std::size_t>(3 * rank)] == static_cast<float>(rank) ? 0 : 1;
    // Element `position` of each rank's three.
    wrong += exchanged[2] == (position == 0 ? 2.0F : static_cast<float>(position)) ? 0 : 1;
    transport.await(call(Collective::all_reduce, own, 3), in_seconds(600));
    wrong += own == std::vector<float>{3, 3, 6} ? 0 : 1;
  });
  CHECK(wrong == 0);
}

TEST_CASE("an asynchronous error ends the run: rank, action and peer are named, all communicators are aborted") {
  const FakeNccl fake({.faulty_rank = 1, .faulty_batch = 2, .fault = FakeNcclScript::Fault::asynchronous_error});
  CHECK_THROWS_WITH(run_schedule(one_f_one_b(4), 1), ContainsSubstring("rank 1: ") && ContainsSubstring(" rank ") &&
                                                         ContainsSubstring("remote process exited") &&
                                                         ContainsSubstring("NCCL_DEBUG"));
  const FakeNcclCounts counts = fake.counts();
  CHECK(counts.aborted == counts.joined);
  CHECK(counts.destroyed == 0);
  CHECK(counts.used_after_abort == 0);
}

TEST_CASE("a rank whose kernels hang is found at the deadline, with what did not end, and nobody hangs after it") {
  const FakeNccl fake({.faulty_rank = 2, .faulty_batch = 1, .fault = FakeNcclScript::Fault::hang});
  CHECK_THROWS_WITH(run_schedule(one_f_one_b(4), 1, 0.3),
                    ContainsSubstring("has not ended before the deadline") && ContainsSubstring("on "));
  CHECK(fake.counts().aborted == fake.counts().joined);
}

TEST_CASE("a stop by another rank, or a signal, aborts what waits on the device") {
  const FakeNccl fake;
  const Schedule lowered = one_f_one_b(2);
  const LaunchPlan plan = plan_launches(lowered, costs_of(lowered));
  const NcclRun run{.communicators = plan_communicators(lowered, pipeline_of(2))};
  const auto rank_main = [&](Transport& transport, AsyncDevice& device) {
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      throw RunError("rank 1", "has had enough");
    }
    FakeStep step(lowered, transport, device, 64);
    (void)step.run(plan.ranks[0], 3600);
  };
  CHECK_THROWS_WITH(run_nccl_ranks(2, run, rank_main), ContainsSubstring("has had enough"));
  CHECK(fake.counts().aborted == 4);
}

TEST_CASE("a communicator whose ranks do not all come is given up, and those that are missing are named") {
  const FakeNccl fake({.faulty_rank = 1, .hang_in_init = true});
  const NcclRun run{.communicators = {{CommunicatorUse::down, {0, 1, 2}}}, .start_timeout = {0.3}};
  CHECK_THROWS_WITH(run_nccl_ranks(3, run, [](Transport&, AsyncDevice&) {}),
                    ContainsSubstring("communicator down (ranks 0-2) was not complete"));
  Board board;
  AsyncDevice device;
  auto controls = make_local_transports(3);
  const NcclOptions options{
      .communicators = run.communicators, .start_timeout = {0.2}, .library_file = PLUMB_FAKE_NCCL};
  CHECK_THROWS_WITH(make_nccl_transport(options, std::move(controls[1]), device, board.rendezvous()),
                    ContainsSubstring("rank 1: communicator down (ranks 0-2) was not complete after") &&
                        ContainsSubstring("ranks 0, 2 have not come"));
}

TEST_CASE("messages of another size, unknown peers, what was not launched and undeclared evictions are refused") {
  const FakeNccl fake;
  const NcclRun run{.communicators = {{CommunicatorUse::down, {0, 1}}, {CommunicatorUse::up, {0, 1}}},
                    .message_bytes = 16};
  std::atomic<int> right = 0;
  const auto says = [&](const auto& call, const std::string& text) {
    try {
      call();
    } catch (const RunError& error) {
      if (error.problem().find(text) != std::string::npos) ++right;
    }
  };
  run_nccl_ranks(2, run, [&](Transport& transport, AsyncDevice&) {
    const int peer = 1 - transport.rank();
    says([&] { transport.send(peer, Channel::forward, pattern(0, Channel::forward, 0, 12)); }, "sends 12 bytes");
    says([&] { transport.expect(7, Channel::forward, 16, 1); }, "has no peer 7");
    says([&] { (void)transport.receive(peer, Channel::forward, in_seconds(1)); }, "has not been launched");
    says([&] { transport.send_parcel(peer, {}); }, "no communicator was declared");
    const RankLaunches launches{
        {.use = CommunicatorUse::down,
         .operations = {{.action = {ActionKind::send_forward, 0, 0}, .index = 1, .peer = peer, .sends = true}},
         .place = 2}};
    transport.begin_step(launches, std::array{0, 1});
    says([&] { (void)transport.end_step(); }, "1 batches were not launched, the first 0SEND_F0 to rank");
    says([&] { transport.reach(2); }, "0SEND_F0 has not been handed over");
  });
  CHECK(right == 12);
}

TEST_CASE("send buffers are freed within the step, and receive buffers are reused") {
  const FakeNccl fake;
  const int microbatches = 32;
  const Schedule lowered = lower(generate_schedule("gpipe", {.ranks = 2, .microbatches = microbatches}), {});
  const LaunchPlan plan = plan_launches(lowered, costs_of(lowered));
  // The host puts the whole step on the streams while the device is at its first piece of work.
  const NcclRun run{.communicators = plan_communicators(lowered, pipeline_of(2)),
                    .speeds = {.compute = std::chrono::microseconds(2000)}};
  std::vector<int> most(2);
  std::atomic<int> wrong = 0;
  run_nccl_ranks(2, run, [&](Transport& transport, AsyncDevice& device) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    FakeStep step(lowered, transport, device, 64);
    wrong += step.run(plan.ranks[rank], 20);
    most[rank] = device.most_in_use();
  });
  // All 32 values of a step come and go; what is sent and the buffers are a few at any time.
  for (const int in_use : most) CHECK(in_use <= 16);
  CHECK(wrong == 0);
}

TEST_CASE("sums of one group on two communicators each go where the plan has them") {
  // A tied table on the ranks of the first and the last stage, which are also the two that hold both replicas of a
  // stage.
  const FakeNccl fake;
  std::atomic<int> wrong = 0;
  const NcclRun run{.communicators = {{CommunicatorUse::evictions, {0, 1}},
                                      {CommunicatorUse::tied, {0, 1}},
                                      {CommunicatorUse::replicas, {0, 1}}}};
  run_nccl_ranks(2, run, [&](Transport& transport, AsyncDevice& device) {
    const int peer = 1 - transport.rank();
    const auto sum = [&](ActionKind kind, CommunicatorUse use, std::int32_t place) {
      return LaunchBatch{
          .use = use, .operations = {{.action = {kind, 0, 0}, .index = place, .peer = peer}}, .place = place};
    };
    const RankLaunches launches{sum(ActionKind::reduce_gradient, CommunicatorUse::replicas, 0),
                                sum(ActionKind::reduce_tied, CommunicatorUse::tied, 1)};
    transport.begin_step(launches, std::array{0, 1});
    std::vector<float> values{1.0F};
    for (const std::int32_t place : {0, 1}) {
      transport.reach(place);
      transport.all_reduce(std::vector<int>{0, 1}, values, in_seconds(600));
    }
    transport.reach(2);
    const std::vector<Launched> launched = transport.end_step();
    for (const Launched& of : launched) {
      wrong += of.begin && of.end ? 0 : 1;  // each was launched by its own action
      if (of.end) transport.await(of.end, in_seconds(600));
    }
    transport.await(device.compute().record(), in_seconds(600));
    wrong += values.front() == 4.0F ? 0 : 1;
  });
  CHECK(wrong == 0);
}

TEST_CASE("sends and collectives are measured over as many devices as there are") {
  const FakeNccl fake;
  std::vector<std::unique_ptr<Device>> devices;
  for (std::uint32_t rank = 0; rank < 3; ++rank) devices.push_back(std::make_unique<test::HostWithStreams>(rank + 1));
  const DeviceRates measured =
      measure_rates(devices, {.transport = "nccl", .nccl_library = PLUMB_FAKE_NCCL, .sizes = {1200, 120000}});
  std::vector<std::string> operations;
  for (const MeasuredRate& rate : measured.rates) {
    operations.push_back(rate.operation + " " + std::to_string(rate.ranks));
    CHECK(rate.samples.size() == 2);
    CHECK(rate.samples.back().time.value > 0);
    CHECK(rate.cost.bandwidth.value > 0);
  }
  CHECK(operations == std::vector<std::string>{"copy 1", "add 1", "send 2", "all-reduce 2", "all-gather 2",
                                               "reduce-scatter 2", "all-reduce 3", "all-gather 3", "reduce-scatter 3"});
  CHECK(fake.counts().mismatches == 0);
  CHECK(fake.counts().destroyed == 2 + 2 + 3);
}
