// What the parts of ZB auto share: the problem in flat arrays, lists of steps, and their times.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/schedule/zb_auto/zb_auto.hpp"

namespace plumb::zb_auto {

// What a stage does next, 3·stage + (0 F, 1 I, 2 W). As each goes in the order of the microbatches, a list of steps
// says all: the k-th of a step is that of microbatch k.
using Step = std::uint32_t;
using StepLists = std::vector<std::vector<Step>>;  // per rank

inline constexpr Step no_step = std::numeric_limits<Step>::max();
inline constexpr double never = std::numeric_limits<double>::infinity();

enum class Part : std::uint8_t { forward, input_gradient, weight_gradient };

[[nodiscard]] constexpr Step step_of(std::size_t stage, Part part) {
  return static_cast<Step>(3 * stage + static_cast<std::size_t>(part));
}
[[nodiscard]] constexpr std::size_t stage_of(Step step) { return step / 3; }
[[nodiscard]] constexpr Part part_of(Step step) { return static_cast<Part>(step % 3); }

struct Model {
  std::size_t ranks = 0;
  std::size_t microbatches = 0;
  std::size_t stages = 0;
  std::vector<std::size_t> rank_of_stage;
  std::vector<std::vector<std::size_t>> stages_of_rank;  // ascending
  // Per step: how long it takes, what it waits for and for how long after that, what waits for it.
  std::vector<double> seconds;
  std::vector<Step> before;
  std::vector<double> lag;
  std::vector<Step> after;           // of I the previous stage's I, not its own W
  std::vector<std::int64_t> change;  // of the bytes that its rank keeps
  std::vector<std::int64_t> limit;   // per rank
  const Stop* stop = nullptr;        // looked at wherever lists are timed or made

  [[nodiscard]] std::size_t steps() const { return 3 * stages; }
  [[nodiscard]] std::size_t actions() const { return 3 * stages * microbatches; }
  [[nodiscard]] std::size_t rank_of(Step step) const { return rank_of_stage[stage_of(step)]; }
  [[nodiscard]] std::size_t action(Step step, std::size_t microbatch) const {
    return static_cast<std::size_t>(step) * microbatches + microbatch;
  }
};

// Throws as schedule_zb_auto does.
[[nodiscard]] Model model_of(const AutoProblem& problem);

// Makespan, longest span of a rank and memory, compared in this order; differences below rounding count as none.
struct Score {
  double makespan = never;
  std::int64_t fullest = 0;  // how far a rank comes above its limit, the worst of all; 0: left out
  double span = never;
};
struct Candidate {
  Score score;
  StepLists lists;
};
[[nodiscard]] bool better(const Score& a, const Score& b);
[[nodiscard]] bool reaches(const Score& score, double makespan);

// When each action starts if every rank works off its list as early as its inputs allow.
struct Times {
  std::vector<double> start;         // per action
  std::vector<std::uint32_t> place;  // per action, in its rank's list
  std::vector<double> end;           // per rank, of its last action; 0 if it has none
  Score score;                       // without memory; never: the lists wait for each other
};

// Keeps its arrays from one evaluation to the next.
class Clock {
 public:
  explicit Clock(const Model& model);
  // Valid until the next call.
  const Times& run(const StepLists& lists);
  [[nodiscard]] const Times& times() const { return times_; }  // of the last run

 private:
  std::size_t advance(const StepLists& lists, std::size_t rank);

  const Model& model_;
  Times times_;
  std::vector<std::uint32_t> done_;  // per step
  std::vector<std::size_t> next_;    // per rank: place in its list
  std::vector<Step> waits_for_;      // per rank
  std::vector<std::size_t> runnable_;
};

// The most that a rank keeps; by how much that is above its limit, the worst of all ranks.
[[nodiscard]] std::int64_t most_kept(const Model& model, const std::vector<Step>& list);
[[nodiscard]] std::int64_t fullest(const Model& model, const StepLists& lists);

}  // namespace plumb::zb_auto
