// Gradients in buckets beside the last backward over NCCL's rules, through the runner on asynchronous devices: what
// every rank applies, bytes, that nobody waits for a bucket who need not, and what is noticed of a wrong one.
#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "tests/catch.hpp"
#include "tests/exec/fake_nccl/nccl_ranks.hpp"
#include "tests/exec/transport/nccl/group_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using std::chrono::microseconds;
using test::AsyncDevice;
using test::failure;
using test::group_case;
using test::GroupCase;
using test::GroupRun;
using test::layout_of;
using test::MovingStage;
using test::require_right;
using test::run_groups;

namespace {

// A bucket for each gradient (of 16, 32 and 16 bytes); two; one of all, which starts behind the backward.
constexpr std::array<std::int64_t, 3> bucket_sizes{1, 20, 1 << 20};

const test::Speeds slow_collectives{
    .compute = microseconds(4), .copies = microseconds(300), .unhurried = microseconds(300)};
const test::Speeds slow_compute{.compute = microseconds(100)};

Action last_backward(const GroupCase& of, int rank, int stage) {
  const auto place = static_cast<std::size_t>(lane_of(of.plan.layout, rank).pipeline_rank);
  for (const Action& action : last_weight_gradients(of.lowered.actions[place])) {
    if (action.stage == stage) return action;
  }
  throw RunError("test", "the stage is not on this rank");
}

Seconds end_of(const RankStep& step, const Action& action) {
  for (const Event& event : step.events) {
    if (event.action == action) return event.end;
  }
  throw RunError("test", "the action is not in the log");
}

// Only of rank 1, and of the first step.
GroupRun with_reports(MovingStage::Report report) {
  return {.steps = 1, .report = [report](int rank, AsyncDevice&) {
            return rank == 1 ? report
                             : MovingStage::Report([](int, DeviceFloats gradient,
                                                      const MovingStage::Complete& complete) { complete(gradient); });
          }};
}

}  // namespace

TEST_CASE(
    "every schedule with data groups reduces in buckets of any size beside its backward, and no byte is missing") {
  const std::int64_t bytes = GENERATE(from_range(bucket_sizes));
  for (const Layout& layout : {layout_of(2, 1, 2), layout_of(2, 2, 2), layout_of(1, 1, 4)}) {
    for (const ScheduleEntry& entry : schedule_entries()) {
      if (!test::runs_with_groups(entry, layout)) continue;
      INFO(entry.name << ", " << describe(layout) << ", " << bytes << " bytes");
      const FakeNccl fake;
      const GroupCase of = group_case(entry.name, layout, false, bytes);
      require_right(of, run_groups(of));
      const FakeNcclCounts counts = fake.counts();
      CHECK(counts.mismatches == 0);
      CHECK(counts.aborted == 0);
      CHECK(counts.destroyed == counts.joined);
    }
  }
}

TEST_CASE("buckets are right whatever is slow, with recompute, and where streams are worked off as one") {
  for (const test::Speeds& speeds : {slow_collectives, slow_compute, test::Speeds{.serial = true}}) {
    for (const char* const schedule : {"1f1b", "zb-h1", "interleaved-1f1b"}) {
      INFO(schedule << (speeds.serial ? ", one stream" : ""));
      const FakeNccl fake;
      const GroupCase of = group_case(schedule, layout_of(2, 2, 2), speeds.serial, 20);
      require_right(of, run_groups(of, {.speeds = speeds}));
      CHECK(fake.counts().mismatches == 0);
    }
  }
}

TEST_CASE("a measured timeline shows that the reduction starts before the last backward ends, and exposes the rest") {
  const char* const schedule = GENERATE("1f1b", "zb-h1", "interleaved-1f1b");
  for (const std::int64_t bytes : bucket_sizes) {
    const FakeNccl fake;
    const GroupCase of = group_case(schedule, layout_of(2, 1, 2), false, bytes);
    const test::Ran ran = run_groups(of, {.speeds = slow_compute});
    INFO(schedule << ", " << bytes << " bytes");
    for (const RankLog& log : ran.logs) {
      for (const RankStep& step : log.steps) {
        for (const Event& event : step.events) {
          if (event.action.kind != ActionKind::reduce_gradient) continue;
          const Seconds backward = end_of(step, last_backward(of, log.rank, event.action.stage));
          CHECK(event.start >= backward);
          CHECK(event.end >= event.start);
          // One of all starts when all are complete: as the backward ends.
          if (bytes <= 20) CHECK(event.start - event.beside < backward);
        }
      }
    }
    const Timeline timeline = merge_logs(of.plan, of.lowered, ran.logs, "test");
    for (const Event& event : timeline.steps.back().events) {
      if (event.action.kind == ActionKind::reduce_gradient) CHECK(event.beside > Seconds{});
    }
  }
}

// The last backward of rank 0 goes on before rank 1 has its first gradient, and of both it waits until a bucket's sum
// is there: neither would ever be if one waited for the other.
TEST_CASE("a bucket is summed while the backward goes on, and no host and no compute waits for it") {
  const FakeNccl fake;
  const GroupCase of = group_case("1f1b", layout_of(1, 1, 2), false, 1);
  const auto missed = std::make_shared<std::atomic<int>>(0);
  const auto gone_on = std::make_shared<std::atomic<bool>>(false);
  const auto await = [missed](const auto& what) {
    const auto give_up = Clock::now() + std::chrono::seconds(600);
    while (!what() && Clock::now() < give_up) std::this_thread::yield();
    *missed += what() ? 0 : 1;
  };
  const auto report = [&](int rank, AsyncDevice& device) {
    return [&, rank, gone_on, await](int n, DeviceFloats gradient, const MovingStage::Complete& complete) {
      if (rank == 1) device.compute().run([=] { await([&] { return gone_on->load(); }); });
      complete(gradient);
      if (rank == 0) device.compute().run([gone_on] { *gone_on = true; });
      device.compute().run([=, &fake] { await([&] { return fake.counts().collectives > n; }); });
    };
  };
  const test::Ran ran = run_groups(of, {.steps = 1, .report = report});
  CHECK(*missed == 0);
  require_right(of, ran);
}

TEST_CASE("a bucket that a rank leaves out, or makes in another order, ends the run before NCCL mixes up bytes") {
  const FakeNccl fake;
  const GroupCase of = group_case("zb-h1", layout_of(1, 2, 2), false, 1);
  const std::string dropped =
      failure(of, with_reports([](int n, DeviceFloats gradient, const MovingStage::Complete& complete) {
                if (n != 1) complete(gradient);
              }));
  CHECK_THAT(dropped, ContainsSubstring("rank 1, step 1, 0W") &&
                          ContainsSubstring("all-reduce of 4 elements on data (ranks 1, 3) was made where") &&
                          ContainsSubstring("stage 0 on data (ranks 1, 3) comes next"));
  const std::string lost =
      failure(of, with_reports([](int n, DeviceFloats gradient, const MovingStage::Complete& complete) {
                if (n != 2) complete(gradient);
              }));
  CHECK_THAT(lost, ContainsSubstring("rank 1, step 1, 0W") && ContainsSubstring("comes next"));
  const auto held = std::make_shared<DeviceFloats>();
  const std::string exchanged =
      failure(of, with_reports([held](int n, DeviceFloats gradient, const MovingStage::Complete& complete) {
                if (n == 0) *held = gradient;
                if (n > 0) complete(gradient);
                if (n == 1) complete(*held);
              }));
  CHECK_THAT(exchanged, ContainsSubstring("rank 1, step 1, 0W") &&
                            ContainsSubstring("all-reduce of 8 elements on data (ranks 1, 3) was made"));
  CHECK(fake.counts().mismatches == 0);
  CHECK(fake.counts().used_after_abort == 0);
}

TEST_CASE("where nothing but its values tells it, the wrong gradient in a bucket is seen in what is applied") {
  const FakeNccl fake;
  const GroupCase of = group_case("1f1b", layout_of(1, 1, 2), false, 1);
  const auto first = std::make_shared<DeviceFloats>();
  // The first and the last are of one size.
  const test::Ran ran =
      run_groups(of, with_reports([first](int n, DeviceFloats gradient, const MovingStage::Complete& complete) {
                   if (n == 0) *first = gradient;
                   complete(n == 2 ? *first : gradient);
                 }));
  CHECK(ran.wrong > 0);
  CHECK(fake.counts().mismatches == 0);
}

TEST_CASE("a bucket that does not end is named at the deadline, and one that fails at once") {
  {
    const FakeNccl fake({.faulty_rank = 1, .faulty_batch = 1, .fault = FakeNcclScript::Fault::hang});
    const GroupCase of = group_case("gpipe", layout_of(1, 1, 2), false, 1);
    const std::string said = failure(of, {.deadline = 1});
    CHECK_THAT(said, ContainsSubstring("step 1, 0REDUCE_GRAD") &&
                         ContainsSubstring("stage 0 on data (ranks 0, 1) has not ended before the deadline"));
    CHECK(fake.counts().aborted == fake.counts().joined);
    CHECK(fake.counts().used_after_abort == 0);
  }
  const FakeNccl fake({.faulty_rank = 1, .faulty_batch = 1, .fault = FakeNcclScript::Fault::asynchronous_error});
  const GroupCase of = group_case("gpipe", layout_of(1, 1, 2), false, 1);
  const std::string said = failure(of, {});
  CHECK_THAT(said, ContainsSubstring("rank 1, step 1, ") && ContainsSubstring("on data (ranks 0, 1)") &&
                       ContainsSubstring("remote process exited"));
  CHECK(fake.counts().aborted == fake.counts().joined);
}
