#include "exec/stage/tensor/action_calls.hpp"

#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "common/cost/gradient_buckets.hpp"
#include "common/layout/lane.hpp"
#include "common/model/lora.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/reductions.hpp"
#include "exec/stage/primitives/block_parameters.hpp"
#include "exec/stage/tensor/division.hpp"
#include "exec/stage/tensor/move_ticks.hpp"
#include "exec/transport/launch_plan/filling_bucket.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t values_of_a_row = 3;  // of the loss's statistics: TensorGroup::joined_statistics

exec::Collective on_streams(plumb::Collective collective) {
  switch (collective) {
    case plumb::Collective::all_reduce:
      return Collective::all_reduce;
    case plumb::Collective::all_gather:
      return Collective::all_gather;
    case plumb::Collective::reduce_scatter:
      return Collective::reduce_scatter;
    case plumb::Collective::all_to_all:
      break;
  }
  return Collective::all_to_all;
}

GroupCalls joined(const GroupCalls& first, const GroupCalls& second) {
  GroupCalls both = first;
  both.insert(both.end(), second.begin(), second.end());
  return both;
}

// A block of a rank's, with the calls of each phase.
struct BlockCalls {
  std::array<GroupCalls, 3> phases;
  [[nodiscard]] const GroupCalls& of(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
};

// A main gradient that is complete when W of its block has ended, as this rank holds it.
struct CompleteGradient {
  std::string name;
  std::size_t elements = 0;
};

// In the order in which TorchStage reports them: none that is added up with another stage's or tensor rank's first.
// `division`: null where the block is whole.
std::vector<CompleteGradient> complete_gradients(const Plan& plan, int block, const Division* division) {
  const Model& model = plan.model;
  const std::string table = model.tied_embeddings ? embedding_parameters(model).front().name : "";
  std::vector<CompleteGradient> all;
  for (const Parameter& parameter : with_adapters(block_parameters(model, block), plan.training.lora)) {
    const bool summed_first = division != nullptr && !division->summands(parameter.name).empty();
    if (parameter.frozen || parameter.name == table || summed_first) continue;
    const auto shape = division == nullptr ? parameter.shape : division->local_shape(parameter);
    all.push_back({.name = parameter.name, .elements = static_cast<std::size_t>(elements_of_shape(shape))});
  }
  return all;
}

// Of one bucket; none: there is nothing in it.
void add_bucket(const std::vector<CompleteGradient>& bucket, const CommunicatorSpec& data, GroupCalls& calls) {
  if (bucket.empty()) return;
  GroupCall call{.of = data, .what = "sum of the gradients of " + bucket.front().name};
  if (bucket.size() > 1) call.what += " to " + bucket.back().name;
  for (const CompleteGradient& gradient : bucket) {
    call.bucket.push_back(gradient.elements);
    call.count += gradient.elements;
  }
  calls.push_back(std::make_shared<GroupCall>(std::move(call)));
}

// Of the blocks of one rank.
class Calls {
 public:
  Calls(const Plan& plan, int rank)
      : plan_(plan),
        tensor_{CommunicatorUse::tensor, group(plan.layout, rank, MeshAxis::tensor)},
        position_(coordinates(plan.layout, rank).at(static_cast<std::size_t>(MeshAxis::tensor))) {}

  // Into `calls`, of a stage whose partial gradients are added up in `once`.
  void add_stage(int stage, ActionKind once, RankCalls& calls) {
    const BlockRange range = blocks_of_stage(plan_.split, stage);
    GroupCalls forward;
    GroupCalls input_gradient;
    GroupCalls weight_gradient;
    GroupCalls backward;  // block by block
    GroupCalls sums;
    for (int block = range.first; block < range.last; ++block) {
      const Division division(plan_.model, block, plan_.layout.tensor, plan_.training, position_);
      const BlockCalls of = of_block(block, division);
      forward = joined(forward, of.of(Phase::forward));
      input_gradient = joined(of.of(Phase::input_gradient), input_gradient);
      weight_gradient = joined(of.of(Phase::weight_gradient), weight_gradient);
      backward = joined(joined(of.of(Phase::input_gradient), of.of(Phase::weight_gradient)), backward);
      add_sums(division, block, sums);
    }
    calls[{ActionKind::forward, stage}] = calls[{ActionKind::recompute, stage}] = std::move(forward);
    calls[{ActionKind::input_gradient, stage}] = std::move(input_gradient);
    calls[{ActionKind::weight_gradient, stage}] = std::move(weight_gradient);
    calls[{ActionKind::backward, stage}] = std::move(backward);
    calls[{once, stage}] = std::move(sums);
  }

  // Of its stage's last W or B, with the sums of gradients beside it, over `data`.
  [[nodiscard]] GroupCalls reducing(const Action& action, const CommunicatorSpec& data) const {
    const BlockRange range = blocks_of_stage(plan_.split, action.stage);
    FillingBucket<CompleteGradient> bucket(bucket_bytes(plan_.software, static_cast<int>(data.ranks.size())));
    GroupCalls all;
    for (int block = range.last; block-- > range.first;) {
      std::optional<Division> division;
      if (tensor_.ranks.size() > 1) {
        division.emplace(plan_.model, block, plan_.layout.tensor, plan_.training, position_);
        const BlockCalls of = of_block(block, *division);
        if (action.kind == ActionKind::backward) all = joined(all, of.of(Phase::input_gradient));
        all = joined(all, of.of(Phase::weight_gradient));
      }
      for (CompleteGradient& gradient : complete_gradients(plan_, block, division ? &*division : nullptr)) {
        const Bytes bytes{static_cast<std::int64_t>(gradient.elements * sizeof(float))};
        add_bucket(bucket.add(std::move(gradient), bytes), data, all);
      }
    }
    add_bucket(bucket.take(), data, all);
    return all;
  }

 private:
  [[nodiscard]] BlockCalls of_block(int block, const Division& division) const {
    const BlockMoves moves = block_moves("block " + std::to_string(block), division.placed());
    BlockCalls calls;
    for (std::size_t phase = 0; phase < calls.phases.size(); ++phase) {
      for (const PlacedMove* const move : moves.by_phase[phase]) add_move(*move, moves.block, calls.phases[phase]);
    }
    return calls;
  }

  void add_move(const PlacedMove& placed, const std::string& block, GroupCalls& calls) const {
    const Move& move = placed.move;
    GroupCall call{.of = tensor_, .kind = on_streams(*move.collective), .what = describe(placed) + ", " + block};
    const bool scattered = call.kind == Collective::reduce_scatter;
    call.count = static_cast<std::size_t>(scattered ? move.elements_to : move.elements_from);
    if (placed.role != Role::statistics) return calls.push_back(std::make_shared<GroupCall>(std::move(call)));
    // First the largest of each row, then the sums that are less that.
    call.count /= values_of_a_row;
    call.reduction = Reduction::maximum;
    calls.push_back(std::make_shared<GroupCall>(call));
    call.count *= values_of_a_row - 1;
    call.reduction = Reduction::sum;
    calls.push_back(std::make_shared<GroupCall>(std::move(call)));
  }

  void add_sums(const Division& division, int block, GroupCalls& sums) const {
    for (const Parameter& parameter : block_parameters(plan_.model, block)) {
      const std::vector<int> summands = division.summands(parameter.name);
      if (summands.empty()) continue;
      GroupCall call{.of = tensor_,
                     .count = static_cast<std::size_t>(elements_of_shape(division.local_shape(parameter))),
                     .what = "sum of the gradient of " + parameter.name};
      if (summands.size() < tensor_.ranks.size()) {
        call.of = {.use = CommunicatorUse::tensor_part, .ranks = {}};
        for (const int at : summands) call.of.ranks.push_back(tensor_.ranks.at(static_cast<std::size_t>(at)));
      }
      sums.push_back(std::make_shared<GroupCall>(std::move(call)));
    }
  }

  const Plan& plan_;
  CommunicatorSpec tensor_;
  int position_;
};

}  // namespace

RankCalls calls_of_rank(const Plan& plan, int rank, bool emulated) {
  RankCalls calls;
  const bool sums_gradients = plan.layout.data.degree > 1;
  const auto data = std::make_shared<GroupCall>();
  data->of.use = CommunicatorUse::data;
  data->of.ranks = group(plan.layout, rank, MeshAxis::data);
  data->open = true;
  data->what = "sum of gradients";
  Calls of_blocks(plan, rank);
  const int place = lane_of(plan.layout, rank).pipeline_rank;
  for (const int stage : stages_of_rank(plan.schedule, place)) {
    const ActionKind once = sums_gradients ? ActionKind::reduce_gradient : ActionKind::optimizer_step;
    if (plan.layout.tensor.degree > 1 && !emulated) of_blocks.add_stage(stage, once, calls);
    if (sums_gradients) calls[{ActionKind::reduce_gradient, stage}].push_back(data);
  }
  if (!sums_gradients || emulated) return calls;
  for (const Action& action : last_weight_gradients(plan.schedule.actions[static_cast<std::size_t>(place)])) {
    if (!reduces_beside_backward(plan, action.stage)) continue;
    calls[{action.kind, action.stage, action.microbatch}] = of_blocks.reducing(action, data->of);
  }
  return calls;
}

std::vector<std::vector<int>> tensor_parts(const Plan& plan) {
  std::set<std::vector<int>> parts;
  const TensorLayout& tensor = plan.layout.tensor;
  for (int block = 0; tensor.degree > 1 && block <= head_block(plan.model); ++block) {
    const Division division(plan.model, block, tensor, plan.training);
    for (const PlacedWeight& weight : division.placed().weights) {
      if (is_empty(weight.gradient_partial)) continue;
      for (int position = 0; position < tensor.degree; ++position) {
        std::vector<int> part = group(division.placed().mesh, position, weight.gradient_partial);
        if (static_cast<int>(part.size()) < tensor.degree) parts.insert(std::move(part));
      }
    }
  }
  return {parts.begin(), parts.end()};
}

}  // namespace plumb::exec
