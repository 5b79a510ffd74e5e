// Every schedule of the registry that is executed, over both transports, against the single device, bit by bit.
#include "common/schedule/weight_versions.hpp"
#include "exec/check/check.hpp"
#include "exec/device/host_device.hpp"
#include "tests/catch.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/device/host_with_streams.hpp"
#include "tests/exec/stage/device_step.hpp"
#include "tests/exec/stage/schedule_plans.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::hybrid_of;
using test::hybrid_plan;
using test::llama_plan;
using test::plan_of;

namespace {

// The host's memory and thread behind the face of a device: the runner takes the other way, over moments and copies.
class HostAsDevice final : public Device {
 public:
  [[nodiscard]] std::string name() const override { return host_->name(); }
  [[nodiscard]] bool is_asynchronous() const override { return true; }
  void enter() override { host_->enter(); }
  [[nodiscard]] exec::Stream& compute() override { return host_->compute(); }
  [[nodiscard]] std::unique_ptr<exec::Stream> make_stream(bool urgent) override { return host_->make_stream(urgent); }
  [[nodiscard]] Payload allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  [[nodiscard]] Seconds time_of(const exec::Moment& moment) const override { return host_->time_of(moment); }
  void align_clock() override { host_->align_clock(); }

 private:
  std::unique_ptr<Device> host_ = make_host_device();
};

void require_bitwise(const Plan& plan, const test::TrainingRun& run) {
  const CheckResult result = test::check_against_shared_reference(plan, run.losses, run.gradients);
  INFO(result.problem);
  CHECK(result.passed);
  CHECK(result.bitwise_equal);
}

void require_bitwise(const Plan& plan, const TransportKind& transport) {
  INFO(plan.name << ", ranks " << plan.schedule.ranks << ", " << transport.name);
  require_bitwise(plan, test::train(plan, 2, transport.make));
}

}  // namespace

TEST_CASE("Every schedule trains like a single device on 2 ranks, and on 4 over one transport after the other") {
  const std::vector<TransportKind> kinds = transport_kinds();
  std::size_t next = 0;
  for (const ScheduleEntry& entry : schedule_entries()) {
    require_bitwise(hybrid_plan(entry, 2), kinds.front());
    require_bitwise(hybrid_plan(entry, 4), kinds[next++ % kinds.size()]);
  }
}

TEST_CASE("And so it does where ranks share a device, by moments and copies") {
  std::vector<Plan> plans;
  for (const ScheduleEntry& entry : schedule_entries()) plans.push_back(llama_plan(entry, 4));
  for (const char* const name : {"1f1b", "zb-v"}) plans.push_back(hybrid_plan(find_schedule(name), 4));
  for (const char* const name : {"1f1b", "interleaved-1f1b", "zb-h1", "dualpipe"}) {  // clipped far below their norms
    plans.push_back(llama_plan(find_schedule(name), 4));
    plans.back().training.gradient_clipping = 0.01;
  }
  for (const Plan& plan : plans) {
    INFO(plan.name);
    test::Devices devices;
    for (int rank = 0; rank < 4; ++rank) devices.push_back(std::make_unique<HostAsDevice>());
    const test::TrainingRun run = test::train_on(devices, plan, 2);
    require_bitwise(plan, run);
    // LibTorch lets go of what was received when the plan of the arena says.
    if (!evicts(plan.schedule)) CHECK(run.receives_beside == std::vector<std::int64_t>(4, 0));
  }
}

// What the GPU's tests print of a step, on a device whose compute is the host: all of it is there, and adds up.
TEST_CASE("A step on a device is taken apart into the device's time, the host's and the runner's") {
  const Plan plan = hybrid_plan(find_schedule("1f1b"), 2);
  const auto devices = [] {
    test::Devices made;
    for (std::uint32_t rank = 0; rank < 2; ++rank) made.push_back(std::make_unique<test::HostWithStreams>(rank));
    return made;
  };
  const test::DeviceStep step = test::timed_step(
      devices(), plan, 2, [&](const Schedule&, int rank, Device&) { return make_stages(plan, rank, {}); });
  std::size_t actions = 0;
  for (const auto& list : lower(plan.schedule, {.optimizer = true, .tied_embeddings = false}).actions) {
    actions += list.size();
  }
  CHECK(step.actions == actions);
  CHECK(step.computed.value > 0);
  CHECK(step.computed <= step.step * 2);  // two ranks
  // Here the host computes, so it is done when the device is.
  CHECK(step.host.value == Approx(step.step.value).epsilon(0.2));
  const Seconds overhead = test::overhead_of_an_action(devices(), plan, 3);
  CHECK(overhead.value > 0);
  CHECK(overhead < step.computed);
}

TEST_CASE("Two replicas sum the gradients of a tied table as well") {
  const char* name = GENERATE("chimera", "dualpipe");
  for (const int ranks : {2, 4}) {
    require_bitwise(plan_of(find_schedule(name), ranks, test::gpt2(4, true)), {"local", make_local_transports});
  }
}

TEST_CASE("The check notices weights of another version than the schedule states") {
  const Plan plan = plan_of(find_schedule("pipedream"), 4, test::llama(4));
  const test::TrainingRun run = test::train(plan, 1);
  CHECK(check_against_reference(plan, {}, run.losses, run.gradients).passed);
  // The same order, but every microbatch with the weights of one update before.
  Plan other = plan;
  other.schedule.versions = WeightVersions::delayed;
  REQUIRE(weight_versions(other.schedule) != weight_versions(plan.schedule));
  CHECK_FALSE(check_against_reference(other, {}, run.losses, run.gradients).passed);
}

TEST_CASE("Slices in bf16, of a tied model and of all kinds of layers, are the same bits") {
  for (const Model& model : {test::gpt2(4, true), hybrid_of(4)}) {
    require_bitwise(
        test::training_plan(
            {.model = model, .schedule = "seq-1f1b", .ranks = 4, .precision = ElementType::bf16, .slices = 4}),
        {"local", make_local_transports});
  }
}

TEST_CASE("Slices of different lengths are the same bits on two and four ranks, over both transports") {
  for (const int ranks : {2, 4}) {
    for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
      const Plan plan = test::training_plan({.model = hybrid_of(4),
                                             .schedule = "seq-1f1b",
                                             .ranks = ranks,
                                             .microbatches = 2,
                                             .precision = precision,
                                             .slices = 4,
                                             .slice_tokens = {13, 9, 7, 3}});
      for (const TransportKind& transport : transport_kinds()) require_bitwise(plan, transport);
    }
  }
}

TEST_CASE("Slices of different lengths are the same bits where ranks share a device, each message in its slot") {
  const Plan plan = test::training_plan(
      {.model = hybrid_of(4), .schedule = "seq-1f1b", .ranks = 4, .slices = 4, .slice_tokens = {13, 9, 7, 3}});
  test::Devices devices;
  for (int rank = 0; rank < 4; ++rank) devices.push_back(std::make_unique<HostAsDevice>());
  const test::TrainingRun run = test::train_on(devices, plan, 2);
  require_bitwise(plan, run);
  CHECK(run.receives_beside == std::vector<std::int64_t>(4, 0));
}

TEST_CASE("Weights of several versions, AdamW and bf16 together are the same bits") {
  Plan plan = plan_of(find_schedule("pipedream-2bw"), 4, test::gpt2(4, true));
  plan.model.tied_embeddings = false;
  plan.training.precision = ElementType::bf16;
  plan.costs.boundary_bytes = plan.costs.boundary_bytes / 2;
  require_bitwise(plan, {"local", make_local_transports});
}

TEST_CASE("Evicted activations in bf16, beside a tied table, are the same bits") {
  const Plan plan = test::training_plan({.model = test::gpt2(4, true),
                                         .schedule = "bpipe",
                                         .ranks = 4,
                                         .microbatches = 8,
                                         .precision = ElementType::bf16});
  REQUIRE(evicts(plan.schedule));
  for (const TransportKind& transport : transport_kinds()) require_bitwise(plan, transport);
}
