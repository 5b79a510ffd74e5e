// Tensor and data groups over NCCL's rules, through the runner on an asynchronous device: what every collective brings,
// bytes, orders that cannot wait in a circle, failures.
#include <cmath>

#include "exec/transport/collectives/collectives.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/fake_nccl/nccl_ranks.hpp"
#include "tests/exec/run/hashing_stage.hpp"
#include "tests/exec/transport/nccl/group_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using std::chrono::microseconds;
using test::AsyncDevice;

TEST_CASE("every schedule that runs with tensor and data groups does so over NCCL's rules, and no byte is missing") {
  const Layout layout =
      GENERATE(test::layout_of(2, 2, 1), test::layout_of(2, 1, 2), test::layout_of(2, 2, 2), test::layout_of(4, 1, 2));
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (!test::runs_with_groups(entry, layout)) continue;
    INFO(entry.name << ", " << describe(layout));
    const FakeNccl fake;
    const test::GroupCase of = test::group_case(entry.name, layout);
    test::require_right(of, test::run_groups(of));
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
      const test::GroupCase of = test::group_case(schedule, layout, layout.pipeline == 1);
      test::require_right(of, test::run_groups(of, {.speeds = speeds}));
      CHECK(fake.counts().mismatches == 0);
    }
  }
}

// Here every rank counts its own squares, of summed gradients that are alike in all pipelines: d replicas of t ranks.
TEST_CASE("a step that clips waits within it, with all times, and every rank learns the norm of complete gradients") {
  const test::Speeds slow_collectives{
      .compute = microseconds(4), .copies = microseconds(300), .unhurried = microseconds(300)};
  for (const auto& [schedule, layout] :
       {std::pair("1f1b", test::layout_of(2, 2, 1)), std::pair("zb-h1", test::layout_of(2, 1, 2)),
        std::pair("interleaved-1f1b", test::layout_of(2, 2, 2))}) {
    INFO(schedule << ", " << describe(layout));
    const FakeNccl fake;
    test::GroupCase of = test::group_case(schedule, layout);
    of.plan.training.gradient_clipping = 1e9;
    of.lowered = lower(of.plan.schedule, {.data_parallel = layout.data.degree > 1, .clips_gradients = true});
    const test::Ran ran = test::run_groups(of, {.speeds = slow_collectives});
    test::require_right(of, ran);
    CHECK(fake.counts().mismatches == 0);
    double squares = 0;  // of whole numbers: exact
    const test::Expected expected = test::expected_step(stages(of.lowered), of.lowered.microbatches);
    for (const auto& gradient : expected.gradients) {
      for (const float value : gradient) squares += static_cast<double>(value) * value;
    }
    const double data = layout.data.degree;
    squares *= data * data * data * layout.tensor.degree;
    for (const RankLog& log : ran.logs) {
      for (const RankStep& step : log.steps) {
        CHECK(step.gradient_norm == std::sqrt(squares));
        for (const Event& event : step.events) CHECK(event.end >= event.start);
      }
    }
  }
}

TEST_CASE("data-parallel pipelines whose ranks evict do so over NCCL's rules") {
  const FakeNccl fake;
  const test::GroupCase of = test::group_case("bpipe", test::layout_of(4, 1, 2));
  REQUIRE(evicts(of.lowered));
  test::require_right(of, test::run_groups(of));
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
      collectives.all_reduce(group, all.first(count * sizeof(float)), ElementType::fp32, in_seconds(600));
      collectives.all_gather(group, parts, in_seconds(600));
      std::vector<float> sum(count);
      collectives.reduce_scatter(group, std::vector<std::span<const std::byte>>(parts.begin(), parts.end()),
                                 std::as_writable_bytes(std::span(sum)), ElementType::fp32, in_seconds(600));
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
            transport.await(end, in_seconds(600));
          }
          streams[static_cast<std::size_t>(transport.rank())] = transport.received_in_groups();
        });
    INFO(count << " elements");
    CHECK(streams == hosts);
  }
}

namespace {

// Only of rank 1.
test::GroupRun with_change(test::MovingStage::Change change) {
  test::GroupRun options;
  options.change = [change](int rank) { return rank == 1 ? change : test::MovingStage::Change(); };
  return options;
}

}  // namespace

TEST_CASE("a collective that an action leaves out, makes twice or in another order ends the run before NCCL hangs") {
  const test::GroupCase of = test::group_case("1f1b", test::layout_of(1, 2, 1));
  const auto in_forward = [](const auto& change) {
    return with_change([change](ActionKind kind, GroupCalls& calls) {
      if (kind == ActionKind::forward) change(calls);
    });
  };
  const FakeNccl fake;
  CHECK_THAT(test::failure(of, in_forward([](GroupCalls& calls) { calls.pop_back(); })),
             ContainsSubstring("rank 1, step 1, ") &&
                 ContainsSubstring("maximum, stage 0 on tensor (ranks 0, 1) was not made"));
  CHECK_THAT(test::failure(of, in_forward([](GroupCalls& calls) { calls.push_back(calls.back()); })),
             ContainsSubstring("rank 1, step 1, 0F0: ") && ContainsSubstring("its action makes none any more"));
  CHECK_THAT(test::failure(of, in_forward([](GroupCalls& calls) { std::swap(calls[0], calls[1]); })),
             ContainsSubstring("rank 1, step 1, 0F0: ") &&
                 ContainsSubstring("was made where gather, stage 0 on tensor (ranks 0, 1) comes next"));
  CHECK(fake.counts().mismatches == 0);
  CHECK(fake.counts().used_after_abort == 0);
}

TEST_CASE("a rank of a tensor group that fails inside a move ends the others, who say why") {
  const FakeNccl fake;
  const test::GroupCase of = test::group_case("1f1b", test::layout_of(2, 2, 1));
  int left = 3;
  const std::string said = test::failure(of, with_change([&left](ActionKind kind, GroupCalls&) {
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
  const test::GroupCase of = test::group_case("1f1b", test::layout_of(1, 4, 1));
  const std::string said = test::failure(of, {.deadline = 0.3});
  CHECK_THAT(said, ContainsSubstring("rank ") && ContainsSubstring(", step 1, 0") &&
                       ContainsSubstring("on tensor (ranks 0-3) has not ended before the deadline"));
  CHECK(fake.counts().aborted == fake.counts().joined);
  CHECK(fake.counts().used_after_abort == 0);
}

TEST_CASE("NCCL's asynchronous error in a move names rank, action, tensor and group") {
  const FakeNccl fake({.faulty_rank = 3, .faulty_batch = 5, .fault = FakeNcclScript::Fault::asynchronous_error});
  const test::GroupCase of = test::group_case("zb-h1", test::layout_of(1, 4, 1));
  const std::string said = test::failure(of, {});
  CHECK_THAT(said, ContainsSubstring("rank 3, step 1, ") && ContainsSubstring("stage 0 on tensor (ranks 0-3)") &&
                       ContainsSubstring("remote process exited"));
  CHECK(fake.counts().aborted == fake.counts().joined);
}
