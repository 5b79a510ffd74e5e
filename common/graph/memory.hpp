// Memory of each rank over time, from the order of its actions and the bytes that each keeps.
#pragma once

#include <vector>

#include "common/graph/evaluate.hpp"
#include "common/graph/held_memory.hpp"

namespace plumb {

struct RankMemory {
  Bytes parameter_bytes;  // of all versions of the weights that are there at the peak
  Bytes gradient_bytes;
  Bytes optimizer_bytes;
  Bytes peak_bytes;  // of all together
  PeakMoment peak;
  std::vector<MemoryPoint> over_time;  // level from each time on
};

// F allocates kept bytes (only its input, one boundary, if R redoes it later; the first stage's input weighs nothing),
// R the rest; I frees all but what W needs; W frees that; B frees all. Of slices, I or B also frees the gradients that
// later slices left to it, and leaves those that it makes for earlier ones. Each action's workspace is alive while it
// runs; of an F that is redone it is taken to be as large as without. A received activation counts from its arrival
// until F takes it as its input, a received gradient until I or B starts, whose workspace has it; the sender's copy
// counts until it is there. Evicted activations count on both ranks while they are on their way. Of weights every
// version counts that a rank keeps at a time, and whole ones that UNSHARD gathered beside the rank's own part, from its
// start until STEP begins. What lives for no time counts nothing.
[[nodiscard]] std::vector<RankMemory> memory_over_time(const ScheduleGraph& graph, const Evaluation& evaluation,
                                                       const PipelineCosts& costs, const Schedule& schedule);

// What one compute action does to the memory of its rank when it starts and when it ends, without what it makes for a
// neighbour. The input that waited for it is part of what it holds from its start on. `redone`: R repeats the
// microbatch's F later. `costs` has every stage.
struct Footprint {
  HeldBytes at_start;
  HeldBytes at_end;
};
[[nodiscard]] Footprint footprint(const PipelineCosts& costs, const Action& action, bool redone);

// Hidden states or their gradient that an action leaves for the parts of a divided vocabulary or, of a part, for the
// stage beside them: there until that stage's own rank has read them, on the others until REDUCE ends. Nothing where it
// leaves none.
[[nodiscard]] Bytes made_for_parts(const PipelineCosts& costs, const Action& action);

// Peak number of microbatches whose activations a rank holds, in one rank's share: a chunk counts 1/chunks (of one
// replica), a slice of a sequence 1/slices. Counted in the order of the list, from F (from R if that redoes it) until W
// (or B) ends; what a rank evicts counts on its partner from EVICT until LOAD there.
[[nodiscard]] std::vector<double> peak_activations(const Schedule& schedule);

// Per rank, what it holds when it may need most memory: vectors of how many microbatches each of its stages holds, in
// the order of the stages, counted as above (what a rank keeps for a partner apart) and, of an F that is redone, while
// it runs. Of all moments only those of which no other has as many of every stage and more of one (Pareto-maximal),
// each once, in the order of time. Which one needs most depends on how large each stage is; with one stage per rank
// there is one, its largest count. A rank without stages has none.
[[nodiscard]] std::vector<std::vector<std::vector<int>>> fullest_moments(const Schedule& schedule);
// The same of what is there until I ends, instead of until W does.
[[nodiscard]] std::vector<std::vector<std::vector<int>>> fullest_moments_until_input(const Schedule& schedule);

}  // namespace plumb
