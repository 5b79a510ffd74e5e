// What goes on beside what the parts of a vocabulary exchange, and beside what these exchanges go on.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "common/layout/lane.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "exec/launch/launch.hpp"
#include "exec/run/runner.hpp"
#include "exec/stage/emulated_stage.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Plan two_ranks(int data, int barriers = 1) {
  return test::training_plan(
      {.model = test::llama(2), .ranks = 2, .microbatches = 4, .data = data, .vocabulary_barriers = barriers});
}

using Stages = std::vector<std::unique_ptr<Stage>>;
// `change`: what it does to the stages that only wait.
template <class Change>
std::vector<RankLog> run_emulated(const Plan& plan, const Change& change) {
  const Schedule lowered = lowered_schedule(plan);
  std::vector<RankLog> logs(static_cast<std::size_t>(ranks(plan.layout)));
  run_on_threads(make_local_transports(ranks(plan.layout)), [&](Transport& transport) {
    Stages stages = make_emulated_stages(plan, transport.rank(), {.run = &transport});
    change(transport.rank(), stages);
    logs[static_cast<std::size_t>(transport.rank())] = run_rank(plan, lowered, transport, stages, {});
  });
  return logs;
}

}  // namespace

// Hidden states, or three fp32 numbers a token; with one barrier a part's summand is made of the statistics.
TEST_CASE("stages that only wait exchange as many bytes as those that compute") {
  for (const int barriers : {1, 2}) {
    const Plan plan = two_ranks(1, barriers);
    const Bytes statistics{12 * plan.training.microbatch * plan.training.sequence};
    REQUIRE(statistics != plan.costs.boundary_bytes);
    int sums = 0;
    for (const RankLog& log : run_emulated(plan, [](int, Stages&) {})) {
      for (const Event& event : log.steps.front().events) {
        if (event.action.kind == ActionKind::all_reduce) CHECK(event.bytes == statistics);
        if (event.action.kind == ActionKind::broadcast) CHECK(event.bytes == plan.costs.boundary_bytes);
        if (event.action.kind != ActionKind::reduce) continue;
        CHECK(event.bytes == plan.costs.boundary_bytes);
        ++sums;
      }
    }
    CHECK(sums == 2 * 2 * plan.schedule.microbatches);  // of two ranks, of the head and of the embedding
  }
}

// The sum of the head's gradient follows the statistics at once, which come while both ranks work: when it has ended is
// seen between actions alone, unless exchanges go on within them.
TEST_CASE("exchanges go on within actions that are pauses") {
  Plan plan = two_ranks(1);
  for (ComputeCost& cost : plan.costs.stages) cost.forward = cost.input_gradient = cost.weight_gradient = {0.005};
  const std::vector<RankLog> logs = run_emulated(plan, [](int, Stages&) {});
  const std::vector<Event>& events = logs[1].steps.front().events;
  int within = 0;
  for (const Event& sum : events) {
    if (sum.action.kind != ActionKind::reduce || sum.action.stage != head_part(plan.schedule, 1)) continue;
    within += static_cast<int>(std::ranges::count_if(events, [&](const Event& event) {
      return is_compute(event.action.kind) && event.start < sum.end && sum.end < event.end;
    }));
  }
  CHECK(within > 0);
}

namespace {

// Another stage's work, but for what a test says of its backward and of who asks for its gradients.
class Around final : public Stage {
 public:
  explicit Around(std::unique_ptr<Stage> inner) : inner_(std::move(inner)) {}
  std::function<void(int microbatch)> before_backward = {};
  std::function<void()> asked = {};

  void begin_step(std::int64_t step) override { inner_->begin_step(step); }
  [[nodiscard]] Payload forward(int k, Payload input) override { return inner_->forward(k, std::move(input)); }
  void recompute(int k) override { inner_->recompute(k); }
  [[nodiscard]] Payload input_gradient(int k, Payload gradient) override {
    return inner_->input_gradient(k, std::move(gradient));
  }
  [[nodiscard]] Parcel evict(int k) override { return inner_->evict(k); }
  void load(int k, Parcel parcel) override { inner_->load(k, std::move(parcel)); }
  void weight_gradient(int k) override { inner_->weight_gradient(k); }
  [[nodiscard]] Payload join_statistics(int k, std::span<const Payload> parts) override {
    return inner_->join_statistics(k, parts);
  }
  [[nodiscard]] Payload backward(int k, Payload gradient) override {
    if (before_backward) before_backward(k);
    return inner_->backward(k, std::move(gradient));
  }
  void report_gradients(std::function<void(DeviceFloats)> complete) override {
    inner_->report_gradients(std::move(complete));
  }
  // All have been reported: nothing is left, and nothing to be summed of it.
  [[nodiscard]] std::vector<DeviceFloats> gradients() override {
    if (asked) asked();
    std::vector<DeviceFloats> left = inner_->gradients();
    std::erase_if(left, [](const DeviceFloats& each) { return each.size == 0; });
    return left;
  }
  [[nodiscard]] DeviceFloats tied_gradient() override { return inner_->tied_gradient(); }
  void optimizer_step() override { inner_->optimizer_step(); }
  void end_step() override { inner_->end_step(); }
  [[nodiscard]] double loss() const override { return inner_->loss(); }

 private:
  std::unique_ptr<Stage> inner_;
};

}  // namespace

// Two pipelines. Of the first one the second rank waits for what the first stage's last backward gives; that waits
// until the second rank of the other pipeline has the sum of its last stage's gradients. These are complete only when
// that rank waits, which makes half of their sum.
TEST_CASE("a rank that waits for an exchange goes on with the sums of its gradients") {
  Plan plan = two_ranks(2);
  plan.software.data_overlap = true;
  plan.software.data_bucket = {.bytes = {1024}};
  plan.costs.provenance = "profile of a machine";  // whose stages are one block each
  for (ComputeCost& cost : plan.costs.stages) cost.gradient_bytes = {4096};
  std::atomic<int> asked = 0;
  std::atomic<bool> stands = false;
  std::atomic<bool> came = false;
  const auto wait_until = [](const auto& done) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  };
  const auto in_last = [&](const std::function<void()>& work) {
    return [&plan, work](int microbatch) {
      if (microbatch + 1 == plan.schedule.microbatches) work();
    };
  };
  (void)run_emulated(plan, [&](int rank, Stages& stages) {
    for (std::unique_ptr<Stage>& stage : stages) {
      if (stage) stage = std::make_unique<Around>(std::move(stage));
    }
    const auto stage = [&](std::size_t number) -> Around& { return dynamic_cast<Around&>(*stages[number]); };
    const int place = lane_of(plan.layout, rank).pipeline_rank;
    const bool first_lane = data_replica(plan.layout, rank) == 0;
    if (first_lane && place == 0) {
      stage(0).before_backward = in_last([&] {
        stands = true;
        came = wait_until([&] { return asked == 2; });
      });
    }
    if (first_lane || place == 0) return;
    stage(1).before_backward = in_last([&] {
      (void)wait_until([&] { return stands.load(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until the other one has nothing else to do
    });
    // Asked for the head's part's it has those of its stage.
    stage(1).asked = stage(3).asked = [&] { ++asked; };
  });
  CHECK(came);
}
