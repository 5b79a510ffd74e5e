#include "common/search/peak_memory.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace plumb {
namespace {

// Calls visit(element, position) for all of a rank's elements, those of a loop as often as it was run.
template <class Element, class Visit>
void for_each(const CompiledGraph& compiled, int more, const std::vector<Element>& elements, const Visit& visit) {
  const auto by_position = [](const Element& element, std::uint32_t position) { return element.position < position; };
  std::size_t shift = 0;
  auto element = elements.begin();
  for (const CompiledLoop& loop : compiled.loops) {
    if (more == 0) break;
    const auto block = std::lower_bound(element, elements.end(), loop.begin, by_position);
    const auto behind = std::lower_bound(block, elements.end(), loop.begin + loop.size, by_position);
    for (; element != behind; ++element) visit(*element, element->position + shift);
    for (int n = 0; n < more; ++n) {
      shift += loop.size;
      for (auto again = block; again != behind; ++again) visit(*again, again->position + shift);
    }
  }
  for (; element != elements.end(); ++element) visit(*element, element->position + shift);
}

// By time. Positions follow times but for little, so that each is near its place; where that is not so, as any list.
template <class Arrival>
void sort_nearly_sorted(std::vector<Arrival>& arrivals) {
  constexpr std::size_t near = 16;  // places that one moves, on average
  std::size_t moves = 0;
  for (auto at = arrivals.begin(); at != arrivals.end() && moves <= near * arrivals.size(); ++at) {
    const Arrival arrival = *at;
    auto to = at;
    for (; to != arrivals.begin() && (to - 1)->time > arrival.time; --to) *to = *(to - 1);
    *to = arrival;
    moves += static_cast<std::size_t>(at - to);
  }
  if (moves > near * arrivals.size()) std::ranges::sort(arrivals, {}, &Arrival::time);
}

}  // namespace

// What an action makes for a neighbour counts from its end on: on the same rank as an input that waits, else as a
// message that has not arrived.
void PeakMemory::set_changes(const CompiledGraph& compiled, const PipelineCosts& costs) {
  const std::int32_t chain = chain_stages(costs);
  changes_.resize(costs.stages.size() * footprint_kinds * static_cast<std::size_t>(compiled.slices));
  for (const auto& [action, redone, versions, index] : compiled.footprints) {
    const Bytes weights = costs.stages[static_cast<std::size_t>(action.stage)].parameter_bytes * versions;
    const Bytes unsharded = costs.stages[static_cast<std::size_t>(action.stage)].data_moves.unsharded;
    if (action.kind == ActionKind::unshard || (action.kind == ActionKind::optimizer_step && versions == 0)) {
      const std::int64_t change = action.kind == ActionKind::unshard ? unsharded.value : -unsharded.value;
      changes_[index] = {.at_start = change, .own_at_start = change};
      continue;
    }
    if (action.kind == ActionKind::optimizer_step) {
      changes_[index] = {.at_start = weights.value, .own_at_start = weights.value};
      continue;
    }
    const bool forward = action.kind == ActionKind::forward;
    const bool gradient = makes_input_gradient(action.kind);
    const bool makes =
        action.stage < chain && ((forward && action.stage + 1 < chain) || (gradient && action.stage > 0));
    const Bytes made = (makes ? costs.boundary_bytes : Bytes{}) + made_for_parts(costs, action);
    const Footprint bytes = footprint(costs, action, redone);
    changes_[index] = {.at_start = sum(bytes.at_start).value,
                       .at_end = (sum(bytes.at_end) + weights + made).value,
                       .own_at_start = (sum(bytes.at_start) - bytes.at_start.messages).value,  // which it takes
                       .own_at_end = (sum(bytes.at_end) + weights).value};
  }
  message_ = {costs.boundary_bytes.value, costs.vocabulary.head_broadcast.bytes.value,
              costs.vocabulary.embedding_broadcast.bytes.value};
  fixed_.clear();
  for (const std::vector<int>& own : compiled.stages_of_rank) {
    Bytes sum;
    for (const int held : own) {
      const auto stage = static_cast<std::size_t>(held);
      const ComputeCost& cost = costs.stages[stage];
      sum += cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes;
    }
    fixed_.push_back(sum.value);
  }
}

// No less than its peak, however its messages come. A loop of a steady state leaves a rank as it was; where there are
// several, microbatches pile up between them.
std::int64_t PeakMemory::bound(const CompiledGraph& compiled, int more, std::size_t rank) const {
  const int piled_up = compiled.loops.size() > 1 ? more : 0;
  std::int64_t most = fixed_[rank];
  std::int64_t level = fixed_[rank];
  for_each(compiled, piled_up, compiled.ranks[rank].actions, [&](const CompiledAction& action, std::size_t) {
    const Change& change = changes_[action.footprint];
    level += change.own_at_start;
    most = std::max(most, level);
    level += change.own_at_end;
  });
  const std::int64_t messages = 4 * std::ssize(compiled.stages_of_rank[rank]) * piled_up;  // as most_messages counts
  const auto& at_once = compiled.ranks[rank].most_messages;
  return std::inner_product(message_.begin(), message_.end(), at_once.begin(),
                            most + std::ranges::max(message_) * messages);
}

void PeakMemory::collect_arrivals(const CompiledGraph& compiled, const CompiledTimes& times, const CompiledRank& rank,
                                  double slack) {
  arrivals_.clear();
  for_each(compiled, times.more(), rank.arrivals, [&](const CompiledArrival& arrival, std::size_t position) {
    const double time = times.end(position);
    const std::int64_t bytes = message_.at(static_cast<std::size_t>(arrival.of));
    arrivals_.push_back(arrival.received ? Arrival{time - slack, bytes} : Arrival{time + slack, -bytes});
  });
  sort_nearly_sorted(arrivals_);
}

// What changes at one time counts together: what lives for no time counts nothing.
std::int64_t PeakMemory::peak(const CompiledGraph& compiled, const CompiledTimes& times, std::size_t rank) const {
  std::int64_t most = fixed_[rank];
  std::int64_t level = most;
  double now = 0;
  auto arrival = arrivals_.begin();
  const auto change = [&](double time, std::int64_t bytes) {
    if (time > now) {
      most = std::max(most, level);
      now = time;
    }
    level += bytes;
  };
  const auto change_after_arrivals = [&](double time, std::int64_t bytes) {
    for (; arrival != arrivals_.end() && arrival->time <= time; ++arrival) change(arrival->time, arrival->bytes);
    change(time, bytes);
  };
  for_each(compiled, times.more(), compiled.ranks[rank].actions,
           [&](const CompiledAction& action, std::size_t position) {
             const Change& bytes = changes_[action.footprint];
             change_after_arrivals(times.start(compiled.nodes[action.position], position), bytes.at_start);
             change_after_arrivals(times.end(position), bytes.at_end);
           });
  for (; arrival != arrivals_.end(); ++arrival) change(arrival->time, arrival->bytes);
  return std::max(most, level);
}

std::int64_t PeakMemory::peak_of(const CompiledGraph& compiled, const CompiledTimes& times, std::size_t rank,
                                 double slack) {
  collect_arrivals(compiled, times, compiled.ranks[rank], slack);
  return peak(compiled, times, rank);
}

FullestOfCompiled PeakMemory::fullest_within(const CompiledGraph& compiled, const CompiledTimes& times, double slack) {
  FullestOfCompiled fullest{.peak_bytes = {-1}};
  for (const auto& [most, rank] : by_bound_) {
    if (most < fullest.peak_bytes.value) break;
    const std::int64_t bytes = peak_of(compiled, times, rank, slack);
    if (bytes < fullest.peak_bytes.value) continue;
    if (bytes == fullest.peak_bytes.value && static_cast<int>(rank) > fullest.rank) continue;
    fullest = {.peak_bytes = {bytes}, .rank = static_cast<int>(rank)};
  }
  return fullest;
}

FullestOfCompiled PeakMemory::find(const CompiledGraph& compiled, const CompiledTimes& times,
                                   const PipelineCosts& costs, double slack) {
  set_changes(compiled, costs);
  by_bound_.clear();
  for (std::size_t rank = 0; rank < compiled.ranks.size(); ++rank) {
    by_bound_.emplace_back(bound(compiled, times.more(), rank), rank);
  }
  std::ranges::sort(by_bound_, std::greater<>());
  FullestOfCompiled most = fullest_within(compiled, times, slack);
  if (slack == 0) return most;
  // Mostly the same rank tells.
  most.exact = peak_of(compiled, times, static_cast<std::size_t>(most.rank), -slack) == most.peak_bytes.value ||
               fullest_within(compiled, times, -slack).peak_bytes == most.peak_bytes;
  return most;
}

}  // namespace plumb
