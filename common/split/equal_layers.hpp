// Splits of a chain whose layers are all alike: which layers a stage holds does not matter then, only how many.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/stop.hpp"
#include "common/split/coupled.hpp"
#include "common/split/weighed_chain.hpp"

namespace plumb {

// Layers that a stage may hold, the embedding and the head not counted.
struct LayerRange {
  int least = 0;
  int most = 0;
  bool operator==(const LayerRange&) const = default;
};

// Exact. With layers alike every list of counts that adds up to all layers is a split, and a rank takes what its own
// counts say: ranks are coupled by that sum alone. What a rank can hold is closed downwards, so that some split keeps
// all limits if and only if the least counts do and the most layers of each rank add up to all of them. The most of a
// rank is a small integer program over its stages (by branch and bound), one limit for its time and for each moment, of
// each stage that may work then.
class EqualLayers {
 public:
  // Whether every layer takes the same time, fixed and kept bytes (the embedding and the head may differ).
  [[nodiscard]] static bool are(const WeighedChain& chain);

  // `chain`: with layers alike.
  EqualLayers(const WeighedChain& chain, const CoupledLimits& limits);

  // What each stage may hold, as far as the chain tells: at least one block, and no more than all layers.
  [[nodiscard]] std::vector<LayerRange> any() const;

  // Whether there are counts within these ranges, by stage, that keep every rank's limits. nullopt: too many counts to
  // look at.
  [[nodiscard]] std::optional<bool> possible(const std::vector<LayerRange>& ranges);
  // The ends of the stages of the lexicographically largest ones; empty where there are none.
  [[nodiscard]] std::optional<std::vector<int>> largest(std::vector<LayerRange> ranges);

 private:
  static constexpr std::int64_t most_steps = 20'000'000;  // of one question: some hundredths of a second
  static constexpr int none = -1;

  struct Unknown {};  // too many steps; does not leave this class

  [[nodiscard]] int most_of_rank(int rank, const std::vector<LayerRange>& ranges);
  [[nodiscard]] bool collect_limits(int rank, const std::vector<LayerRange>& ranges);
  void add_limits_of(int rank);
  void collect_stage(int stage, std::size_t place, const LayerRange& range);
  [[nodiscard]] BlockRange blocks_of(int stage, int layers) const;
  [[nodiscard]] std::int64_t room(std::size_t next, std::size_t limit) const { return rooms_[next][limit]; }
  // What so many more layers of a stage take of a limit.
  [[nodiscard]] std::int64_t taken(std::size_t stage, std::size_t limit, std::int64_t count) const {
    const bool works = working_[limit] == static_cast<int>(stage);
    return takes_[stage][limit] * count + (works ? more_workspace_[stage][static_cast<std::size_t>(count)] : 0);
  }
  [[nodiscard]] int fits_of(std::size_t next, int most) const;
  [[nodiscard]] int bound(std::size_t next) const;
  void place(std::size_t next, int placed);
  [[nodiscard]] std::optional<std::vector<int>> counts(std::vector<LayerRange> ranges);

  const WeighedChain& chain_;
  CoupledLimits limits_;
  int layers_;
  std::int64_t steps_ = 0;
  StopWatch watch_;
  // Of the rank that is asked about: by stage of its own, then limit, what a layer takes; and how many more it may
  // hold. By stage and limit what those before it leave.
  std::vector<const Moment*> moments_;  // by limit; none: of its time
  std::vector<int> working_;            // by limit, the place of the stage that works then, or nobody
  std::vector<std::vector<std::int64_t>> takes_;
  std::vector<std::vector<std::int64_t>> least_takes_;     // a layer, with what its stage's workspace may shrink by
  std::vector<std::vector<std::int64_t>> more_workspace_;  // by stage and layers more, than of the least; may be less
  std::vector<int> more_;
  std::vector<std::vector<std::int64_t>> rooms_;
  int best_ = none;
  int enough_ = 0;  // no more can be placed
};

}  // namespace plumb
