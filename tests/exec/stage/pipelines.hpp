// Runs of small plans, on threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/layout/lane.hpp"
#include "common/plan/plan.hpp"
#include "exec/device/device.hpp"
#include "exec/device/host_device.hpp"
#include "exec/host/memory.hpp"
#include "exec/launch/launch.hpp"
#include "exec/run/runner.hpp"
#include "exec/stage/factory.hpp"
#include "exec/transport/group_bytes.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/receive_arena.hpp"
#include "tests/exec/stage/training_plan.hpp"

namespace plumb::exec::test {

// Of each step: the last stage of each replica has a part, and of several lanes it is the mean. `logs` by rank.
inline std::vector<double> losses_of(const Plan& plan, const std::vector<RankLog>& logs) {
  std::vector<double> losses(logs.front().steps.size(), 0);
  const std::vector<Lane> lanes = lanes_of(plan.layout);
  for (const Lane& lane : lanes) {
    for (int replica = 0; replica < replicas(plan.schedule); ++replica) {
      const int last = rank_in_replica(plan.schedule, replica, plumb::stages(plan.schedule) - 1);
      const RankLog& log = logs[static_cast<std::size_t>(lane.ranks[static_cast<std::size_t>(last)])];
      for (std::size_t step = 0; step < losses.size(); ++step) losses[step] += log.steps[step].loss;
    }
  }
  for (double& loss : losses) loss /= static_cast<double>(lanes.size());
  return losses;
}

struct TrainingRun {
  std::vector<double> losses = {};
  NamedGradients gradients = {};
  std::vector<NamedGradients> by_rank;       // the gradients that each rank holds
  std::vector<NamedGradients> weights;       // so too, after the last step
  std::vector<Bytes> peak = {};              // per rank
  std::vector<Bytes> on_host = {};           // so too, of what is offloaded
  std::vector<Bytes> received = {};          // so too, in the last step
  std::vector<NamedGradients> before = {};   // of a tensor group: the weights that each rank held before the last step,
  std::vector<NamedGradients> routing = {};  // which experts its tokens chose in that,
  std::vector<Bytes> in_group = {};          // and what it received of its tensor group in all steps,
  std::vector<GroupBytes> by_group = {};     // so too, of every group
  std::vector<std::int64_t> receives_beside;  // per rank, on devices: that found their slot of the arena held
};

// `transports` makes those of all ranks, in this process.
using MakeTransports = std::function<std::vector<std::unique_ptr<Transport>>(int ranks)>;
// By rank; none: the host.
using Devices = std::vector<std::unique_ptr<Device>>;

inline TrainingRun train(const Plan& plan, int steps, const MakeTransports& transports = make_local_transports,
                         const Devices& devices = {}) {
  const Schedule lowered = lowered_schedule(plan);
  const auto ranks = static_cast<std::size_t>(plumb::ranks(plan.layout));
  RunOptions options;
  options.steps = steps;
  options.memory = {.moved = memory_moved, .reset_peak = reset_peak, .peak = peak_bytes, .allocate = allocate_payload};
  std::vector<RankLog> logs(ranks);
  TrainingRun run{.by_rank = std::vector<NamedGradients>(ranks),
                  .weights = std::vector<NamedGradients>(ranks),
                  .on_host = std::vector<Bytes>(ranks),
                  .before = std::vector<NamedGradients>(ranks),
                  .routing = std::vector<NamedGradients>(ranks),
                  .in_group = std::vector<Bytes>(ranks),
                  .by_group = std::vector<GroupBytes>(ranks),
                  .receives_beside = std::vector<std::int64_t>(ranks, 0)};
  std::vector<ReceiveSlots> slots(ranks);
  if (!devices.empty()) slots = plan_receive_arenas(lowered, plan.costs);
  run_on_threads(transports(static_cast<int>(ranks)), [&](Transport& transport) {
    const int rank = transport.rank();
    begin_rank_thread(rank);
    RunOptions mine = options;
    StageOptions of_stages;
    const auto host = make_host_device();
    if (!devices.empty()) {
      mine.device = devices[static_cast<std::size_t>(rank)].get();
      mine.device->enter();
      of_stages = {.data = {}, .deterministic = true, .device = mine.device->name()};
    }
    const bool divided = divides_tensors(plan.layout);
    of_stages.transport = &transport;
    of_stages.logs_routing = divided;
    const auto stages = make_stages(plan, rank, of_stages);
    const int place = lane_of(plan.layout, rank).pipeline_rank;
    const ReceiveArena arena(mine.device == nullptr ? *host : *mine.device, slots[static_cast<std::size_t>(place)]);
    mine.arena = mine.device == nullptr ? nullptr : &arena;
    RankLog& log = logs[static_cast<std::size_t>(rank)];
    log.rank = rank;
    if (divided) {  // all but the last step first
      mine.steps = steps - 1;
      if (steps > 1) log = run_rank(plan, lowered, transport, stages, mine);
      run.before[static_cast<std::size_t>(rank)] = kept_weights(stages);
      mine.first_step = steps - 1;
      mine.steps = 1;
    }
    const RankLog last = run_rank(plan, lowered, transport, stages, mine);
    run.on_host[static_cast<std::size_t>(rank)] = peak_host_memory(rank);
    log.steps.insert(log.steps.end(), last.steps.begin(), last.steps.end());
    run.routing[static_cast<std::size_t>(rank)] = chosen_experts(stages);
    for (const RankStep& step : log.steps) run.in_group[static_cast<std::size_t>(rank)] += step.received_in_tensor;
    run.by_group[static_cast<std::size_t>(rank)] = transport.received_in_groups();
    run.receives_beside[static_cast<std::size_t>(rank)] = arena.refused();
    run.by_rank[static_cast<std::size_t>(rank)] = gradients(stages);
    run.weights[static_cast<std::size_t>(rank)] = kept_weights(stages);
  });
  run.losses = losses_of(plan, logs);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!divides_tensors(plan.layout)) run.gradients.insert(run.by_rank[rank].begin(), run.by_rank[rank].end());
    run.peak.push_back(logs[rank].steps.back().peak_bytes);
    run.received.push_back(logs[rank].steps.back().received_bytes);
  }
  return run;
}

// The same over the devices' own streams: ranks that are threads and share one.
inline TrainingRun train_on(const Devices& devices, const Plan& plan, int steps) {
  std::vector<Device*> of_ranks;
  for (const auto& device : devices) of_ranks.push_back(device.get());
  return train(
      plan, steps, [&](int /*ranks*/) { return make_local_device_transports(of_ranks); }, devices);
}

}  // namespace plumb::exec::test
