// Cuts under limits per rank when ranks hold several stages, so that the choice for one binds the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/stop.hpp"
#include "common/split/chain.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {

// What no rank may exceed; none: no limit.
struct CoupledLimits {
  std::optional<std::int64_t> bytes = {};  // at any of its moments
  std::optional<std::int64_t> time = {};   // of its stages together, in the chain's units
};

inline constexpr std::int64_t most_steps_of_proof = 100'000'000;  // some seconds

// The steps were used up before it was known whether any cuts fit.
struct TooLongToProve : InputError {
  using InputError::InputError;
};

using StageWindows = std::vector<std::vector<EndWindow>>;  // by stage and start

// How many runs of blocks they allow.
[[nodiscard]] std::int64_t runs_of(const StageWindows& windows);

// Exact, in two steps. First Lagrange multipliers, one per limit (a rank has one for each of its moments, of each stage
// that may work then, and one for its time): the lightest weighted cuts either exceed the weighted limits, which proves
// that nothing fits, or fit themselves; and every run of blocks whose lightest weighted completion exceeds them is
// ruled out. Then, on the runs that are left, a dynamic program over the ranks, whose state is where the stages of
// ranks that are done meet those of ranks to come.
class CoupledCuts {
 public:
  struct Search {
    bool finished = true;  // within the budget
    std::optional<std::vector<int>> cuts = {};
  };

  CoupledCuts(const WeighedChain& chain, const CoupledLimits& limits, std::int64_t budget = most_steps_of_proof);

  // Any cuts that fit, or none, or unfinished.
  [[nodiscard]] Search search(const StageWindows& windows);
  // Of all searches so far.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  // Any cuts that fit, or none. Throws TooLongToProve when that takes too long to tell.
  [[nodiscard]] std::optional<std::vector<int>> any(const StageWindows& windows);
  // Those with the lexicographically largest counts; `known` fit.
  [[nodiscard]] std::vector<int> largest(StageWindows windows, std::vector<int> known);

 private:
  using Positions = std::u16string;  // of cuts: short strings need no allocation, and hash

  enum class Verdict { open, impossible, found };

  // One rank's limit, for its time or at one of its moments, while one of its stages works: a sum over its stages.
  struct Limit {
    int rank = 0;
    const Moment* moment = nullptr;      // none: its time
    int working = WeighedChain::nobody;  // by place among the rank's stages
    double most = 0;                     // in units of `scale`: 1, or 0 if nothing is allowed
    double scale = 1;                    // bytes, or units of time
  };

  // What the stages of the rank that is being placed take so far.
  struct Placed {
    std::vector<std::int64_t> bytes;      // by moment, without workspaces
    std::vector<std::int64_t> workspace;  // by moment, the largest
    std::int64_t time = 0;
  };

  void add_limits_of(int rank);
  [[nodiscard]] bool collect_runs(const StageWindows& windows);
  [[nodiscard]] Verdict weigh(const std::vector<double>& multipliers);
  void spread(const std::vector<double>& multipliers);
  [[nodiscard]] double weight(int stage, int start, int end) const;
  void rule_out(double most);
  [[nodiscard]] std::vector<double> excess() const;
  [[nodiscard]] bool fits() const;
  [[nodiscard]] Search walk_ranks();
  [[nodiscard]] std::vector<int> frontier_after(int rank) const;

  [[nodiscard]] std::size_t at(int stage, int start) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(blocks_ + 1) + static_cast<std::size_t>(start);
  }

  [[nodiscard]] bool place_stage(int rank, std::size_t next, int start, int end);
  template <class Visit>
  [[nodiscard]] bool place_rank(int rank, std::size_t next, Positions& cuts, const Visit& visit);

  const WeighedChain& chain_;
  CoupledLimits limits_;
  int stages_;
  int blocks_;
  std::int64_t budget_;  // of steps
  std::vector<Limit> all_limits_;
  std::vector<double> fixed_weight_;    // by rank: the multipliers of its moments, per byte
  std::vector<double> time_weight_;     // by rank
  std::vector<double> kept_weight_;     // by stage: each multiplied with the microbatches held
  std::vector<double> working_weight_;  // by stage, of the moments at which it works
  std::vector<std::vector<int>> ends_;  // by stage and start: the runs that are not ruled out, ascending
  std::vector<double> to_end_;          // by stage and start: least weight of what is behind
  std::vector<double> from_begin_;      // … and before
  std::vector<int> cuts_;               // the lightest ones
  std::vector<Placed> placed_;          // before each stage of the rank that is being placed
  std::int64_t steps_ = 0;              // of all searches together
  StopWatch watch_;
};

// dynamic_split with so many steps for the cuts of ranks with several stages. Throws TooLongToProve.
[[nodiscard]] std::optional<Split> dynamic_split_within(const WeighedChain& chain, std::int64_t budget);

}  // namespace plumb
