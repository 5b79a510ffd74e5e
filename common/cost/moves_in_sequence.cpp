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

// Of a block beyond either end: nothing.
DataMoves of_neighbour(const std::vector<ComputeCost>& blocks, std::size_t block) {
  return block < blocks.size() ? blocks[block].data_moves : DataMoves{};
}

Seconds beyond(Seconds moving, Seconds computing) { return std::max(moving - computing, Seconds{}); }

DataWaits waits_of(const std::vector<ComputeCost>& blocks, int slice) {
  const DataMoves& first = blocks.front().data_moves;
  const DataMoves& last = blocks.back().data_moves;
  DataWaits waits{.forward = first.gathering,
                  .recompute = gathering_again(first),
                  .input_gradient = gathering_again(last),
                  .weight_gradient = first.reducing,
                  .backward = gathering_again(last) + first.reducing};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const ActionTimes own = times_of(blocks[i], slice);
    const DataMoves next = of_neighbour(blocks, i + 1);
    const Seconds before = gathering_again(of_neighbour(blocks, i - 1));  // of the first: beyond the end, too
    const Seconds behind = next.reducing;
    waits.forward += beyond(next.gathering, own.forward);
    waits.recompute += beyond(gathering_again(next), own.forward);
    waits.input_gradient += beyond(before, own.input_gradient);
    waits.weight_gradient += beyond(behind, own.weight_gradient);
    waits.backward += beyond(before + behind, backward_time(own));
  }
  return waits;
}

// B takes as long as its own blocks and waits.
template <class Times>
void add(Times& times, const DataWaits& waits) {
  times.forward += waits.forward;
  times.input_gradient += waits.input_gradient;
  times.weight_gradient += waits.weight_gradient;
  times.hidden_in_backward += waits.input_gradient + waits.weight_gradient - waits.backward;
}

}  // namespace

bool move_beside(const std::vector<ComputeCost>& blocks) {
  return std::ranges::any_of(blocks, [](const ComputeCost& block) { return block.data_moves.beside; });
}

void add_waits(ComputeCost& sum, const std::vector<ComputeCost>& blocks) {
  DataWaits mean;
  for (std::size_t slice = 0; slice < sum.slices.size(); ++slice) {
    const DataWaits waits = waits_of(blocks, static_cast<int>(slice));
    add(sum.slices[slice], waits);
    mean += waits;
  }
  if (sum.slices.empty()) {
    mean = waits_of(blocks, no_microbatch);
  } else {
    const auto count = static_cast<double>(sum.slices.size());
    for (const auto wait : {&DataWaits::forward, &DataWaits::recompute, &DataWaits::input_gradient,
                            &DataWaits::weight_gradient, &DataWaits::backward}) {
      mean.*wait = mean.*wait / count;
    }
  }
  add(sum, mean);
  sum.data_moves.waits += mean;
}

std::vector<Seconds> reduced_at(std::span<const ComputeCost> blocks, bool weight_gradient_alone) {
  std::vector<Seconds> at;
  const auto gathering = [&](const ComputeCost& block) {
    return weight_gradient_alone ? Seconds{} : gathering_again(block.data_moves);
  };
  Seconds begun = gathering(blocks.back());
  for (std::size_t i = blocks.size(); i-- > 0;) {
    const ActionTimes own = times_of(blocks[i], 0);
    Seconds moved = i > 0 ? gathering(blocks[i - 1]) : Seconds{};
    if (i + 1 < blocks.size()) {
      moved += blocks[i + 1].data_moves.reducing;
      at.push_back(begun + moved);
    }
    begun += std::max(weight_gradient_alone ? own.weight_gradient : backward_time(own), moved);
  }
  at.push_back(begun + blocks.front().data_moves.reducing);
  return at;
}

void add_moved(SliceBytes& bytes, const MovedBytes& moved) {
  const Bytes of_backward = backward_workspace(bytes) + moved.input_gradient + moved.weight_gradient;
  bytes.forward_workspace += moved.forward;
  bytes.input_gradient_workspace += moved.input_gradient;
  bytes.weight_gradient_workspace += moved.weight_gradient;
  bytes.backward_workspace = of_backward;
}

MovedBytes moved_for(const DataMoves& moves) {
  return {.forward = moves.gathered + moves.quantised.forward,
          .input_gradient = moves.gathered + moves.quantised.input_gradient,
          .weight_gradient = moves.reduced + moves.quantised.weight_gradient};
}

MovedBytes moved_for_neighbours(const std::vector<ComputeCost>& blocks, std::size_t block) {
  const MovedBytes next = moved_for(of_neighbour(blocks, block + 1));
  const MovedBytes before = moved_for(of_neighbour(blocks, block - 1));
  return {.forward = next.forward, .input_gradient = before.input_gradient, .weight_gradient = next.weight_gradient};
}

void add_neighbours(std::vector<SliceBytes>& bytes, const std::vector<ComputeCost>& blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) add_moved(bytes[i], moved_for_neighbours(blocks, i));
}

}  // namespace plumb
