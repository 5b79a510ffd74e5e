// torchgpipe, arXiv 2004.09910: `balance_by_time` cuts the measured times of the layers by the moves of Bárány and
// Grinberg, "Block partitions of sequences" (arXiv 1308.2452): with every element in [0, 1] there are blocks of which
// the largest sum is at most 1 above the least. Times are brought into [0, 1] as (x − least) / (largest − least), and
// blocks begin with as many elements each. Then, until the largest is at most 1 above the least: p is a largest block,
// q the nearest least one; q takes an element from its neighbour h on the side of p. When h was p, a largest block is
// chosen anew.
#include <cstdlib>
#include <numeric>

#include "common/split/baselines/least_worst.hpp"

namespace plumb {
namespace {

class BlockPartition {
 public:
  BlockPartition(std::vector<double> elements, int blocks) : elements_(std::move(elements)) {
    const int count = static_cast<int>(elements_.size());
    for (int block = 1; block < blocks; ++block) ends_.push_back(count / blocks * block);
    ends_.push_back(count);
  }

  std::vector<int> ends() {
    while (true) {
      const int largest = largest_block();
      while (true) {
        const int least = least_block_beside(largest);
        if (sum(largest) <= sum(least) + 1) return ends_;
        const int neighbour = largest < least ? least - 1 : least + 1;
        if (largest < least) {
          --ends_[static_cast<std::size_t>(neighbour)];
        } else {
          ++ends_[static_cast<std::size_t>(least)];
        }
        if (neighbour == largest) break;
      }
    }
  }

 private:
  [[nodiscard]] double sum(int block) const {
    const int first = start_of_block(block);
    return std::accumulate(elements_.begin() + first, elements_.begin() + ends_[static_cast<std::size_t>(block)], 0.0);
  }
  [[nodiscard]] int start_of_block(int block) const {
    return block == 0 ? 0 : ends_[static_cast<std::size_t>(block) - 1];
  }
  [[nodiscard]] int blocks() const { return static_cast<int>(ends_.size()); }
  // The last of equal ones.
  [[nodiscard]] int largest_block() const {
    int found = 0;
    for (int block = 1; block < blocks(); ++block) {
      if (sum(block) >= sum(found)) found = block;
    }
    return found;
  }
  // The nearest of equal ones: then none between the two is empty.
  [[nodiscard]] int least_block_beside(int largest) const {
    int found = 0;
    for (int block = 1; block < blocks(); ++block) {
      const double difference = sum(block) - sum(found);
      const bool nearer = std::abs(block - largest) < std::abs(found - largest);
      if (difference < 0 || (difference == 0 && nearer)) found = block;
    }
    return found;
  }

  std::vector<double> elements_;
  std::vector<int> ends_;
};

}  // namespace

Split torchgpipe_split(const CutProblem& problem) {
  require_sound(problem);
  std::vector<double> times;
  for (std::size_t block = 0; block < problem.forward.size(); ++block) {
    times.push_back((problem.forward[block] + problem.backward[block]).value);
  }
  const auto [least, largest] = std::ranges::minmax(times);
  for (double& time : times) time = largest > least ? (time - least) / (largest - least) : 0;
  std::vector<int> ends = BlockPartition(std::move(times), problem.stages()).ends();
  // Elements of no weight may leave a block empty: the paper's blocks may be, stages may not.
  for (std::size_t stage = 0; stage + 1 < ends.size(); ++stage) {
    ends[stage] = std::max(ends[stage], (stage == 0 ? 0 : ends[stage - 1]) + 1);
  }
  for (std::size_t stage = ends.size() - 1; stage > 0; --stage)
    ends[stage - 1] = std::min(ends[stage - 1], ends[stage] - 1);
  return split_from_cuts(ends);
}

}  // namespace plumb
