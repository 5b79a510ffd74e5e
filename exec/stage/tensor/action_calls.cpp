#include "exec/stage/tensor/action_calls.hpp"

#include <algorithm>
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
#include "common/plan/data_parallel.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/schedule/reductions.hpp"
#include "common/split/gathered_units.hpp"
#include "exec/stage/primitives/block_parameters.hpp"
#include "exec/stage/tensor/division.hpp"
#include "exec/stage/tensor/move_ticks.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/launch_plan/filling_bucket.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t values_of_a_row = 3;  // of the loss's statistics: TensorGroup::joined_statistics

void append(const GroupCalls& calls, GroupCalls& to) { to.insert(to.end(), calls.begin(), calls.end()); }

// A weight of a block, as this rank holds it.
struct HeldWeight {
  std::string name;
  std::size_t elements = 0;
  bool trained = false;
  bool late = false;  // its gradient is added up with another stage's or tensor rank's before it is complete
};

// In the order in which TorchStage has them. `division`: null where the block is whole.
std::vector<HeldWeight> weights_of(const Plan& plan, int block, const Division* division) {
  const Model& model = plan.model;
  const std::string table = model.tied_embeddings ? embedding_parameters(model).front().name : "";
  std::vector<HeldWeight> all;
  for (const Parameter& parameter : with_adapters(block_parameters(model, block), plan.training.lora)) {
    const bool summed_first = division != nullptr && !division->summands(parameter.name).empty();
    const auto shape = division == nullptr ? parameter.shape : division->local_shape(parameter);
    all.push_back({.name = parameter.name,
                   .elements = static_cast<std::size_t>(elements_of_shape(shape)),
                   .trained = !parameter.frozen,
                   .late = parameter.name == table || summed_first});
  }
  return all;
}

// Of one bucket; none: there is nothing in it.
void add_bucket(const std::vector<HeldWeight>& weights, GroupCall call, GroupCalls& calls) {
  if (weights.empty()) return;
  call.what += weights.front().name;
  if (weights.size() > 1) call.what += " to " + weights.back().name;
  for (const HeldWeight& weight : weights) {
    call.bucket.push_back(weight.elements);
    call.count += weight.elements;
  }
  calls.push_back(std::make_shared<GroupCall>(std::move(call)));
}

// Of each of a stage's gradients, over all that train it.
std::shared_ptr<GroupCall> sum_of_all(std::vector<int> ranks) {
  auto call = std::make_shared<GroupCall>();
  call->of.use = CommunicatorUse::data;
  call->of.ranks = std::move(ranks);
  call->open = true;
  call->what = "sum of gradients";
  return call;
}

// A block of a rank's: its moves by phase.
struct BlockCalls {
  int block = 0;
  std::vector<HeldWeight> weights;
  std::array<GroupCalls, 3> moves = {};
  [[nodiscard]] const GroupCalls& of(Phase phase) const { return moves[static_cast<std::size_t>(phase)]; }
};

// Blocks whose weights it gathers, and whose gradients it sums, by one call each or none.
struct UnitCalls {
  int blocks = 0;
  GroupCalls gather = {};
  GroupCalls sums = {};
};

// Of the blocks of one rank.
class Calls {
 public:
  Calls(const Plan& plan, int rank)
      : plan_(plan),
        tensor_{CommunicatorUse::tensor, group(plan.layout, rank, MeshAxis::tensor)},
        position_(coordinates(plan.layout, rank).at(static_cast<std::size_t>(MeshAxis::tensor))),
        data_{CommunicatorUse::data, shard_group(plan.layout, rank)},
        copies_{CommunicatorUse::data, replicate_group(plan.layout, rank)},
        part_(position_in(data_.ranks, rank)),
        sum_of_data_(state_shards(plan.layout) > 1 ? Collective::reduce_scatter : Collective::all_reduce) {}

  // Into `calls`, of a stage: what its actions make, and once a step.
  void add_stage(int stage, RankCalls& calls) {
    const std::vector<BlockCalls> blocks = blocks_of(stage);
    for (const ActionKind kind : {ActionKind::forward, ActionKind::recompute, ActionKind::input_gradient,
                                  ActionKind::weight_gradient, ActionKind::backward}) {
      GroupCalls made = in_action(blocks, kind, [](const BlockCalls&, GroupCalls&) {});
      if (!made.empty()) calls[{kind, stage}] = std::move(made);
    }
    const bool sums_gradients = plan_.layout.data.degree > 1;
    GroupCalls once = sums_of_partial(stage);
    if (sums_gradients) add_reduction(stage, blocks, once);
    if (!once.empty()) append(once, calls[completing(stage)]);
    if (state_shards(plan_.layout) > 1) add_unshard(stage, blocks, calls);
  }

  // Of its stage's last W or B, with the sums of gradients beside it.
  [[nodiscard]] GroupCalls reducing(const Action& action) const {
    FillingBucket<HeldWeight> bucket(bucket_bytes(plan_.software, static_cast<int>(data_.ranks.size())));
    GroupCall call = sum_of_gradients();
    call.beside = true;
    GroupCalls all = in_action(blocks_of(action.stage), action.kind, [&](const BlockCalls& of, GroupCalls& made) {
      for (const HeldWeight& weight : of.weights) {
        if (!weight.trained || weight.late) continue;
        add_bucket(bucket.add(weight, bytes_of(weight)), call, made);
      }
    });
    add_bucket(bucket.take(), call, all);
    return all;
  }

 private:
  static Bytes bytes_of(const HeldWeight& weight) {
    return {static_cast<std::int64_t>(weight.elements * sizeof(float))};
  }

  // What completes a stage's gradients: CLIP of a rank those of all its stages, in their order.
  [[nodiscard]] CallKey completing(int stage) const {
    if (plan_.layout.data.degree > 1) return {ActionKind::reduce_gradient, stage};
    if (plan_.training.gradient_clipping == 0) return {ActionKind::optimizer_step, stage};
    const Action clip = clip_of(plan_.schedule, plan_.schedule.rank_of_stage.at(static_cast<std::size_t>(stage)));
    return {clip.kind, clip.stage};
  }

  [[nodiscard]] GroupCall sum_of_gradients() const {
    return {.of = data_, .kind = sum_of_data_, .what = "sum of the gradients of "};
  }

  [[nodiscard]] std::vector<BlockCalls> blocks_of(int stage) const {
    const BlockRange range = blocks_of_stage(plan_.split, stage);
    std::vector<BlockCalls> all;
    for (int block = range.first; block < range.last; ++block) all.push_back(of_block(block));
    return all;
  }

  [[nodiscard]] BlockCalls of_block(int block) const {
    std::optional<Division> division;
    if (tensor_.ranks.size() > 1) division.emplace(plan_.model, block, plan_.layout.tensor, plan_.training, position_);
    BlockCalls calls{.block = block, .weights = weights_of(plan_, block, division ? &*division : nullptr)};
    if (division) {
      const BlockMoves moves = block_moves("block " + std::to_string(block), division->placed(), position_);
      for (std::size_t phase = 0; phase < calls.moves.size(); ++phase) {
        for (const PlacedMove* const move : moves.by_phase[phase]) {
          add_move(division->placed(), *move, moves.block, calls.moves[phase]);
        }
      }
    }
    return calls;
  }

  // Of these blocks, all of a stage. Gradients are complete in the order of the backward.
  [[nodiscard]] std::vector<UnitCalls> units_of(const std::vector<BlockCalls>& blocks) const {
    const BlockRange stage{.first = blocks.front().block, .last = blocks.back().block + 1};
    std::vector<UnitCalls> units;
    auto block = blocks.begin();
    for (const int size : unit_sizes(stage, head_block(plan_.model), plan_.layout.data.layers_per_unit)) {
      UnitCalls& unit = units.emplace_back(UnitCalls{.blocks = size});
      std::vector<HeldWeight> weights;
      std::vector<HeldWeight> complete;
      for (const auto end = block + size; block != end; ++block) {
        weights.insert(weights.end(), block->weights.begin(), block->weights.end());
        complete.insert(complete.begin(), block->weights.begin(), block->weights.end());
      }
      std::erase_if(complete, [](const HeldWeight& weight) { return !weight.trained || weight.late; });
      if (gathers_in_actions(plan_.layout)) {
        add_bucket(weights, {.of = data_, .kind = Collective::all_gather, .what = "gather of "}, unit.gather);
      }
      if (reduces_in_actions(plan_.layout)) add_bucket(complete, sum_of_gradients(), unit.sums);
    }
    return units;
  }

  // As a stage goes through its blocks: BlockGathers and BlockReductions (exec/stage/sharding/block_passes.hpp) say
  // when what is shared out moves. `behind`: the gradients of a block are there.
  template <class Behind>
  GroupCalls in_action(const std::vector<BlockCalls>& blocks, ActionKind kind, const Behind& behind) const {
    const bool up = kind != ActionKind::forward && kind != ActionKind::recompute;
    const bool has_input = kind != ActionKind::weight_gradient;
    const bool has_weights = kind == ActionKind::weight_gradient || kind == ActionKind::backward;
    const auto at = [&](std::size_t i) -> const BlockCalls& { return blocks[up ? blocks.size() - 1 - i : i]; };
    const auto ahead = static_cast<std::size_t>(blocks_ahead(plan_.layout, plan_.software));
    std::vector<UnitCalls> units = units_of(blocks);
    if (up) std::ranges::reverse(units);
    GroupCalls all;
    std::size_t gathered = 0;
    std::size_t i = 0;
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      for (; has_input && gathered < std::min(unit + 1 + ahead, units.size()); ++gathered) {
        append(units[gathered].gather, all);
      }
      for (int left = units[unit].blocks; left > 0; --left, ++i) {
        if (has_input) append(at(i).of(up ? Phase::input_gradient : Phase::forward), all);
        if (!has_weights) continue;
        append(at(i).of(Phase::weight_gradient), all);
        if (left == 1) append(units[unit].sums, all);
        behind(at(i), all);
      }
    }
    return all;
  }

  // Of a table whose ends are both here the stage has one.
  [[nodiscard]] static std::vector<HeldWeight> weights_of_stage(const std::vector<BlockCalls>& blocks) {
    std::vector<HeldWeight> all;
    for (const BlockCalls& of : blocks) {
      for (const HeldWeight& weight : of.weights) {
        if (std::ranges::find(all, weight.name, &HeldWeight::name) == all.end()) all.push_back(weight);
      }
    }
    return all;
  }

  void add_reduction(int stage, const std::vector<BlockCalls>& blocks, GroupCalls& once) const {
    if (state_shards(plan_.layout) == 1) {
      return once.push_back(sum_of_all(data_.ranks));
    }
    std::vector<HeldWeight> weights = weights_of_stage(blocks);
    std::erase_if(weights, [](const HeldWeight& weight) { return !weight.trained; });
    const bool only_late = reduces_in_actions(plan_.layout) || reduces_beside_backward(plan_, stage);
    std::vector<HeldWeight> left = weights;
    if (only_late) std::erase_if(left, [](const HeldWeight& weight) { return !weight.late; });
    add_bucket(left, sum_of_gradients(), once);
    if (copies_.ranks.size() == 1) return;
    for (HeldWeight& weight : weights) weight.elements = elements_of_part(weight.elements, data_.ranks.size(), part_);
    add_bucket(weights, {.of = copies_, .what = "sum over the copies of the gradients of "}, once);
  }

  void add_unshard(int stage, const std::vector<BlockCalls>& blocks, RankCalls& calls) const {
    if (gathers_in_actions(plan_.layout)) return;
    std::vector<HeldWeight> weights = weights_of_stage(blocks);
    if (!shards_weights(plan_.layout)) std::erase_if(weights, [](const HeldWeight& weight) { return !weight.trained; });
    add_bucket(weights, {.of = data_, .kind = Collective::all_gather, .what = "gather of "},
               calls[{ActionKind::unshard, stage}]);
  }

  void add_move(const PlacedBlock& placed, const PlacedMove& each, const std::string& block, GroupCalls& calls) const {
    const Move& move = each.move;
    GroupCall call{.of = among(group(placed.mesh, position_, move.over)),
                   .kind = *move.collective,
                   .what = describe(each) + ", " + block};
    const bool scattered = call.kind == Collective::reduce_scatter;
    call.count = static_cast<std::size_t>(scattered ? move.elements_to : move.elements_from);
    const bool of_loss = each.role == Role::statistics && site_of(placed, each.site).kind == OperationKind::loss;
    if (!of_loss) return calls.push_back(std::make_shared<GroupCall>(std::move(call)));
    // First the largest of each row, then the sums that are less that.
    call.count /= values_of_a_row;
    call.reduction = Reduction::maximum;
    calls.push_back(std::make_shared<GroupCall>(call));
    call.count *= values_of_a_row - 1;
    call.reduction = Reduction::sum;
    calls.push_back(std::make_shared<GroupCall>(std::move(call)));
  }

  // Over ranks of the tensor group.
  [[nodiscard]] GroupCalls sums_of_partial(int stage) const {
    GroupCalls sums;
    const BlockRange range = blocks_of_stage(plan_.split, stage);
    for (int block = range.first; tensor_.ranks.size() > 1 && block < range.last; ++block) {
      const Division division(plan_.model, block, plan_.layout.tensor, plan_.training, position_);
      for (const Parameter& parameter : block_parameters(plan_.model, block)) add_sum(division, parameter, sums);
    }
    return sums;
  }

  void add_sum(const Division& division, const Parameter& parameter, GroupCalls& sums) const {
    const std::vector<int> summands = division.summands(parameter.name);
    if (summands.empty()) return;
    sums.push_back(std::make_shared<GroupCall>(
        GroupCall{.of = among(summands),
                  .count = static_cast<std::size_t>(elements_of_shape(division.local_shape(parameter))),
                  .what = "sum of the gradient of " + parameter.name}));
  }

  // The ranks at these positions of the tensor group.
  [[nodiscard]] CommunicatorSpec among(const std::vector<int>& positions) const {
    if (positions.size() == tensor_.ranks.size()) return tensor_;
    CommunicatorSpec part{.use = CommunicatorUse::tensor_part, .ranks = {}};
    for (const int at : positions) part.ranks.push_back(tensor_.ranks.at(static_cast<std::size_t>(at)));
    return part;
  }

  const Plan& plan_;
  CommunicatorSpec tensor_;
  int position_;
  CommunicatorSpec data_;    // that share out, or of HSDP one copy's ranks
  CommunicatorSpec copies_;  // of the same part
  std::size_t part_;
  Collective sum_of_data_;
};

// Where compute is emulated, sums of gradients alone.
RankCalls calls_of_emulated(const Plan& plan, int rank) {
  RankCalls calls;
  if (plan.layout.data.degree == 1) return calls;
  for (const int stage : stages_of_rank(plan.schedule, lane_of(plan.layout, rank).pipeline_rank)) {
    calls[{ActionKind::reduce_gradient, stage}].push_back(sum_of_all(shard_group(plan.layout, rank)));
  }
  return calls;
}

}  // namespace

RankCalls calls_of_rank(const Plan& plan, int rank, bool emulated) {
  if (emulated) return calls_of_emulated(plan, rank);
  RankCalls calls;
  Calls of_blocks(plan, rank);
  const int place = lane_of(plan.layout, rank).pipeline_rank;
  for (const int stage : stages_of_rank(plan.schedule, place)) of_blocks.add_stage(stage, calls);
  if (plan.layout.data.degree == 1) return calls;
  for (const Action& action : last_weight_gradients(plan.schedule.actions[static_cast<std::size_t>(place)])) {
    if (!reduces_beside_backward(plan, action.stage)) continue;
    calls[{action.kind, action.stage, action.microbatch}] = of_blocks.reducing(action);
  }
  return calls;
}

std::vector<std::vector<int>> tensor_parts(const Plan& plan) {
  std::set<std::vector<int>> parts;
  const TensorLayout& tensor = plan.layout.tensor;
  for (int block = 0; tensor.degree > 1 && block <= head_block(plan.model); ++block) {
    const Division division(plan.model, block, tensor, plan.training);
    const PlacedBlock& placed = division.placed();
    std::vector<Axes> over;
    for (const PlacedWeight& weight : placed.weights) over.push_back(weight.gradient_partial);
    for (const PlacedMove& each : placed.moves) over.push_back(each.move.over);
    for (const Axes axes : over) {
      for (int position = 0; position < tensor.degree; ++position) {
        std::vector<int> part = group(placed.mesh, position, axes);
        if (part.size() > 1 && static_cast<int>(part.size()) < tensor.degree) parts.insert(std::move(part));
      }
    }
  }
  return {parts.begin(), parts.end()};
}

}  // namespace plumb::exec
