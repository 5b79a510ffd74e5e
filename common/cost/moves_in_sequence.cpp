#include "common/cost/moves_in_sequence.hpp"

#include <algorithm>

#include "common/cost/block_passage.hpp"
#include "common/cost/data_moves.hpp"
#include "common/schedule/action.hpp"
#include "common/schedule/move_order.hpp"

namespace plumb {

void operator+=(DataWaits& sum, const DataWaits& waits) {
  sum.forward += waits.forward;
  sum.recompute += waits.recompute;
  sum.input_gradient += waits.input_gradient;
  sum.weight_gradient += waits.weight_gradient;
  sum.backward += waits.backward;
}

void operator+=(QuantisedMoves& sum, const QuantisedMoves& moves) {
  sum.forward += moves.forward;
  sum.input_gradient += moves.input_gradient;
  sum.weight_gradient += moves.weight_gradient;
}

void operator+=(DataMoves& sum, const DataMoves& moves) {
  if (sum.gathering_again || moves.gathering_again) {
    sum.gathering_again = gathering_again(sum) + gathering_again(moves);
  }
  sum.second_copy += moves.second_copy;
  sum.quantised += moves.quantised;
  sum.gathered += moves.gathered;
  sum.reduced += moves.reduced;
  sum.accumulated += moves.accumulated;
  sum.replicated += moves.replicated;
  sum.unsharded += moves.unsharded;
  sum.beside = sum.beside || moves.beside;
  sum.prefetch = std::max(sum.prefetch, moves.prefetch);
  sum.gathering += moves.gathering;
  sum.reducing += moves.reducing;
  sum.waits += moves.waits;
}

namespace {

// What goes beside its neighbours. Of a block beyond either end: nothing.
DataMoves of_neighbour(std::span<const ComputeCost> blocks, std::size_t block) {
  return block < blocks.size() && blocks[block].data_moves.beside ? blocks[block].data_moves : DataMoves{};
}
ActivationMoves on_host(std::span<const ComputeCost> blocks, std::size_t block) {
  const bool beside = block < blocks.size() && blocks[block].activation_moves.beside;
  return beside ? blocks[block].activation_moves : ActivationMoves{};
}

// The same of all blocks.
int prefetch_of(std::span<const ComputeCost> blocks) { return blocks.front().data_moves.prefetch; }

// What comes up over the host's link beside block i, going back: the activations of the next, and weights that come up
// before these: those of the next; where nothing goes beside it, its own, which are in its gathering's time. Without
// activations weights are a part of what is gathered alone.
Seconds coming_up(std::span<const ComputeCost> blocks, std::size_t block) {
  const Seconds activations = on_host(blocks, block - 1).copying;
  if (activations == Seconds{}) return {};
  const bool ahead = blocks[block].data_moves.beside;
  const std::size_t of = ahead ? block - 1 : block;
  const bool weights = of < blocks.size() && blocks[of].parameter_moves.beside;
  return (weights ? blocks[of].parameter_moves.copying : Seconds{}) + activations;
}

// Of the unit in which the block stands.
std::size_t first_of_unit(std::span<const ComputeCost> blocks, std::size_t block) {
  while (blocks[block].data_moves.joined) --block;
  return block;
}

// Before the first block of I or B: its weights, and over the host's link its activations.
Seconds before_backward(std::span<const ComputeCost> blocks, Seconds activations) {
  const ComputeCost& last = blocks.back();
  const bool weights = last.data_moves.beside && last.parameter_moves.beside;
  return std::max(gathering_again(of_neighbour(blocks, first_of_unit(blocks, blocks.size() - 1))),
                  activations + (weights ? last.parameter_moves.copying : Seconds{}));
}

// For others' weights and gradients; and with the activations on the host, if these count.
enum class WaitsFor : std::uint8_t { data, all };

PassedBlock passed(ActionKind kind, std::span<const ComputeCost> blocks, std::size_t block, int slice) {
  const ActionTimes own = times_of(blocks[block], slice);
  const DataMoves moves = of_neighbour(blocks, block);
  switch (kind) {
    case ActionKind::forward:
      return {own.forward, moves.gathering, {}, on_host(blocks, block - 1).copying};
    case ActionKind::recompute:
      return {own.forward, gathering_again(moves), {}, {}};
    case ActionKind::input_gradient:
      return {own.input_gradient, gathering_again(moves), {}, coming_up(blocks, block)};
    case ActionKind::weight_gradient:
      return {own.weight_gradient, {}, moves.reducing, {}};
    default:
      return {backward_time(own), gathering_again(moves), moves.reducing, coming_up(blocks, block)};
  }
}

bool goes_back(ActionKind kind) { return kind != ActionKind::forward && kind != ActionKind::recompute; }

BlockPassage passage_of(ActionKind kind, std::span<const ComputeCost> blocks, int slice, WaitsFor what,
                        Seconds begun = {}) {
  std::vector<PassedBlock> order;
  order.reserve(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    PassedBlock block = passed(kind, blocks, i, slice);
    if (what == WaitsFor::data) block.copying = {};
    if (blocks[i].data_moves.joined) {
      order.back().computing += block.computing;
    } else {
      order.push_back(block);
    }
  }
  if (goes_back(kind)) std::ranges::reverse(order);
  return passage(order, prefetch_of(blocks), begun);
}

// With what is waited for before the first block, and behind the last what is not a part of the passage.
Seconds waits_of(ActionKind kind, std::span<const ComputeCost> blocks, int slice, WaitsFor what, Seconds outside) {
  BlockPassage way = passage_of(kind, blocks, slice, what);
  if (goes_back(kind)) std::ranges::reverse(way.waits);
  Seconds sum = outside + way.behind;
  for (const Seconds wait : way.waits) sum += wait;
  return sum;
}

DataWaits waits_of(const std::vector<ComputeCost>& blocks, int slice, WaitsFor what) {
  const Seconds copying = what == WaitsFor::all ? on_host(blocks, blocks.size() - 1).copying : Seconds{};
  const Seconds before = before_backward(blocks, copying);
  const DataMoves first = of_neighbour(blocks, 0);
  const auto waits = [&](ActionKind kind, Seconds outside) { return waits_of(kind, blocks, slice, what, outside); };
  return {.forward = waits(ActionKind::forward, first.gathering + copying),
          .recompute = waits(ActionKind::recompute, gathering_again(first)),
          .input_gradient = waits(ActionKind::input_gradient, before),
          .weight_gradient = waits(ActionKind::weight_gradient, {}),
          .backward = waits(ActionKind::backward, before)};
}

// B takes as long as its own blocks and waits, never longer than I and W: what sums in another order say less is
// rounding.
template <class Times>
void add(Times& times, const DataWaits& waits) {
  times.forward += waits.forward;
  times.input_gradient += waits.input_gradient;
  times.weight_gradient += waits.weight_gradient;
  const Seconds hidden = waits.input_gradient + waits.weight_gradient - waits.backward;
  times.hidden_in_backward = std::max(times.hidden_in_backward + hidden, Seconds{});
}

}  // namespace

bool moves_beside(const ComputeCost& block) { return block.data_moves.beside || block.activation_moves.beside; }

bool move_beside(const std::vector<ComputeCost>& blocks) { return std::ranges::any_of(blocks, moves_beside); }

namespace {

// Of slices the mean.
DataWaits mean_waits(const std::vector<ComputeCost>& blocks, std::size_t slices, WaitsFor what) {
  if (slices == 0) return waits_of(blocks, no_microbatch, what);
  DataWaits mean;
  for (std::size_t slice = 0; slice < slices; ++slice) mean += waits_of(blocks, static_cast<int>(slice), what);
  const auto count = static_cast<double>(slices);
  for (const auto wait : {&DataWaits::forward, &DataWaits::recompute, &DataWaits::input_gradient,
                          &DataWaits::weight_gradient, &DataWaits::backward}) {
    mean.*wait = mean.*wait / count;
  }
  return mean;
}

}  // namespace

void add_waits(ComputeCost& sum, const std::vector<ComputeCost>& blocks) {
  for (std::size_t slice = 0; slice < sum.slices.size(); ++slice) {
    add(sum.slices[slice], waits_of(blocks, static_cast<int>(slice), WaitsFor::all));
  }
  const DataWaits all = mean_waits(blocks, sum.slices.size(), WaitsFor::all);
  add(sum, all);
  if (!sum.activation_moves.beside) {
    sum.data_moves.waits += all;
    return;
  }
  const DataWaits data = mean_waits(blocks, sum.slices.size(), WaitsFor::data);
  sum.data_moves.waits += data;
  sum.activation_moves.waits += HostWaits{.forward = all.forward - data.forward,
                                          .input_gradient = all.input_gradient - data.input_gradient,
                                          .backward = all.backward - data.backward};
}

std::vector<Seconds> reduced_at(std::span<const ComputeCost> blocks, bool weight_gradient_alone) {
  const auto kind = weight_gradient_alone ? ActionKind::weight_gradient : ActionKind::backward;
  const Seconds begun =
      weight_gradient_alone ? Seconds{} : before_backward(blocks, on_host(blocks, blocks.size() - 1).copying);
  return passage_of(kind, blocks, 0, WaitsFor::all, begun).reduced;
}

// B gathers for I and reduces behind W, which reads no weights.
void add_own_moves(SliceBytes& bytes, const DataMoves& moves) {
  const auto beside = [](Bytes& workspace, Bytes whole, Bytes quantised, Bytes not_there) {
    workspace = whole + std::max(workspace, quantised - not_there);
  };
  if (bytes.backward_workspace) *bytes.backward_workspace += std::max(moves.gathered, moves.reduced);
  beside(bytes.forward_workspace, moves.gathered, moves.quantised.forward, bytes.kept);
  beside(bytes.input_gradient_workspace, moves.gathered, moves.quantised.input_gradient, {});
  beside(bytes.weight_gradient_workspace, moves.reduced, moves.quantised.weight_gradient, bytes.kept_for_weight);
}

namespace {

// Of one block in B: what I has beside it, and W.
struct BesideBackward {
  Bytes input = {};
  Bytes weight = {};
};

void add_in_unit(SliceBytes& bytes, Bytes weights, Bytes gradients, const BesideBackward& beside) {
  if (bytes.backward_workspace) {
    *bytes.backward_workspace += std::max(beside.input, beside.weight);
  } else {
    bytes.backward_workspace =
        std::max(bytes.input_gradient_workspace + beside.input, weight_gradient_in_backward(bytes) + beside.weight);
  }
  bytes.forward_workspace += weights;
  bytes.input_gradient_workspace += weights;
  bytes.weight_gradient_workspace += gradients;
}

}  // namespace

// The last I of the unit in a backward lets go of its weights.
void add_own_moves_as_one(std::span<ComputeCost> unit) {
  Bytes weights;
  for (const ComputeCost& block : unit) weights += block.data_moves.gathered;
  Bytes gradients;
  for (std::size_t i = unit.size(); i-- > 0;) {
    BesideBackward beside{.input = weights + gradients, .weight = i > 0 ? weights : Bytes{}};
    gradients += unit[i].data_moves.reduced;
    beside.weight += gradients;
    for (SliceBytes& slice : unit[i].slice_bytes) add_in_unit(slice, weights, gradients, beside);
    SliceBytes bytes = bytes_of(unit[i], no_microbatch);
    add_in_unit(bytes, weights, gradients, beside);
    set_bytes(unit[i], bytes);
  }
}

namespace {

MovedBytes moved_for(const DataMoves& moves) {
  const auto on_their_way = [](Bytes whole, Bytes quantised) { return quantised > Bytes{} ? quantised : whole; };
  return {.forward = on_their_way(moves.gathered, moves.quantised.forward),
          .input_gradient = on_their_way(moves.gathered, moves.quantised.input_gradient),
          .weight_gradient = moves.reduced + moves.quantised.weight_gradient};
}

}  // namespace

std::vector<MovedBytes> moved_for_neighbours(const std::vector<ComputeCost>& blocks) {
  std::vector<MovedBytes> units;
  std::vector<std::size_t> unit_of;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const MovedBytes moved = moved_for(of_neighbour(blocks, i));
    if (!blocks[i].data_moves.joined) units.emplace_back();
    units.back().forward += moved.forward;
    units.back().input_gradient += moved.input_gradient;
    units.back().weight_gradient += moved.weight_gradient;
    unit_of.push_back(units.size() - 1);
  }
  const auto unit = [&](std::size_t n) { return n < units.size() ? units[n] : MovedBytes{}; };
  const int prefetch = blocks.empty() ? 1 : prefetch_of(blocks);
  const auto ahead = std::min(static_cast<std::size_t>(prefetch), units.size());
  const auto reductions = std::min(static_cast<std::size_t>(reductions_under_way(prefetch)), units.size());
  std::vector<MovedBytes> all;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Bytes copied = on_host(blocks, i - 1).kept;
    MovedBytes& sum = all.emplace_back(MovedBytes{.forward = copied, .input_gradient = copied});
    const std::size_t own = unit_of[i];
    for (std::size_t n = 1; n <= ahead; ++n) {
      sum.forward += unit(own + n).forward;
      sum.input_gradient += unit(own - n).input_gradient;
    }
    for (std::size_t n = 1; n <= reductions; ++n) sum.weight_gradient += unit(own + n).weight_gradient;
  }
  return all;
}

// In B both stay while the block's I runs, and while its W does.
void add_neighbours(std::vector<SliceBytes>& bytes, const std::vector<ComputeCost>& blocks) {
  const std::vector<MovedBytes> all = moved_for_neighbours(blocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const MovedBytes& moved = all[i];
    const Bytes of_backward = backward_workspace(bytes[i]) + moved.input_gradient + moved.weight_gradient;
    bytes[i].forward_workspace += moved.forward;
    bytes[i].input_gradient_workspace += moved.input_gradient;
    bytes[i].weight_gradient_workspace += moved.weight_gradient;
    bytes[i].backward_workspace = of_backward;
  }
}

}  // namespace plumb
