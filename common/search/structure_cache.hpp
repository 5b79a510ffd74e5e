// The compiled graphs of schedules, built once for all families that share them.
#pragma once

#include <compare>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/planner/plan_on.hpp"
#include "common/search/compiled_graph.hpp"

namespace plumb {

// What a schedule's graph depends on, beside its costs.
struct StructureKey {
  std::string schedule = {};
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;
  int slices = 1;
  int group = 0;
  int update_every = 0;
  bool overlap = false;
  int vocabulary_barriers = 0;
  bool recompute = false;  // by actions of its own
  bool data_parallel = false;
  WeightGathering gathering = WeightGathering::none;
  bool clips = false;
  bool tied = false;
  PipelineExchange exchange = PipelineExchange::asynchronous;  // asked for; the schedule may insist on asynchronous
  int ranks_per_machine = 0;                                   // where ports matter, else 0
  auto operator<=>(const StructureKey&) const = default;
};

struct Structure {
  Schedule placement = {};  // the schedule without its actions
  bool splits_backward = false;
  std::vector<bool> weight_gradient_last = {};  // by stage
  bool evicts = false;                          // compiled graphs do not describe that
  bool has_pairs = false;  // overlapped; what one hides of the other is not in compiled graphs either
  CompiledGraph compiled = {};
  HeldMoments held = {};
  HeldMoments held_by_next = {};  // the same with one microbatch more, where the loops pile them up; else empty
};

// What the schedule holds at its fullest with `more` blocks added.
[[nodiscard]] HeldMoments held_with(const Structure& structure, int more);

class StructureCache {
 public:
  // `stop`: asked while a structure is built, which then throws Stopped.
  explicit StructureCache(const Stop* stop) : stop_(stop) {}

  // Throws InputError where the generator, the lowering or the graph does. `plan` gives model, training, layout and
  // software.
  [[nodiscard]] const Structure& structure(const StructureKey& key, const Plan& plan);

  // The key of a schedule of fewer microbatches whose compiled stands for this one, `more` blocks added; the key itself
  // where there is none.
  struct Shorter {
    StructureKey key = {};
    int more = 0;
  };
  [[nodiscard]] Shorter shorter(const StructureKey& key, const Plan& plan);

 private:
  struct Entry {
    std::unique_ptr<Structure> structure = {};
    std::exception_ptr problem = {};
  };
  const Stop* stop_;
  std::map<StructureKey, Entry> cache_;
};

}  // namespace plumb
