// Small plans that train, and their runs on threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/graph/memory.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/plan.hpp"
#include "common/schedule/generators/registry.hpp"
#include "exec/device/device.hpp"
#include "exec/device/host_device.hpp"
#include "exec/launch/launch.hpp"
#include "exec/run/runner.hpp"
#include "exec/stage/factory.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/receive_arena.hpp"

namespace plumb::exec::test {

struct Wanted {
  Model model;
  std::string schedule = "1f1b";
  int ranks = 1;
  int chunks = 1;
  int microbatches = 4;
  ElementType precision = ElementType::fp32;
  bool recompute = false;
  int slices = 1;
  int data = 1;  // degree
};

inline Plan training_plan(const Wanted& wanted) {
  Plan plan;
  plan.name = wanted.model.name + " " + wanted.schedule;
  plan.model = wanted.model;
  plan.training.sequence = wanted.model.vision ? tokens(*wanted.model.vision) : 32;
  plan.training.microbatch = 2;
  plan.training.global_batch = 2 * wanted.microbatches * wanted.data;
  plan.training.precision = wanted.precision;
  plan.schedule = generate_schedule(
      wanted.schedule,
      {.ranks = wanted.ranks, .microbatches = wanted.microbatches, .chunks = wanted.chunks, .slices = wanted.slices});
  const int count = stages(plan.schedule);
  plan.costs = even_costs(
      count, {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}, .chunks = wanted.chunks});
  plan.costs.boundary_bytes = {2 * plan.training.sequence / wanted.slices * wanted.model.hidden *
                               element_bytes(wanted.precision)};
  plan.schedule = with_recompute(plan.schedule, std::vector<bool>(static_cast<std::size_t>(count), wanted.recompute));
  plan.cluster.ranks = wanted.ranks * wanted.data;
  plan.layout.pipeline = wanted.ranks;
  plan.layout.data.degree = wanted.data;
  plan.split = uniform_split(static_cast<int>(wanted.model.layers.size()), count);
  return plan;
}

// Gives the plan's stages the costs of these blocks; what each rank then needs.
inline std::vector<RankMemory> predicted_memory(Plan& plan, std::vector<ComputeCost> blocks) {
  for (ComputeCost& block : blocks) block = per_slice(block, plan.schedule.slices);
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    plan.costs.stages[static_cast<std::size_t>(stage)] = stage_cost(blocks, plan.split, stage);
  }
  const Schedule lowered = lower(plan.schedule, {});
  const ScheduleGraph graph = build_graph(lowered, plan.costs);
  return memory_over_time(graph, evaluate(graph), plan.costs, lowered);
}

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
  std::vector<NamedGradients> by_rank;        // the gradients that each rank holds
  std::vector<NamedGradients> weights;        // so too, after the last step
  std::vector<Bytes> peak = {};               // per rank
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
  options.memory = {.moved = memory_moved, .reset_peak = reset_peak, .peak = peak_bytes};
  std::vector<RankLog> logs(ranks);
  TrainingRun run{.by_rank = std::vector<NamedGradients>(ranks),
                  .weights = std::vector<NamedGradients>(ranks),
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
    const auto stages = make_stages(plan, rank, of_stages);
    const int place = lane_of(plan.layout, rank).pipeline_rank;
    const ReceiveArena arena(mine.device == nullptr ? *host : *mine.device, slots[static_cast<std::size_t>(place)]);
    mine.arena = mine.device == nullptr ? nullptr : &arena;
    logs[static_cast<std::size_t>(rank)] = run_rank(plan, lowered, transport, stages, mine);
    run.receives_beside[static_cast<std::size_t>(rank)] = arena.refused();
    run.by_rank[static_cast<std::size_t>(rank)] = gradients(stages);
    run.weights[static_cast<std::size_t>(rank)] = merged_weights(stages, plan.training);
  });
  run.losses = losses_of(plan, logs);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    run.gradients.insert(run.by_rank[rank].begin(), run.by_rank[rank].end());
    run.peak.push_back(logs[rank].steps.back().peak_bytes);
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
