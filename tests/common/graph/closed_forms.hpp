// What tests of closed forms share: random whole times, a schedule's makespan and span under them, and shapes.
#pragma once

#include <algorithm>
#include <random>

#include "common/graph/evaluate.hpp"
#include "common/graph/memory.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/naive_pipeline.hpp"
#include "tests/effort.hpp"

namespace plumb {

inline constexpr int largest_p = testing::up_to(16);
inline constexpr int largest_m = testing::up_to(64);

// Of one action (one chunk, one slice) of a microbatch, in whole units, so that sums are exact.
struct Times {
  int f = 1;
  int i = 1;
  int w = 0;
  int hop = 0;
  double hidden = 0;  // of the shorter action of an overlapped pair
  int b() const { return i + w; }
  int all() const { return f + i + w; }
};

inline int random_in(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

inline Times random_times(std::mt19937& random) {
  return {.f = random_in(random, 1, 40), .i = random_in(random, 1, 40), .w = random_in(random, 0, 40)};
}

// The same with W ≤ min(F, I), where the formulas of zero bubble hold.
inline Times random_times_short_w(std::mt19937& random) {
  Times t = random_times(random);
  t.w = random_in(random, 0, std::min(t.f, t.i));
  return t;
}

struct Measured {
  double makespan = 0;
  double bubble = 0;  // makespan − busy
  double span_bubble = 0;
  double idlest = 0;  // makespan − busy of the rank that is busy least
};

inline Measured measure(const Schedule& schedule, const Times& times) {
  const auto seconds = [](int value) { return Seconds{static_cast<double>(value)}; };
  const ScheduleGraph graph =
      build_graph(lower(schedule, {}), even_costs(stages(schedule), {.forward = seconds(times.f),
                                                                     .input_gradient = seconds(times.i),
                                                                     .weight_gradient = seconds(times.w),
                                                                     .hop = seconds(times.hop),
                                                                     .chunks = 1,
                                                                     .hidden_in_pairs = times.hidden}));
  const Evaluation evaluation = evaluate(graph);
  const Bubbles found = bubbles(graph, evaluation);
  double least_busy = evaluation.makespan.value;
  for (const std::vector<NodeId>& order : graph.rank_order) {
    double busy = 0;
    for (const NodeId node : order) busy += graph.nodes[node].duration.value;
    least_busy = std::min(least_busy, busy);
  }
  return {evaluation.makespan.value, found.makespan.value, found.span.value, evaluation.makespan.value - least_busy};
}

inline NaiveResult naive(const Schedule& schedule, const Times& times) {
  return naive_run(schedule, even_ticks(stages(schedule), times.f, times.i, times.w, times.hop));
}

// Makespan and span as the naive evaluation has them.
inline void check_as_naive(const Schedule& schedule, const Times& times) {
  const Measured measured = measure(schedule, times);
  const NaiveResult expected = naive(schedule, times);
  CHECK(measured.makespan == expected.makespan);
  CHECK(measured.span_bubble - measured.bubble == Approx(expected.longest_span - expected.makespan).margin(1e-6));
}

// Peak activations in chunks (and slices), which are whole.
inline std::vector<int> peak_parts(const Schedule& schedule) {
  std::vector<int> parts;
  for (const double share : peak_activations(schedule)) {
    parts.push_back(static_cast<int>(share * schedule.chunks * schedule.slices + 0.5));
  }
  return parts;
}

// Calls check(p, m, random) for all p and m (every `step`-th m for large p), with a fixed seed per shape.
template <class Check>
void for_all_shapes(const Check& check, int step = 1) {
  for (int p = 1; p <= largest_p; ++p) {
    for (int m = 1; m <= largest_m; m += p < 5 ? 1 : step) {
      std::mt19937 random(static_cast<unsigned>(1000 * p + m));
      CAPTURE(p, m);
      check(p, m, random);
    }
  }
}

}  // namespace plumb
