// On a GPU, where there is one: every schedule over streams that ranks share, against the single device, bit by bit.
#include <cstdlib>

#include "exec/device/torch_device.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/schedule_plans.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// CTest takes this sentence for a skipped test.
bool skipped() {
  if (accelerator_count() > 0) return false;
  WARN("skipped: no device is here, so nothing was run on a GPU");
  return true;
}

CheckResult checked(const Plan& plan) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  test::Devices devices;
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) devices.push_back(make_torch_device(0));
  const test::TrainingRun run = test::train_on(devices, plan, 2);
  const StageOptions options{.data = {}, .deterministic = true, .device = devices.front()->name()};
  return check_against_reference(plan, options, run.losses, run.gradients);
}

}  // namespace

TEST_CASE("Every schedule trains on a GPU like a single device, by bits") {
  if (skipped()) return;
  for (const ScheduleEntry& entry : schedule_entries()) {
    for (const int ranks : {2, 4}) {
      const Plan plan = test::hybrid_plan(entry, ranks);
      INFO(plan.name << " on " << ranks);
      const CheckResult result = checked(plan);
      INFO(result.problem);
      CHECK(result.bitwise_equal);
    }
  }
}

TEST_CASE("Tied tables, evictions and bf16 do so too") {
  if (skipped()) return;
  for (const char* const name : {"1f1b", "bpipe", "zb-v", "dualpipe"}) {
    const ScheduleEntry& entry = find_schedule(name);
    Plan plan = test::training_plan({.model = test::gpt2(entry.uses_chunks ? 8 : 4, true),
                                     .schedule = name,
                                     .ranks = 4,
                                     .chunks = entry.uses_chunks ? 2 : 1,
                                     .microbatches = 8,
                                     .precision = ElementType::bf16});
    INFO(plan.name);
    const CheckResult result = checked(plan);
    INFO(result.problem);
    CHECK(result.bitwise_equal);
  }
}
