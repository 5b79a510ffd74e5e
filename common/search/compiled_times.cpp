#include "common/search/compiled_times.hpp"

#include <limits>

namespace plumb {

// The nodes behind those that were run so far.
void CompiledTimes::run(const CompiledNode* nodes, std::size_t count, const double* durations) {
  double* ends = ends_.data() + run_ + 1;
  for (std::size_t n = 0; n < count; ++n) {
    const CompiledNode& node = nodes[n];
    const double a = *(ends + n - node.back_a);
    const double b = *(ends + n - node.back_b);
    ends[n] = (a > b ? a : b) + durations[node.duration];
  }
  run_ += count;
}

void CompiledTimes::repeat(const CompiledGraph& compiled, const CompiledLoop& loop, const double* durations, int more,
                           double tolerance) {
  more_ = 0;
  for (int left = more; left > 0; --left) {
    if (tolerance > 0) {
      const Shift shift = periodic(loop, run_, left, tolerance);
      left -= shift.blocks;
      left_out_ += shift.time;
      leaves_out_ = leaves_out_ || shift.blocks > 0;
      if (left == 0) break;
    }
    run(compiled.nodes.data() + loop.begin, loop.size, durations);
    ++more_;
  }
}

void CompiledTimes::time(const CompiledGraph& compiled, const std::vector<double>& durations, int more,
                         double tolerance) {
  std::size_t most = compiled.nodes.size() + 1;
  for (const CompiledLoop& loop : compiled.loops) most += static_cast<std::size_t>(more) * loop.size;
  if (ends_.size() < most) ends_.resize(most);
  ends_[0] = 0;
  more_ = 0;
  run_ = 0;
  left_out_ = 0;
  leaves_out_ = false;
  std::size_t done = 0;  // of the compiled graph's nodes
  const auto run_until = [&](std::size_t end) {
    run(compiled.nodes.data() + done, end - done, durations.data());
    done = end;
  };
  if (more > 0) {
    for (const CompiledLoop& loop : compiled.loops) {
      run_until(loop.begin + loop.size);
      repeat(compiled, loop, durations.data(), more, compiled.loops.size() == 1 ? tolerance : 0);
    }
  }
  run_until(compiled.nodes.size());
  makespan_ = 0;
  for (const std::uint32_t sink : compiled.sinks) makespan_ = std::max(makespan_, end(shifted(compiled, sink)));
  makespan_ += left_out_;
}

// Behind the blocks that loops before it added.
std::size_t CompiledTimes::shifted(const CompiledGraph& compiled, std::uint32_t sink) const {
  std::size_t position = sink;
  for (const CompiledLoop& loop : compiled.loops) {
    if (sink >= loop.begin + loop.size) position += static_cast<std::size_t>(more_) * loop.size;
  }
  return position;
}

void CompiledTimes::count_longest_path(const CompiledGraph& compiled, std::vector<double>& passes) const {
  if (compiled.sinks.empty()) return;
  std::size_t position = 0;
  for (const std::uint32_t sink : compiled.sinks) {
    const std::size_t at = shifted(compiled, sink);
    if (end(at) >= end(position) || position == 0) position = at;
  }
  // The compiled node at a position: those of a loop are repeated behind it.
  const auto node_at = [&](std::size_t at) -> const CompiledNode& {
    for (const CompiledLoop& loop : compiled.loops) {
      const std::size_t behind = loop.begin + loop.size;
      if (at < behind) break;
      const std::size_t added = static_cast<std::size_t>(more_) * loop.size;
      if (at < behind + added) return compiled.nodes[loop.begin + (at - behind) % loop.size];
      at -= added;
    }
    return compiled.nodes[at];
  };
  for (std::size_t behind = position + 1; behind > 0;) {  // the position before the first ends at 0
    const CompiledNode& node = node_at(behind - 1);
    passes[node.duration] += 1;
    const std::size_t a = behind - node.back_a;
    const std::size_t b = behind - node.back_b;
    behind = ends_[a] > ends_[b] ? a : b;
  }
}

// The shortest period of those that save a block.
CompiledTimes::Shift CompiledTimes::periodic(const CompiledLoop& loop, std::size_t end, int left,
                                             double tolerance) const {
  const std::size_t blocks = loop.blocks + static_cast<std::size_t>(more_);
  const double* last = ends_.data() + end;  // of the last node
  const std::size_t size = loop.size;
  for (std::size_t q = 1; q <= static_cast<std::size_t>(left) && 2 * (q + loop.reach) <= blocks; ++q) {
    const std::size_t periods = static_cast<std::size_t>(left) / q;
    const auto times = static_cast<double>(periods);
    const double by = *last - *(last - q * size);
    const double spread = tolerance * (*last + times * by) / times;
    // Most periods are ruled out by two nodes.
    const double other = *(last - size / 2) - *(last - size / 2 - q * size);
    if (!(std::max(by, other) - std::min(by, other) <= spread)) continue;
    const Shift shift = with_period(loop, end, q, spread);
    if (shift.blocks == 0) continue;
    return {.blocks = static_cast<int>(q * periods), .time = shift.time * times};
  }
  return {};
}

// The common shift over q blocks, of as many blocks as what follows looks back to, and of q and once more as many
// before these: there all that memory sees has both its neighbours.
CompiledTimes::Shift CompiledTimes::with_period(const CompiledLoop& loop, std::size_t end, std::size_t q,
                                                double spread) const {
  const std::size_t back = q * loop.size;
  const double* const last = ends_.data() + end;
  const double* const first = last + 1 - (std::size_t{2} * loop.reach + q) * loop.size;
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const double* at = first; at <= last; ++at) {
    const double by = *at - *(at - back);
    least = std::min(least, by);
    most = std::max(most, by);
    if (most - least > spread) return {};
  }
  return {.blocks = static_cast<int>(q), .time = least + (most - least) / 2};
}

}  // namespace plumb
