// Cuts under a memory limit per rank when ranks hold several stages, so that the choice for one binds the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/split/chain.hpp"

namespace plumb {

// Bytes of any run of blocks on any stage.
struct StageMemory {
  std::vector<std::vector<std::int64_t>> before;  // per stage, of the blocks before each block

  [[nodiscard]] std::int64_t of(int stage, int start, int end) const {
    const auto& sums = before[static_cast<std::size_t>(stage)];
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(start)];
  }
};

using StageWindows = std::vector<std::vector<EndWindow>>;  // by stage and start

// Exact, in two steps. First Lagrange multipliers, one per rank's limit: the lightest weighted cuts either exceed the
// weighted limits, which proves that nothing fits, or fit themselves; and every run of blocks whose lightest weighted
// completion exceeds them is ruled out. Then, on the runs that are left, a dynamic program over the ranks, whose state
// is where the stages of ranks that are done meet those of ranks to come.
class CoupledCuts {
 public:
  static constexpr std::int64_t most_steps = 100'000'000;  // some seconds

  CoupledCuts(const StageMemory& memory, const std::vector<int>& rank_of_stage, int ranks, std::int64_t limit,
              std::int64_t budget = most_steps);

  // Any cuts that fit, or none. Throws InputError when that takes too long to tell.
  [[nodiscard]] std::optional<std::vector<int>> any(const StageWindows& windows);
  // Those with the lexicographically largest counts; `known` fit.
  [[nodiscard]] std::vector<int> largest(StageWindows windows, std::vector<int> known);

 private:
  using Positions = std::u16string;  // of cuts: short strings need no allocation, and hash

  enum class Verdict { open, impossible, found };

  struct Search {
    bool finished = true;  // within the budget
    std::optional<std::vector<int>> cuts = {};
  };

  [[nodiscard]] Search search(const StageWindows& windows);

  [[nodiscard]] bool collect_runs(const StageWindows& windows);
  [[nodiscard]] Verdict weigh(const std::vector<double>& multipliers);
  [[nodiscard]] std::vector<std::int64_t> held() const;
  [[nodiscard]] Search walk_ranks();
  [[nodiscard]] std::vector<int> frontier_after(int rank) const;

  [[nodiscard]] std::size_t rank_of(int stage) const {
    return static_cast<std::size_t>(rank_of_stage_[static_cast<std::size_t>(stage)]);
  }
  [[nodiscard]] std::size_t at(int stage, int start) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(blocks_ + 1) + static_cast<std::size_t>(start);
  }

  template <class Visit>
  [[nodiscard]] bool place_rank(const std::vector<int>& own, std::size_t next, std::int64_t bytes, Positions& cuts,
                                const Visit& visit);

  const StageMemory& memory_;
  const std::vector<int>& rank_of_stage_;
  int stages_;
  int blocks_;
  int ranks_;
  std::int64_t limit_;
  std::int64_t budget_;                 // of steps
  std::vector<std::vector<int>> ends_;  // by stage and start: the runs that are not ruled out
  std::vector<double> to_end_;          // by stage and start: least weight of what is behind
  std::vector<double> from_begin_;      // … and before
  std::vector<int> cuts_;               // the lightest ones
  std::int64_t steps_ = 0;              // of all searches together
};

}  // namespace plumb
