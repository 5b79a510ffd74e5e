// Proof that no split of a family makes a step within a given time and fits, far sooner than the best split is found.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "common/base/units.hpp"
#include "common/search/compiled_graph.hpp"
#include "common/search/compiled_times.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {

// Durations of a compiled graph's kinds of nodes, in seconds, by which blocks each stage holds.
struct SplitDurations {
  std::vector<double> fixed;                    // by kind; of kinds that depend on no stage's blocks
  std::vector<std::vector<std::size_t>> kinds;  // by stage: the kinds that depend on its blocks
  // Writes the durations of the stage's kinds, in their order, if it holds the blocks [first, last).
  std::function<void(int stage, int first, int last, double* seconds)> of_run = {};
};

// True only if every split has a path longer than `at_most` or exceeds the chain's limit of memory.
//
// A zero-sum game: one side cuts the blocks, the other picks a path or a rank's moment, for what that exceeds its limit
// by. Every mixture of picks bounds the game from below by its lightest cuts, which a dynamic program over the stages
// finds exactly. Steps of 2 / (n + 2) towards the worst pick improve the mixture (Frank and Wolfe 1956). A bound above
// 0 is the proof; cuts that exceed no limit end the search for one.
class SplitProof {
 public:
  // All must outlive it; `more` blocks are added to each loop.
  SplitProof(const CompiledGraph& compiled, int more, const WeighedChain& chain, const SplitDurations& durations);

  [[nodiscard]] bool none_within(Seconds at_most, CompiledTimes& times);

 private:
  struct Mixture {
    std::vector<double> passes;  // by kind: how often the mixed paths pass it
    std::vector<double> fixed;   // by rank: weight of the bytes that its stages hold at any moment
    std::vector<double> kept;    // by stage: weight of the bytes that they keep for microbatches
    double allowed = 0;          // most that the mixed picks may take, in the same units
  };
  // Runs of one stage, in the order of starts and ends.
  struct Runs {
    int first_start = 0;
    int last_start = 0;
    int last_end = 0;
    std::vector<double> seconds = {};  // by start, end and kind
  };

  [[nodiscard]] bool is_small_enough() const;
  void measure_runs();
  [[nodiscard]] double lightest(const Mixture& mixture);
  [[nodiscard]] double weight(const Mixture& mixture, int stage, int start, int end) const;
  [[nodiscard]] std::size_t place(const Runs& runs, std::size_t kinds, int start, int end) const;
  void set_durations();
  // The pick that exceeds its limit most under the lightest cuts; by how much.
  [[nodiscard]] double worst(double at_most, CompiledTimes& times, Mixture& pick);

  const CompiledGraph& compiled_;
  int more_;
  const WeighedChain& chain_;
  const SplitDurations& of_;
  std::vector<Runs> runs_;                   // by stage
  std::vector<int> cuts_;                    // the lightest ones: ends of the stages
  std::vector<double> durations_;            // by kind, under these
  std::vector<std::vector<double>> to_end_;  // by stage and start
};

}  // namespace plumb
