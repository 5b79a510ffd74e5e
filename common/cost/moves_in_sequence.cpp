#include "common/cost/moves_in_sequence.hpp"

#include <algorithm>

#include "common/cost/data_moves.hpp"
#include "common/schedule/action.hpp"

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

// What weights that come up take of the link over which activations come up, before these: beside block i, going back,
// those of the next; where nothing goes beside it, its own, which are in its gathering's time.
Seconds weights_up(std::span<const ComputeCost> blocks, std::size_t block) {
  const bool ahead = blocks[block].data_moves.beside;
  const std::size_t of = ahead ? block - 1 : block;
  return of < blocks.size() && blocks[of].parameter_moves.beside ? blocks[of].parameter_moves.copying : Seconds{};
}

// Before the first block of I or B.
Seconds weights_before_all(std::span<const ComputeCost> blocks) {
  const ComputeCost& last = blocks.back();
  return last.data_moves.beside && last.parameter_moves.beside ? last.parameter_moves.copying : Seconds{};
}

Seconds beyond(Seconds moving, Seconds computing) { return std::max(moving - computing, Seconds{}); }

// For others' weights and gradients; and with the activations on the host, if these count.
enum class WaitsFor : std::uint8_t { data, all };

DataWaits waits_of(const std::vector<ComputeCost>& blocks, int slice, WaitsFor what) {
  const auto copying = [&](std::size_t block) {
    return what == WaitsFor::all ? on_host(blocks, block).copying : Seconds{};
  };
  const std::size_t end = blocks.size() - 1;
  const DataMoves first = of_neighbour(blocks, 0);
  const DataMoves last = of_neighbour(blocks, end);
  const Seconds before_all = std::max(gathering_again(last), copying(end) + weights_before_all(blocks));
  DataWaits waits{.forward = first.gathering + copying(end),
                  .recompute = gathering_again(first),
                  .input_gradient = before_all,
                  .weight_gradient = first.reducing,
                  .backward = before_all + first.reducing};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const ActionTimes own = times_of(blocks[i], slice);
    const DataMoves next = of_neighbour(blocks, i + 1);
    const Seconds before = gathering_again(of_neighbour(blocks, i - 1));  // of the first: beyond the end, too
    const Seconds behind = next.reducing;
    const Seconds down = copying(i - 1);
    const Seconds up = weights_up(blocks, i) + copying(i - 1);
    waits.forward += beyond(std::max(next.gathering, down), own.forward);
    waits.recompute += beyond(gathering_again(next), own.forward);
    waits.input_gradient += beyond(std::max(before, up), own.input_gradient);
    waits.weight_gradient += beyond(behind, own.weight_gradient);
    waits.backward += beyond(std::max(before + behind, up), backward_time(own));
  }
  return waits;
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
  std::vector<Seconds> at;
  const auto gathering = [&](std::size_t block) {
    return weight_gradient_alone ? Seconds{} : gathering_again(blocks[block].data_moves);
  };
  const auto coming_up = [&](Seconds weights, std::size_t block) {
    return weight_gradient_alone ? Seconds{} : weights + on_host(blocks, block).copying;
  };
  const std::size_t end = blocks.size() - 1;
  Seconds begun = std::max(gathering(end), coming_up(weights_before_all(blocks), end));
  for (std::size_t i = blocks.size(); i-- > 0;) {
    const ActionTimes own = times_of(blocks[i], 0);
    Seconds moved = i > 0 ? gathering(i - 1) : Seconds{};
    if (i + 1 < blocks.size()) {
      moved += blocks[i + 1].data_moves.reducing;
      at.push_back(begun + moved);
    }
    begun += std::max({weight_gradient_alone ? own.weight_gradient : backward_time(own), moved,
                       coming_up(weights_up(blocks, i), i - 1)});
  }
  at.push_back(begun + blocks.front().data_moves.reducing);
  return at;
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

MovedBytes moved_for(const DataMoves& moves) {
  const auto on_their_way = [](Bytes whole, Bytes quantised) { return quantised > Bytes{} ? quantised : whole; };
  return {.forward = on_their_way(moves.gathered, moves.quantised.forward),
          .input_gradient = on_their_way(moves.gathered, moves.quantised.input_gradient),
          .weight_gradient = moves.reduced + moves.quantised.weight_gradient};
}

}  // namespace

MovedBytes moved_for_neighbours(const std::vector<ComputeCost>& blocks, std::size_t block) {
  const MovedBytes next = moved_for(of_neighbour(blocks, block + 1));
  const MovedBytes before = moved_for(of_neighbour(blocks, block - 1));
  const Bytes copied = on_host(blocks, block - 1).kept;
  return {.forward = next.forward + copied,
          .input_gradient = before.input_gradient + copied,
          .weight_gradient = next.weight_gradient};
}

// In B both stay while the block's I runs, and while its W does.
void add_neighbours(std::vector<SliceBytes>& bytes, const std::vector<ComputeCost>& blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const MovedBytes moved = moved_for_neighbours(blocks, i);
    const Bytes of_backward = backward_workspace(bytes[i]) + moved.input_gradient + moved.weight_gradient;
    bytes[i].forward_workspace += moved.forward;
    bytes[i].input_gradient_workspace += moved.input_gradient;
    bytes[i].weight_gradient_workspace += moved.weight_gradient;
    bytes[i].backward_workspace = of_backward;
  }
}

}  // namespace plumb
