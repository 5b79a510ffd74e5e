// Cuts under a memory limit per rank when ranks hold several stages, so that the choice for one binds the others.
#pragma once

#include <cstdint>
#include <optional>
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

// Exact. A state is a stage, the block where it starts and what the ranks hold so far. Lagrange multipliers per rank,
// the dual of the ranks' limits, decide most states: the cheapest weighted cuts either exceed the weighted limits,
// which proves that nothing fits, or fit themselves. The rest branch, remembering a Pareto set of what failed.
class CoupledCuts {
 public:
  CoupledCuts(const StageMemory& memory, const std::vector<int>& rank_of_stage, int ranks, std::int64_t limit);

  // Any cuts that fit, or none. `windows` by stage and start; `table` of the same windows.
  [[nodiscard]] std::optional<std::vector<int>> any(const CutTable& table,
                                                    const std::vector<std::vector<EndWindow>>& windows);
  // Those with the lexicographically largest counts; `known` fit.
  [[nodiscard]] std::vector<int> largest(const CutTable& table, const std::vector<std::vector<EndWindow>>& windows,
                                         std::vector<int> known);

 private:
  using Memory = std::vector<std::int64_t>;  // per rank
  struct Cheapest {
    double weight = 0;
    std::vector<int> cuts;
  };

  void begin(const CutTable& table, const std::vector<std::vector<EndWindow>>& windows);
  [[nodiscard]] std::optional<std::vector<int>> complete(int stage, int start, const Memory& used,
                                                         std::vector<double> multipliers);
  [[nodiscard]] std::optional<std::vector<int>> branch(int stage, int start, const Memory& used,
                                                       const std::vector<double>& multipliers);
  [[nodiscard]] Cheapest cheapest(int stage, int start, const std::vector<double>& multipliers);
  [[nodiscard]] Memory held(int stage, int start, Memory used, const std::vector<int>& cuts) const;
  [[nodiscard]] bool is_open(std::size_t rank, int stage) const;
  [[nodiscard]] bool has_failed(int stage, int start, const Memory& used) const;
  void remember_failure(int stage, int start, const Memory& used);
  [[nodiscard]] bool no_less(int stage, const Memory& a, const Memory& b) const;
  void count_state();

  [[nodiscard]] std::size_t rank_of(int stage) const {
    return static_cast<std::size_t>(rank_of_stage_[static_cast<std::size_t>(stage)]);
  }
  [[nodiscard]] std::size_t state_index(int stage, int start) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(blocks_ + 1) + static_cast<std::size_t>(start);
  }

  const StageMemory& memory_;
  const std::vector<int>& rank_of_stage_;
  int stages_;
  int blocks_;
  std::int64_t limit_;
  std::vector<int> last_stage_of_rank_;
  const CutTable* table_ = nullptr;
  const std::vector<std::vector<EndWindow>>* windows_ = nullptr;
  std::vector<std::vector<Memory>> failed_;  // by state_index
  std::vector<double> weight_;               // scratch of `cheapest`, by state_index
  std::vector<int> next_;
  std::int64_t states_ = 0;
};

}  // namespace plumb
