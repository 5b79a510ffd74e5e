#include "common/planner/traffic.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/cost/gradient_buckets.hpp"
#include "common/cost/of_others.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/shard_traffic.hpp"
#include "common/planner/stage_programs.hpp"
#include "common/program/program_time.hpp"
#include "common/program/program_traffic.hpp"
#include "common/schedule/action.hpp"
#include "common/schedule/schedule.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

struct Received {
  double tensor = 0;
  double data = 0;
  double pipeline = 0;
  CommunicationTime tensor_within = {};
  CommunicationTime data_within = {};
};

// So long all of it, of which an action waits for a part.
CommunicationTime hidden_but(Seconds all, Seconds waits) {
  return {.on_its_way = all, .hidden = std::max(all - waits, Seconds{})};
}

// What an action of a stage gathers and reduces for itself, and how much longer it takes for that.
void add_data_moves(Received& sum, ActionKind kind, const ShardTraffic& traffic, const DataMoves& moves) {
  const DataWaits& waits = moves.waits;
  const Seconds again = gathering_again(moves);
  switch (kind) {
    case ActionKind::forward:
      sum.data += traffic.gathered;
      sum.data_within += hidden_but(moves.gathering, waits.forward);
      return;
    case ActionKind::recompute:
      sum.data += traffic.gathered_again;
      sum.data_within += hidden_but(again, waits.recompute);
      return;
    case ActionKind::input_gradient:
      sum.data += traffic.gathered_again;
      sum.data_within += hidden_but(again, waits.input_gradient);
      return;
    case ActionKind::weight_gradient:
      sum.data += traffic.reduced;
      sum.data_within += hidden_but(moves.reducing, waits.weight_gradient);
      return;
    case ActionKind::backward:
      sum.data += traffic.gathered_again + traffic.reduced;
      sum.data_within += hidden_but(again + moves.reducing, waits.backward);
      return;
    case ActionKind::unshard:
      sum.data += traffic.unsharded;
      return;
    default:
      return;
  }
}

void add_message(Received& sum, const Event& event, const Plan& plan, const ShardTraffic& traffic) {
  const auto bytes = static_cast<double>(event.bytes.value);
  const DataMoves& moves = plan.costs.stages[static_cast<std::size_t>(event.action.stage)].data_moves;
  if (event.action.kind == ActionKind::reduce_gradient) {
    if (state_shards(plan.layout) > 1) {  // a reduce-scatter, and an all-reduce of HSDP
      const auto replicated = static_cast<double>(moves.replicated.value);
      sum.data += traffic.reduced_once + 2 * of_others(replicated, plan.layout.data.replicate);
      return;
    }
    const int rank = plan.schedule.rank_of_stage[static_cast<std::size_t>(event.action.stage)];
    const int ranks = data_degree(plan.layout, rank) * replicas(plan.schedule);
    const bool of_replicas_alone = ranks == replicas(plan.schedule);
    (of_replicas_alone ? sum.pipeline : sum.data) += 2 * of_others(bytes, ranks);
    return;
  }
  if (joins_parts(event.action.kind)) {
    sum.pipeline += received_of_joined(event, plan.schedule);
    return;
  }
  if (!is_receive(event.action.kind) && !is_eviction(event.action.kind) &&
      event.action.kind != ActionKind::reduce_tied) {
    return add_data_moves(sum, event.action.kind, traffic, moves);
  }
  sum.pipeline += bytes;
  // Of one that was scattered its own part; those of the others of its tensor group are gathered.
  const TensorLayout& tensor = plan.layout.tensor;
  if (is_receive(event.action.kind) && gathers_messages(plan.software, tensor))
    sum.tensor += (tensor.degree - 1) * bytes;
}

void add(CommunicationTime& sum, Seconds exposed, Seconds hidden) {
  sum.on_its_way += exposed + hidden;
  sum.hidden += hidden;
}

}  // namespace

double received_of_joined(const Event& event, const Schedule& schedule) {
  const auto bytes = static_cast<double>(event.bytes.value);
  if (event.action.kind == ActionKind::all_reduce) return 2 * of_others(bytes, schedule.ranks);
  const int beside = rank_beside_parts(schedule, event.action.stage);
  const bool broadcast = event.action.kind == ActionKind::broadcast;
  const int rank = rank_in_replica(schedule, 0, event.action.stage);
  return rank == (broadcast ? beside : (beside + 1) % schedule.ranks) ? 0 : bytes;
}

std::vector<StageMoves> tensor_moves(const Plan& plan, Slice slice) {
  std::vector<StageMoves> all(static_cast<std::size_t>(all_stages(plan.schedule)));
  if (plan.layout.tensor.degree == 1) return all;
  const StagePrograms programs(plan, slice);
  const Machine machine = machine_in_training(scenario_of(plan));
  const bool measured = has_measured_costs(plan);
  // Stages of one data degree have their programs in common, and their groups stand alike.
  std::map<const BlockProgram*, std::pair<ProgramTraffic, PhaseTimes>> known;
  std::map<int, TensorGroups> groups;
  for (std::size_t stage = 0; stage < all.size(); ++stage) {
    const int rank = plan.schedule.rank_of_stage[stage];
    const auto [placed, is_first] = groups.try_emplace(data_degree(plan.layout, rank));
    if (is_first) placed->second = tensor_groups(as_all(plan.layout, rank), plan.cluster);
    const TensorGroups& group = placed->second;
    for (const ActionKind kind : {ActionKind::forward, ActionKind::recompute, ActionKind::input_gradient,
                                  ActionKind::weight_gradient, ActionKind::backward}) {
      ActionMoves& sum = all[stage][kind];
      for (const BlockPass& pass : programs.passes(static_cast<int>(stage), kind)) {
        const auto [found, is_new] = known.try_emplace(pass.program);
        auto& [traffic, times] = found->second;
        if (is_new) {
          traffic = program_traffic(*pass.program);
          times = phase_times(measured ? without_overlap(*pass.program) : *pass.program, machine, group);
        }
        for (const Phase phase : pass.phases) {
          sum.received += of_phase(traffic, phase);
          if (phase == Phase::forward) add(sum.time, times.forward_moves, times.forward_beside);
          if (phase == Phase::input_gradient) add(sum.time, times.input_gradient_moves, times.input_gradient_beside);
          if (phase == Phase::weight_gradient) add(sum.time, times.weight_gradient_moves, times.weight_gradient_beside);
        }
        if (pass.phases.size() > 1) sum.time.hidden += times.hidden;
      }
    }
    ActionMoves& once = all[stage][ActionKind::optimizer_step];
    for (const BlockProgram* program : programs.blocks(static_cast<int>(stage))) {
      once.received += program_traffic(*program).once;
    }
    once.time.on_its_way = tensor_sum_time(plan.costs.stages[stage], machine, group);
  }
  return all;
}

void tell_beside(Timeline& timeline, const Plan& plan) {
  const int count = all_stages(plan.schedule);
  std::vector<bool> beside;
  for (int stage = 0; stage < count; ++stage) {
    const int data = data_degree(plan.layout, plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
    beside.push_back(data > 1 && reduces_beside_backward(plan, stage));
  }
  if (std::ranges::find(beside, true) == beside.end()) return;
  const std::vector<std::vector<BlockGradients>> made = gradients_in_backward(plan);
  std::map<std::pair<int, int>, Seconds> begun;  // by rank and stage, its last action that makes gradients
  std::vector<Event>& events = timeline.steps.front().events;
  for (const Event& event : events) {
    const ActionKind kind = event.action.kind;
    if (kind != ActionKind::backward && kind != ActionKind::weight_gradient) continue;
    Seconds& last = begun[{event.rank, event.action.stage}];
    last = std::max(last, event.start);
  }
  for (Event& event : events) {
    const auto stage = static_cast<std::size_t>(event.action.stage);
    if (event.action.kind != ActionKind::reduce_gradient || !beside[stage]) continue;
    const int group = reduction_placement(plan, event.action.stage).ranks;
    const std::vector<FullBuckets> buckets = full_buckets(made[stage], bucket_bytes(plan.software, group));
    const auto last = begun.find({event.rank, event.action.stage});
    if (buckets.empty() || last == begun.end()) continue;
    event.beside = std::max(event.start - last->second - buckets.front().ready, Seconds{});
  }
}

void count_received(Timeline& timeline, const Plan& plan) {
  std::vector<std::vector<StageMoves>> by_slice;  // one where all are alike
  if (plan.schedule.slice_tokens.empty()) {
    by_slice.push_back(tensor_moves(plan, slices_of(plan).front()));
  } else {
    for (const Slice& slice : slices_of(plan)) by_slice.push_back(tensor_moves(plan, slice));
  }
  const std::vector<ShardTraffic> shards = shard_traffic(plan);
  std::vector<Received> received(timeline.ranks.size());
  for (const Event& event : timeline.steps.front().events) {
    Received& sum = received[static_cast<std::size_t>(event.rank)];
    add_message(sum, event, plan, shards[static_cast<std::size_t>(event.action.stage)]);
    const std::vector<StageMoves>& own = of_slice(by_slice, std::max(0, event.action.microbatch));
    const StageMoves& of_stage = own[static_cast<std::size_t>(event.action.stage)];
    const auto found = of_stage.find(event.action.kind);
    if (found == of_stage.end()) continue;
    sum.tensor += found->second.received;
    sum.tensor_within += found->second.time;
  }
  const auto bytes = [](double amount) { return Bytes{std::llround(amount)}; };
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    const auto& [tensor, data, pipeline, tensor_within, data_within] = received[rank];
    timeline.ranks[rank].received_bytes = bytes(tensor + data + pipeline);
    timeline.ranks[rank].by_axis = {
        .tensor = bytes(tensor), .data = bytes(data), .pipeline = bytes(pipeline), .tensor_within = tensor_within};
    if (data_within.on_its_way > Seconds{}) timeline.ranks[rank].by_axis->data_within = data_within;
  }
}

}  // namespace plumb
