// Ranks of a session over NCCL, from the rendezvous to the logs: the session's own code on threads, with a scripted
// library in NCCL's place and the host's memory in a GPU's. Training is compared with the single device, bit by bit.
#include "exec/commands/member.hpp"

#include <algorithm>
#include <cstdlib>

#include "exec/check/check.hpp"
#include "exec/stage/factory.hpp"
#include "exec/transport/nccl/nccl.hpp"
#include "tests/catch.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/commands/members.hpp"
#include "tests/exec/run/evicting.hpp"
#include "tests/exec/stage/schedule_plans.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::host_of;
using test::HostOfRank;
using test::MembersEnd;
using test::nccl_session;
using test::prepared;
using test::run_members;

namespace {

// Says what was allocated on it when it is gone.
class CountingDevice final : public Device {
 public:
  CountingDevice(std::uint32_t seed, Bytes& allocated) : device_(seed), allocated_(allocated) {}
  ~CountingDevice() override { allocated_ = device_.allocated(); }
  [[nodiscard]] std::string name() const override { return device_.name(); }
  [[nodiscard]] bool is_asynchronous() const override { return true; }
  void enter() override { device_.enter(); }
  [[nodiscard]] exec::Stream& compute() override { return device_.compute(); }
  [[nodiscard]] std::unique_ptr<exec::Stream> make_stream(bool urgent) override { return device_.make_stream(urgent); }
  [[nodiscard]] Payload allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  [[nodiscard]] Seconds time_of(const exec::Moment& moment) const override { return device_.time_of(moment); }
  void align_clock() override { device_.align_clock(); }

 private:
  test::AsyncDevice device_;
  Bytes& allocated_;
};

void require_trained(const Plan& plan) {
  const FakeNccl fake;
  const std::vector<PreparedPlan> plans{prepared(plan)};
  const MembersEnd end = run_members(plans, nccl_session());
  CHECK(end.errors == std::vector<std::string>(end.errors.size()));
  REQUIRE(end.logs.ranks.size() == 1);
  const std::vector<double> losses = test::losses_of(plans.front().plan, end.logs.ranks.front());
  const CheckResult result = test::check_against_shared_reference(plan, losses, end.logs.checked.gradients);
  INFO(result.problem);
  CHECK(result.bitwise_equal);
  for (const RankLog& log : end.logs.ranks.front()) {
    CHECK(log.arena_bytes == arena_bytes(plans.front().slots[static_cast<std::size_t>(log.rank)]));
    if (!evicts(plan.schedule)) CHECK(log.receives_beside == 0);
  }
  const FakeNcclCounts counts = fake.counts();
  CHECK(counts.mismatches == 0);
  CHECK(counts.aborted == 0);
  CHECK(counts.destroyed == counts.joined);
  CHECK(counts.batches > 0);
}

}  // namespace

TEST_CASE("every schedule trains like a single device, bit by bit, through the session's own code") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    INFO(entry.name);
    require_trained(test::llama_plan(entry, 4));
  }
  for (const char* const name : {"1f1b", "zb-v"}) {
    for (const int ranks : {2, 4}) require_trained(test::hybrid_plan(find_schedule(name), ranks));
  }
}

TEST_CASE("ranks on two hosts take the devices of theirs, and their clocks are compared") {
  const FakeNccl fake;
  const Plan plan = test::training_plan({.model = test::llama(4), .ranks = 4, .microbatches = 4});
  const std::vector<PreparedPlan> plans{prepared(plan)};
  const auto host = [](int rank) {
    Host made = host_of(2);
    const std::string name = rank < 2 ? "a" : "b";
    made.identity = {.name = name, .id = "id of " + name, .clock = "clock of " + name};
    return made;
  };
  const MembersEnd end = run_members(plans, nccl_session(), host, 2);
  CHECK(end.errors == std::vector<std::string>(4));
  REQUIRE(end.logs.ranks.size() == 1);
  const std::vector<double> losses = test::losses_of(plans.front().plan, end.logs.ranks.front());
  CHECK(check_against_reference(plan, {}, losses, end.logs.checked.gradients).bitwise_equal);
  CHECK(end.logs.clock_uncertainty > Seconds{0});
  CHECK(end.logs.clock_uncertainty < Seconds{0.05});
}

TEST_CASE("tied tables and bf16 do so too") {
  for (const char* const name : {"1f1b", "interleaved-1f1b", "zb-v", "dualpipe"}) {
    const ScheduleEntry& entry = find_schedule(name);
    const int chunks = entry.uses_chunks ? 2 : 1;
    INFO(name);
    require_trained(test::training_plan({.model = test::gpt2(4 * chunks, true),
                                         .schedule = name,
                                         .ranks = 4,
                                         .chunks = chunks,
                                         .microbatches = 8,
                                         .precision = ElementType::bf16}));
  }
}

TEST_CASE("plans that alternate share their communicators, and each trains to its own bits") {
  const FakeNccl fake;
  const std::vector<PreparedPlan> plans{prepared(test::training_plan({.model = test::gpt2(4, true), .ranks = 2})),
                                        prepared(test::training_plan({.model = test::hybrid_of(4),
                                                                      .schedule = "zb-h1",
                                                                      .ranks = 2,
                                                                      .microbatches = 6,
                                                                      .precision = ElementType::bf16}))};
  REQUIRE(plans[0].plan.costs.boundary_bytes != plans[1].plan.costs.boundary_bytes);
  const MembersEnd end = run_members(plans, nccl_session(3));
  CHECK(end.errors == std::vector<std::string>(2));
  REQUIRE(end.logs.ranks.size() == 2);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const test::TrainingRun alone = test::train(plans[i].plan, 3);
    CHECK(test::losses_of(plans[i].plan, end.logs.ranks[i]) == alone.losses);
  }
  CHECK(fake.counts().joined == 2 * 3);  // down, up and the first plan's tied table, on two ranks
  CHECK(fake.counts().mismatches == 0);
}

TEST_CASE("activations that are evicted come back on two ranks and on four, at the end of a step without overlap") {
  for (const int ranks : {2, 4}) {
    Plan plan =
        test::training_plan({.model = test::hybrid_of(ranks), .schedule = "gpipe", .ranks = ranks, .microbatches = 4});
    plan.schedule = test::evicting_gpipe(ranks, 4);
    INFO(ranks << " ranks");
    require_trained(plan);
  }
}

// Emulated stages make their values on the host: of the device all is the transport's and the arena's.
TEST_CASE("receive buffers take the predicted bytes") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    const Plan plan = test::hybrid_plan(entry, 4);
    if (evicts(plan.schedule)) continue;
    const FakeNccl fake;
    const std::vector<PreparedPlan> plans{prepared(plan)};
    SessionOptions options = nccl_session(2);
    options.check = false;
    options.emulate = true;
    std::vector<Bytes> allocated(4);
    INFO(entry.name);
    const MembersEnd end = run_members(plans, options, [&](int rank) {
      Host host = host_of(4);
      host.make_device = [&allocated, rank](int index) {
        return std::make_unique<CountingDevice>(static_cast<std::uint32_t>(index),
                                                allocated[static_cast<std::size_t>(rank)]);
      };
      return host;
    });
    CHECK(end.errors == std::vector<std::string>(4));
    for (std::size_t rank = 0; rank < 4; ++rank) CHECK(allocated[rank] == arena_bytes(plans.front().slots[rank]));
  }
}

TEST_CASE("eight ranks of which four evict get their activations back over NCCL") {
  const FakeNccl fake;
  Plan plan = test::training_plan({.model = test::llama(8), .schedule = "bpipe", .ranks = 8, .microbatches = 12});
  SessionOptions options = nccl_session(2);
  options.check = false;
  options.emulate = true;
  const std::vector<PreparedPlan> plans{prepared(std::move(plan))};
  REQUIRE(evicts(plans.front().lowered));
  const MembersEnd end = run_members(plans, options, [](int) {
    Host host = host_of(8);
    host.make_device = [](int index) { return std::make_unique<test::AsyncDevice>(static_cast<std::uint32_t>(index)); };
    return host;
  });
  CHECK(end.errors == std::vector<std::string>(8));
  REQUIRE(end.logs.ranks.size() == 1);
  CHECK_NOTHROW(merge_logs(plans.front().plan, plans.front().lowered, end.logs.ranks.front(), "test"));
  CHECK(fake.counts().mismatches == 0);
  CHECK(fake.counts().joined == 3 * 8);
}

TEST_CASE("too few devices, one that does not work, and one that two ranks have: every rank says the same, at once") {
  const FakeNccl fake;
  const std::vector<PreparedPlan> plans{prepared(test::training_plan({.model = test::llama(4), .ranks = 4}))};
  HostOfRank host;
  std::string expected;
  SECTION("four ranks and two devices") {
    host = [](int) { return host_of(2); };
    expected = "rank 2 (on ";
  }
  SECTION("none on the last rank's host") {
    host = [](int rank) {
      Host made = host_of(4);
      if (rank < 3) return made;
      made.visible_devices = [] { return 0; };
      made.make_device = [](int) -> std::unique_ptr<Device> {
        throw InputError("--device", "there is no device 0: this process sees 0", "see nvidia-smi");
      };
      return made;
    };
    expected = "): there is no device 0: this process sees 0";
  }
  SECTION("the same for two") {
    host = [](int) {
      Host made = host_of(4);
      made.device_facts = [](int index) { return DeviceFacts{.bus = index < 2 ? "0000:1b:00" : ""}; };
      return made;
    };
    expected = "ranks 0, 1 have one device, 0000:1b:00 on ";
  }
  SECTION("a LibTorch that is too old on one") {
    host = [](int rank) {
      Host made = host_of(4);
      made.tells_streams = rank != 1;
      return made;
    };
    expected = "'nccl' takes LibTorch 2.11 or later";
  }
  SECTION("no library on one") {
    host = [](int rank) {
      Host made = host_of(4);
      if (rank == 1) made.nccl_library = "/nowhere/libnccl.so.2";
      return made;
    };
    expected = "'nccl' cannot load NCCL: /nowhere/libnccl.so.2";
  }
  const MembersEnd end = run_members(plans, nccl_session(), host);
  for (const std::string& error : end.errors) {
    CHECK_THAT(error, ContainsSubstring(expected));
    CHECK(error == end.errors.front());
  }
  CHECK(end.statuses == std::vector<ExitStatus>(4, ExitStatus::wrong_input));
  CHECK_FALSE(end.stop_reason.empty());  // of the first, or of one that lost it: whose comes first is a race
  CHECK(fake.counts().joined == 0);
}

namespace {

// Whose compute is waited for on the host while everything else is asynchronous: no rank's host waits for a message.
MembersEnd run_emulated(double deadline_s) {
  Plan plan = test::training_plan({.model = test::llama(4), .ranks = 4, .microbatches = 8});
  SessionOptions options = nccl_session(3);
  options.check = false;
  options.emulate = true;
  options.deadline = {deadline_s};
  return run_members({prepared(std::move(plan))}, options, [](int) {
    Host host = host_of(4);
    host.make_device = [](int index) { return std::make_unique<test::AsyncDevice>(static_cast<std::uint32_t>(index)); };
    return host;
  });
}

}  // namespace

TEST_CASE("NCCL's asynchronous error ends all ranks: the first says rank, action and peer, the others what it said") {
  const FakeNccl fake({.faulty_rank = 2, .faulty_batch = 7, .fault = FakeNcclScript::Fault::asynchronous_error});
  const MembersEnd end = run_emulated(3600);
  CHECK_THAT(end.errors[2], ContainsSubstring("rank 2, step ") && ContainsSubstring(" rank ") &&
                                ContainsSubstring("remote process exited") && ContainsSubstring("NCCL_DEBUG"));
  for (const ExitStatus status : end.statuses) CHECK(status == ExitStatus::run_failed);
  for (const std::string& error : end.errors) CHECK_THAT(error, ContainsSubstring("rank 2, step "));
  CHECK_THAT(end.stop_reason, ContainsSubstring("rank 2, step "));
  CHECK(fake.counts().aborted == fake.counts().joined);
  CHECK(fake.counts().used_after_abort == 0);
}

TEST_CASE("a message that never ends is named at the deadline, and nobody hangs after it") {
  const FakeNccl fake({.faulty_rank = 1, .faulty_batch = 5, .fault = FakeNcclScript::Fault::hang});
  const MembersEnd end = run_emulated(0.5);
  for (const std::string& error : end.errors) CHECK_FALSE(error.empty());
  CHECK_THAT(end.stop_reason, ContainsSubstring("has not ended before the deadline") && ContainsSubstring("on "));
  CHECK(fake.counts().aborted == fake.counts().joined);
}

TEST_CASE("a rank that never joins its communicator is given up before the first step, and the others end with it") {
  const FakeNccl fake({.init_result = 1});  // ncclUnhandledCudaError
  const MembersEnd end = run_emulated(3600);
  for (const ExitStatus status : end.statuses) CHECK(status == ExitStatus::run_failed);
  CHECK_THAT(end.stop_reason, ContainsSubstring("down (ranks 0-3)") && ContainsSubstring("unhandled cuda error") &&
                                  ContainsSubstring("nvidia-smi"));
}

TEST_CASE("a launcher counts devices without creating a context on one") {
  const FakeNccl fake;
  Host host = host_of(2);
  host.make_device = [](int) -> std::unique_ptr<Device> { throw InputError("--device", "made one", ""); };
  CHECK_NOTHROW(require_nccl_here(2, host));
  CHECK_THROWS_WITH(require_nccl_here(4, host),
                    ContainsSubstring("each of the 4 ranks a device of its own, and this process sees 2"));
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  CHECK_NOTHROW(require_nccl_here(4, host));
  {
    const FakeNccl old({.version = 22707});
    CHECK_THROWS_AS(require_nccl_here(4, host), InputError);
  }
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  host.visible_devices = [] { return 0; };
  CHECK_THROWS_WITH(require_nccl_here(2, host), ContainsSubstring("made one"));
  host.nccl_library = "/nowhere/libnccl.so.2";
  CHECK_THROWS_WITH(require_nccl_here(2, host), ContainsSubstring("cannot load NCCL"));
}
