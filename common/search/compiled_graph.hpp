// What of a schedule's graph does not depend on its costs: the order in which nodes are timed, what each waits for, and
// which cost is its duration. Timing it for new costs is one pass over arrays.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/graph/memory.hpp"
#include "common/graph/schedule_graph.hpp"

namespace plumb {

// Positions count nodes in the order of timing; a node names what it waits for by how many positions before it that
// stands. Where it waits for one thing, both are that; for none, the position before the first, which ends at 0.
struct CompiledNode {
  std::uint32_t back_a = 0;
  std::uint32_t back_b = 0;
  std::uint32_t duration = 0;  // index of its kind
  bool operator==(const CompiledNode&) const = default;
};

// Nodes that cost the same: like `node`, which takes turns with so many messages at its port.
struct DurationKind {
  Node node = {};
  int turns = 1;
};

// What a rank's compute action does to its memory, an update that keeps the weights before it, or an UNSHARD before the
// first F and the STEP that lets go of its weights.
struct CompiledAction {
  std::uint32_t position = 0;
  std::uint32_t footprint = 0;  // index, see footprint_index
};
struct CompiledFootprint {
  Action action = {};  // of any microbatch, or of any one's same slice
  bool redone = false;
  int versions = 0;  // of the stage's weights more, or less
  std::uint32_t index = 0;
};
// What messages are of: a boundary of stages, or what joins the parts of a divided head or embedding.
enum class MessageOf : std::uint8_t { stages, head, embedding };
inline constexpr std::size_t message_sorts = 3;
// A message that arrives: from then on it counts at its receiver and no longer at its sender.
struct CompiledArrival {
  std::uint32_t position = 0;
  bool received = false;  // by this rank
  MessageOf of = MessageOf::stages;
};
struct CompiledRank {
  std::array<std::int64_t, message_sorts> most_messages = {};  // that can wait on it at once, made there or arrived
  std::vector<CompiledAction> actions = {};                    // ascending
  std::vector<CompiledArrival> arrivals = {};
};

inline constexpr std::size_t action_kinds = static_cast<std::size_t>(ActionKind::optimizer_step) + 1;
inline constexpr std::size_t footprint_kinds = 4 * action_kinds;  // of a stage and slice

// Of a schedule with so many slices a sequence.
[[nodiscard]] inline std::uint32_t footprint_index(const CompiledFootprint& of, int slices) {
  const std::size_t kind =
      static_cast<std::size_t>(of.action.kind) * 4 + (of.redone ? 2 : 0) + (of.versions != 0 ? 1 : 0);
  const auto slice = static_cast<std::size_t>(std::max(0, of.action.microbatch) % slices);
  const std::size_t of_stage = static_cast<std::size_t>(of.action.stage) * footprint_kinds + kind;
  return static_cast<std::uint32_t>(of_stage * static_cast<std::size_t>(slices) + slice);
}

// A run of nodes that may stand any number of times more: the same positions relative to each other, again and again.
struct CompiledLoop {
  std::uint32_t begin = 0;      // of the last of the equal blocks
  std::uint32_t size = 0;       // nodes of a block
  std::uint32_t blocks = 0;     // equal ones, up to this one
  std::uint32_t reach = 0;      // so many blocks before it matter for what comes
  int microbatches = 1;         // that a block adds
  std::size_t graph_nodes = 0;  // of the ScheduleGraph, in a block
};

struct CompiledGraph {
  int microbatches = 1;         // that it was built for
  int slices = 1;               // of each sequence
  std::size_t graph_nodes = 0;  // of its ScheduleGraph
  std::vector<CompiledNode> nodes = {};
  std::vector<std::uint32_t> sinks = {};  // positions that nothing waits for
  std::vector<DurationKind> durations = {};
  std::vector<CompiledRank> ranks = {};
  std::vector<CompiledFootprint> footprints = {};  // that actions of the ranks have, each once
  std::vector<std::vector<int>> stages_of_rank = {};
  std::vector<int> rank_of_stage = {};
  std::vector<CompiledLoop> loops = {};  // one behind the other: each stands as often as the others
};

// Of a lowered schedule without evictions. `costs`: the exchange and where ranks stand; its times do not matter. With
// `period` > 0 looks for loops of so many microbatches.
[[nodiscard]] CompiledGraph compile_graph(const Schedule& lowered, PipelineCosts costs, int period);

// Durations of the kinds, by index: of those whose stage's costs have changed, by stage. The others stay as they are,
// for costs that differ in stages alone.
void set_durations(const CompiledGraph& compiled, const PipelineCosts& costs, const std::vector<bool>& changed,
                   std::vector<double>& durations);

}  // namespace plumb
