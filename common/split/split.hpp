// How many decoder layers each stage holds. The first stage also has the embedding, the last also the head.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/stop.hpp"
#include "common/base/units.hpp"

namespace plumb {

struct Split {
  std::vector<int> layers;  // per stage; the first and the last may be 0 (embedding or head alone)
  bool operator==(const Split&) const = default;
};

// The model as a chain of blocks: block 0 the embedding, 1…n the layers, n+1 the final norm, head and loss.
// A stage is a contiguous range [first, last) of blocks.
struct BlockRange {
  int first = 0;
  int last = 0;
  bool operator==(const BlockRange&) const = default;
};

[[nodiscard]] BlockRange blocks_of_stage(const Split& split, int stage);

// Throws InputError (where = "split") when there are more stages than layers, or none: every method refuses that.
void require_stages(int layers, int stages);

// layers/stages each, the first (layers mod stages) get one more (DeepSpeed `uniform`).
[[nodiscard]] Split uniform_split(int layers, int stages);

// Minimises max − min of the parameters per stage, ties towards the smaller maximum, then the lexicographically largest
// counts (the aim of DeepSpeed's `parameters`, whose search is not exact); `block_parameters` has layers + 2 entries.
// Every stage has at least one block. Windows over all segment sums: O(n³·stages) at worst, n² windows of O(n·stages).
[[nodiscard]] Split parameter_split(const std::vector<std::int64_t>& block_parameters, int stages);

// What a rank holds at one moment: of each of its stages, in their order, the microbatches whose activations are alive.
using Moment = std::vector<int>;

// What a block needs while it works on a microbatch, as ComputeCost counts it: of a stage the worst moment of its
// blocks in sequence.
struct BlockWorkspace {
  Bytes forward = {};
  Bytes input_gradient = {};
  Bytes weight_gradient = {};
  Bytes kept_for_weight = {};  // of what is kept, from I until W
  bool operator==(const BlockWorkspace&) const = default;
};

// What the dynamic split weighs.
struct SplitProblem {
  std::vector<Seconds> block_times;      // F + I + W (+ R) of one microbatch; layers + 2 entries
  std::vector<Bytes> block_fixed_bytes;  // parameters, gradients, optimizer states
  std::vector<Bytes> block_kept_bytes;   // activations of one microbatch
  std::vector<int> rank_of_stage;
  std::vector<std::vector<Moment>> moments;  // per rank: all at which it may need most memory, under some split
  std::optional<Bytes> memory_per_rank;      // none: no limit
  const Stop* stop = nullptr;                // tells the searches below to end: they throw Stopped
  // At each moment one of the stages that hold a microbatch works; empty: none needs more for that than it keeps.
  std::vector<BlockWorkspace> block_workspaces = {};
  std::vector<Bytes> rank_reserve = {};  // by rank, what else it needs whatever the split; empty: nothing
};

// A split problem summed up: a SplitProblem that stays becomes one where it is asked for (weighed_chain.hpp). Throws
// InputError for one that cannot be weighed.
class WeighedChain;

// The slowest stage's time under a split: with one stage per rank, what bounds the step in steady state.
[[nodiscard]] Seconds slowest_stage_time(const SplitProblem& problem, const Split& split);

// The slowest rank's, all its stages together: what bounds the step in steady state whatever the placement.
[[nodiscard]] Seconds slowest_rank_time(const SplitProblem& problem, const Split& split);

// What every rank needs under a split at the worst of its moments: fixed and kept bytes, the workspace of the stage
// that works, of all that may the largest, and its reserve. This is held below the limit.
[[nodiscard]] std::vector<Bytes> rank_memory(const WeighedChain& chain, const Split& split);
[[nodiscard]] bool fits(const WeighedChain& chain, const Split& split);

// The slowest stage's time is minimal under every rank's memory limit: proven optimal, every stage has at least one
// block. Among equal ones the lexicographically largest counts. nullopt: no split fits, proven as well.
// Bisection on the slowest stage; each step is a reachability over cuts, O(n·stages), and where ranks with several
// stages couple these under a memory limit, Lagrange multipliers of the ranks' moments and a dynamic program over what
// they leave open. Throws InputError when that would take too long to prove (a limit that is just met, many chunks).
[[nodiscard]] std::optional<Split> dynamic_split(const WeighedChain& chain);

// Among the splits whose slowest stage is no slower than under `split` and whose ranks fit, the one with the least sum
// of squared stage times; the latest cuts of equal ones. Two neighbours as slow as the slowest expose their messages to
// each other at every microbatch, slack between them hides these. Where ranks hold several stages, `split` itself if
// the most even one does not fit them together. `split` must fit.
[[nodiscard]] Split evened(const WeighedChain& chain, const Split& split);

// What ranks with several stages are balanced for. No step is shorter than what the slowest rank takes for all of its
// microbatches; but its stages take turns with the other ranks', and while one of them is slow, others wait. On
// interleaved 1F1B the sum of both orders splits like the longest path does, better than either of them: among random
// splits of scenarios/hybrid-4-ranks with two chunks, 16 and 128 microbatches, the least sum is the shortest step; the
// fastest slowest rank, which may put all layers of a rank into one of its stages, is 10 to 17% above.
enum class BalanceAim : std::uint8_t {
  slowest_rank,  // its time
  pace,          // its time and, as often as a rank has stages, the slowest stage's
};

// The best end of a local search from all `starts`: least bytes above the memory limit, then the aim, then the least
// sum of squared times of the ranks, then of the stages. It is never worse than a start in this order, so it fits if a
// start does; nothing more is proven. For the slowest rank, where the chain is short and the stages are few, all cuts
// are then searched for any with a faster one. Both searches end after a number of steps, finished or not; these are
// counted, not timed: the same split everywhere.
[[nodiscard]] Split balanced_split(const WeighedChain& chain, const std::vector<Split>& starts, BalanceAim aim);

// What `split: dynamic` chooses from by the predicted step: splits that fit, none if it is proven that none does.
// One stage per rank: the dynamic split, evened; no split that fits has a faster slowest stage, which bounds the step
// in steady state. Several: that one, those balanced for the pace and for the slowest rank from it and from the uniform
// split, and the uniform one if it fits. No other split is proven to be slower. Throws InputError if it takes too long
// to prove that none fits and the searches found none.
[[nodiscard]] std::vector<Split> fast_splits(const WeighedChain& chain);

// "[6, 7, 7, 5]" as numbers, or a Megatron layout string: E embedding, t layer, m MTP, L loss, | ends a stage, (..)*n
// and x*n repeat, commas and blanks are cosmetic. Stages are in order of the pipeline; only the first and the last may
// hold no layer; MTP modules stand on the last. Throws InputError (where = "split", or "split:1:COLUMN") when it cannot
// be read, or when the sum is not `layers` or the number of entries not `stages` (both numbers are said).
[[nodiscard]] Split explicit_split(const std::vector<int>& counts, int layers, int stages);
[[nodiscard]] Split megatron_split(std::string_view text, int layers, int stages);

// "[6, 7, 7, 5]".
[[nodiscard]] std::string describe(const Split& split);

}  // namespace plumb
