// Tensor and data groups over NCCL's rules, through the runner on an asynchronous device: what every collective brings,
// bytes, orders that cannot wait in a circle, failures.
#include <atomic>
#include <thread>

#include "exec/run/runner.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/receive_arena.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/fake_nccl/nccl_ranks.hpp"
#include "tests/exec/plans.hpp"
#include "tests/exec/run/hashing_stage.hpp"
#include "tests/exec/run/moving_stage.hpp"
#include "tests/exec/transport/launch_plan/made_up_calls.hpp"

using namespace plumb;
using namespace plumb::exec;
using std::chrono::microseconds;
using test::AsyncDevice;

namespace {

struct Case {
  Plan plan;
  Schedule lowered;
  std::vector<RankCalls> calls;  // by rank
};

Case case_of(const std::string& schedule, const Layout& layout, bool recomputed = false) {
  const ScheduleEntry& entry = find_schedule(schedule);
  const ScheduleShape shape = shape_for(entry, {2, 2 * layout.pipeline, layout.pipeline});
  Case made;
  made.plan = emulated_plan({.schedule = schedule, .shape = shape, .boundary_bytes = test::boundary_bytes});
  made.plan.layout = layout;
  made.plan.cluster.ranks = ranks(layout);
  if (recomputed) {
    const auto count = static_cast<std::size_t>(stages(made.plan.schedule));
    made.plan.schedule = with_recompute(made.plan.schedule, std::vector<bool>(count, true));
  }
  made.lowered = lower(made.plan.schedule, {.optimizer = true, .data_parallel = layout.data.degree > 1});
  made.calls = test::made_up_calls(layout, made.lowered);
  return made;
}

struct Options {
  int steps = 2;
  test::Speeds speeds = {};
  double deadline = 30;
  std::function<test::MovingStage::Change(int rank)> change = {};
};

struct Ran {
  std::vector<RankLog> logs;  // by rank
  int wrong = 0;              // elements of collectives, and gradients that are not those of plain loops
};

// The pipelines' gradients are alike, so that their sum is so many times one of them.
int wrong_gradients(const Case& of, const std::vector<std::unique_ptr<Stage>>& stages) {
  const test::Expected expected = test::expected_step(plumb::stages(of.lowered), of.lowered.microbatches);
  int wrong = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (!stages[stage]) continue;
    const std::vector<DeviceFloats> all = stages[stage]->gradients();
    const std::span<float> values = all.front().on_host();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float wanted = expected.gradients[stage][i] * static_cast<float>(of.plan.layout.data.degree);
      wrong += values[i] == wanted ? 0 : 1;
    }
  }
  return wrong;
}

Ran run(const Case& of, const Options& options = {}) {
  const LaunchPlan messages = plan_launches(of.lowered, of.plan.costs);
  const LaunchPlan launches = test::all_launches(of.plan.layout, of.lowered, messages, of.calls);
  const std::vector<ReceiveSlots> slots = plan_receive_arenas(of.lowered, of.plan.costs, messages);
  Ran ran{.logs = std::vector<RankLog>(of.calls.size())};
  const auto wrong = std::make_shared<std::atomic<int>>(0);
  const NcclRun nccl{
      .communicators = plan_communicators(of.lowered, of.plan.layout, test::MadeUpCalls::parts(of.plan.layout)),
      .message_bytes = test::boundary_bytes,
      .speeds = options.speeds};
  run_nccl_ranks(ranks(of.plan.layout), nccl, [&](Transport& transport, AsyncDevice& device) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    const int place = lane_of(of.plan.layout, transport.rank()).pipeline_rank;
    std::vector<std::unique_ptr<Stage>> stages(static_cast<std::size_t>(plumb::stages(of.lowered)));
    for (const int stage : stages_of_rank(of.lowered, place)) {
      auto hashing = std::make_unique<test::HashingStage>(
          device, [&](std::function<void()> work) { device.compute().run(std::move(work)); }, stage,
          plumb::stages(of.lowered), false);
      stages[static_cast<std::size_t>(stage)] = std::make_unique<test::MovingStage>(
          std::move(hashing), stage, of.calls[rank], transport, device, wrong,
          options.change ? options.change(transport.rank()) : test::MovingStage::Change());
    }
    const ReceiveArena arena(device, slots[static_cast<std::size_t>(place)]);
    ran.logs[rank] = run_rank(of.plan, of.lowered, transport, stages,
                              {.steps = options.steps,
                               .deadline_factor = 1,
                               .deadline_floor = {options.deadline},
                               .device = &device,
                               .launches = &launches.ranks[rank],
                               .arena = &arena});
    *wrong += wrong_gradients(of, stages) + static_cast<int>(arena.refused());
    transport.barrier(in_seconds(30));
  });
  ran.wrong = *wrong;
  return ran;
}

// As rings move it: of each whole that is gathered or scattered what others have, of a sum both.
double bytes_of(const GroupCall& call) {
  const auto ranks = static_cast<double>(call.of.ranks.size());
  const double whole = static_cast<double>(call.count) * sizeof(float);
  return call.kind == Collective::all_reduce ? 2 * (ranks - 1) / ranks * whole : (ranks - 1) * whole;
}

void require_right(const Case& of, const Ran& ran) {
  CHECK(ran.wrong == 0);
  for (const RankLog& log : ran.logs) {
    double in_tensor = 0;
    const RankStep& step = log.steps.back();
    double messages = 0;
    for (const Event& event : step.events) {
      if (is_receive(event.action.kind)) messages += static_cast<double>(event.bytes.value);
      for (const auto& call : calls_of(of.calls[static_cast<std::size_t>(log.rank)], event.action)) {
        if (!call->open) in_tensor += bytes_of(*call);
      }
    }
    const int data = of.plan.layout.data.degree;
    const int own =
        static_cast<int>(stages_of_rank(of.lowered, lane_of(of.plan.layout, log.rank).pipeline_rank).size());
    const double gradients = own * static_cast<double>(test::gradient_values * sizeof(float));
    const double in_data = 2.0 * (data - 1) / data * gradients;
    CHECK(static_cast<double>(step.received_in_tensor.value) == in_tensor);
    CHECK(static_cast<double>(step.received_in_data.value) == in_data);
    if (evicts(of.lowered)) continue;
    CHECK(static_cast<double>(step.received_bytes.value) == in_tensor + in_data + messages);
  }
}

bool runs_with_groups(const ScheduleEntry& entry, const Layout& layout) {
  if (!applies(entry, {2, 2 * layout.pipeline, layout.pipeline})) return false;
  const Schedule made = generate_schedule(entry.name, shape_for(entry, {2, 2 * layout.pipeline, layout.pipeline}));
  if (replicas(made) > 1 || made.update_every > 0) return false;
  return layout.tensor.degree == 1 || (made.slices == 1 && !evicts(made));
}

}  // namespace

TEST_CASE("every schedule that runs with tensor and data groups does so over NCCL's rules, and no byte is missing") {
  const Layout layout =
      GENERATE(test::layout_of(2, 2, 1), test::layout_of(2, 1, 2), test::layout_of(2, 2, 2), test::layout_of(4, 1, 2));
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (!runs_with_groups(entry, layout)) continue;
    INFO(entry.name << ", " << describe(layout));
    const FakeNccl fake;
    const Case of = case_of(entry.name, layout);
    require_right(of, run(of));
    const FakeNcclCounts counts = fake.counts();
    CHECK(counts.mismatches == 0);
    CHECK(counts.aborted == 0);
    CHECK(counts.destroyed == counts.joined);
  }
}

TEST_CASE(
    "groups of two and four, alone and with recompute, whatever is slow, also where streams are worked off as one") {
  const std::pair<const char*, test::Speeds> kinds[] = {
      {"slow collectives", {.compute = microseconds(4), .copies = microseconds(300), .unhurried = microseconds(300)}},
      {"slow compute", {.compute = microseconds(100)}},
      {"one stream", {.serial = true}}};
  for (const auto& [kind, speeds] : kinds) {
    for (const auto& [schedule, layout] :
         {std::pair("1f1b", test::layout_of(1, 2, 1)), std::pair("zb-h1", test::layout_of(1, 4, 1)),
          std::pair("gpipe", test::layout_of(1, 1, 4)), std::pair("1f1b", test::layout_of(2, 2, 2)),
          std::pair("zb-h1", test::layout_of(2, 2, 2)), std::pair("interleaved-1f1b", test::layout_of(2, 2, 2))}) {
      INFO(kind << ", " << schedule << ", " << describe(layout));
      const FakeNccl fake;
      const Case of = case_of(schedule, layout, layout.pipeline == 1);
      require_right(of, run(of, {.speeds = speeds}));
      CHECK(fake.counts().mismatches == 0);
    }
  }
}

TEST_CASE("data-parallel pipelines whose ranks evict do so over NCCL's rules") {
  const FakeNccl fake;
  const Case of = case_of("bpipe", test::layout_of(4, 1, 2));
  REQUIRE(evicts(of.lowered));
  require_right(of, run(of));
  CHECK(fake.counts().mismatches == 0);
}

TEST_CASE("a collective counts the bytes that the same one between hosts brings, whatever its ranks divide") {
  constexpr int ranks = 3;
  const std::vector<int> group{0, 1, 2};
  for (const std::size_t count : {0, 1, 2, 3, 7, 12}) {
    std::vector<GroupBytes> hosts(ranks);
    run_on_threads(make_local_transports(ranks), [&](Transport& transport) {
      Collectives collectives(transport);
      std::vector<float> values(ranks * count, 1.0F);
      const std::span<std::byte> all = std::as_writable_bytes(std::span(values));
      const auto parts = equal_parts(all, ranks, sizeof(float));
      collectives.all_reduce(group, all.first(count * sizeof(float)), ElementType::fp32, in_seconds(20));
      collectives.all_gather(group, parts, in_seconds(20));
      std::vector<float> sum(count);
      collectives.reduce_scatter(group, std::vector<std::span<const std::byte>>(parts.begin(), parts.end()),
                                 std::as_writable_bytes(std::span(sum)), ElementType::fp32, in_seconds(20));
      hosts[static_cast<std::size_t>(transport.rank())] = transport.received_in_groups();
    });
    const FakeNccl fake;
    std::vector<GroupBytes> streams(ranks);
    run_nccl_ranks(
        ranks, {.communicators = {{CommunicatorUse::tensor, group}}}, [&](Transport& transport, AsyncDevice&) {
          std::vector<float> values(ranks * count, 1.0F);
          std::vector<float> results(ranks * count);
          for (const auto kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
            const MomentPtr end = transport.collective({.kind = kind,
                                                        .use = CommunicatorUse::tensor,
                                                        .group = group,
                                                        .input = reinterpret_cast<const std::byte*>(values.data()),
                                                        .output = reinterpret_cast<std::byte*>(results.data()),
                                                        .count = count});
            transport.await(end, in_seconds(20));
          }
          streams[static_cast<std::size_t>(transport.rank())] = transport.received_in_groups();
        });
    INFO(count << " elements");
    CHECK(streams == hosts);
  }
}

namespace {

// Only of rank 1.
Options with_change(test::MovingStage::Change change) {
  Options options;
  options.change = [change](int rank) { return rank == 1 ? change : test::MovingStage::Change(); };
  return options;
}

std::string failure(const Case& of, const Options& options) {
  const auto start = Clock::now();
  std::string said = "nothing";
  try {
    (void)run(of, options);
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(Clock::now() - start < std::chrono::seconds(20));
  return said;
}

}  // namespace

TEST_CASE("a collective that an action leaves out, makes twice or in another order ends the run before NCCL hangs") {
  const Case of = case_of("1f1b", test::layout_of(1, 2, 1));
  const auto in_forward = [](const auto& change) {
    return with_change([change](ActionKind kind, GroupCalls& calls) {
      if (kind == ActionKind::forward) change(calls);
    });
  };
  const FakeNccl fake;
  CHECK_THAT(failure(of, in_forward([](GroupCalls& calls) { calls.pop_back(); })),
             ContainsSubstring("rank 1, step 1, ") &&
                 ContainsSubstring("maximum, stage 0 on tensor (ranks 0, 1) was not made"));
  CHECK_THAT(failure(of, in_forward([](GroupCalls& calls) { calls.push_back(calls.back()); })),
             ContainsSubstring("rank 1, step 1, 0F0: ") && ContainsSubstring("its action makes none any more"));
  CHECK_THAT(failure(of, in_forward([](GroupCalls& calls) { std::swap(calls[0], calls[1]); })),
             ContainsSubstring("rank 1, step 1, 0F0: ") &&
                 ContainsSubstring("was made where gather, stage 0 on tensor (ranks 0, 1) comes next"));
  CHECK(fake.counts().mismatches == 0);
  CHECK(fake.counts().used_after_abort == 0);
}

TEST_CASE("a rank of a tensor group that fails inside a move ends the others, who say why") {
  const FakeNccl fake;
  const Case of = case_of("1f1b", test::layout_of(2, 2, 1));
  int left = 3;
  const std::string said = failure(of, with_change([&left](ActionKind kind, GroupCalls&) {
                                     if (kind == ActionKind::forward && left-- == 0)
                                       throw RunError("", "has had enough");
                                   }));
  CHECK_THAT(said, ContainsSubstring("rank 1, step ") && ContainsSubstring("F") && ContainsSubstring("has had enough"));
  // A rank that hears of it before it has put anything on a stream has nothing to abort.
  CHECK(fake.counts().aborted > 0);
  CHECK(fake.counts().aborted + fake.counts().destroyed == fake.counts().joined);
}

TEST_CASE("a move that does not end is named at the deadline: rank, action, tensor and group, and nobody hangs") {
  const FakeNccl fake({.faulty_rank = 2, .faulty_batch = 7, .fault = FakeNcclScript::Fault::hang});
  const Case of = case_of("1f1b", test::layout_of(1, 4, 1));
  const std::string said = failure(of, {.deadline = 0.3});
  CHECK_THAT(said, ContainsSubstring("rank ") && ContainsSubstring(", step 1, 0") &&
                       ContainsSubstring("on tensor (ranks 0-3) has not ended before the deadline"));
  CHECK(fake.counts().aborted == fake.counts().joined);
  CHECK(fake.counts().used_after_abort == 0);
}

TEST_CASE("NCCL's asynchronous error in a move names rank, action, tensor and group") {
  const FakeNccl fake({.faulty_rank = 3, .faulty_batch = 5, .fault = FakeNcclScript::Fault::asynchronous_error});
  const Case of = case_of("zb-h1", test::layout_of(1, 4, 1));
  const std::string said = failure(of, {});
  CHECK_THAT(said, ContainsSubstring("rank 3, step 1, ") && ContainsSubstring("stage 0 on tensor (ranks 0-3)") &&
                       ContainsSubstring("remote process exited"));
  CHECK(fake.counts().aborted == fake.counts().joined);
}
