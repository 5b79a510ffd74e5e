// Plans with tensor and data groups over NCCL's rules, through the runner on asynchronous devices: how they are run,
// and what every rank must come to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exec/run/runner.hpp"
#include "exec/transport/launch_plan/group_calls.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/device/async_device.hpp"
#include "tests/exec/run/moving_stage.hpp"
#include "tests/exec/transport/launch_plan/made_up_calls.hpp"

namespace plumb::exec::test {

struct GroupCase {
  Plan plan;
  Schedule lowered;
  std::vector<RankCalls> calls;  // by rank
};

// `bucket_bytes`: of gradients that are summed beside the last backward; 0: they are summed behind it.
[[nodiscard]] GroupCase group_case(const std::string& schedule, const Layout& layout, bool recomputed = false,
                                   std::int64_t bucket_bytes = 0);
[[nodiscard]] bool runs_with_groups(const ScheduleEntry& entry, const Layout& layout);

struct GroupRun {
  int steps = 2;
  Speeds speeds = {};
  double deadline = 30;
  std::function<MovingStage::Change(int rank)> change = {};
  std::function<MovingStage::Report(int rank, AsyncDevice& device)> report = {};
};

struct Ran {
  std::vector<RankLog> logs;  // by rank
  int wrong = 0;              // elements of collectives, and gradients that are not those of plain loops
};

[[nodiscard]] Ran run_groups(const GroupCase& of, const GroupRun& options = {});
// What ends it; nobody hangs.
[[nodiscard]] std::string failure(const GroupCase& of, const GroupRun& options);

// Nothing is wrong, and no byte is missing: bytes are those that rings move.
void require_right(const GroupCase& of, const Ran& ran);

}  // namespace plumb::exec::test
