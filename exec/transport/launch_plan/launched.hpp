// What a rank has put on the streams that its messages move on.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/device/payload.hpp"

namespace plumb::exec {

struct LaunchBatch;  // exec/transport/launch_plan/launch_plan.hpp
using RankLaunches = std::vector<LaunchBatch>;

// A batch on its communicator's stream: when it could start, and when all of it had ended.
struct Launched {
  const LaunchBatch* batch = nullptr;
  MomentPtr begin;
  MomentPtr end;
};

// Of one rank: before it sends another message, its compute waits for the oldest of so many.
inline constexpr std::size_t sent_held_at_most = 4;

}  // namespace plumb::exec
