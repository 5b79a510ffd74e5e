// Which actions of a rank run as one step: between two steps it exchanges messages with its neighbours.
#pragma once

#include <vector>

#include "common/graph/schedule_graph.hpp"

namespace plumb {

inline constexpr NodeId no_node = static_cast<NodeId>(-1);

// By node, of those that occupy a rank; `no_node` elsewhere and where there is none.
struct ExchangeSteps {
  std::vector<NodeId> first;   // of the node's step
  std::vector<NodeId> last;    // of the node's step
  std::vector<NodeId> before;  // that occupies the rank just before the step
  std::vector<NodeId> after;
};

// With synchronous exchanges a recompute and the backward right behind it are one step, since a system redoes the
// forward inside its backward, and so are, with several stages on a rank, a forward and the backward right behind it:
// Megatron-LM's interleaved schedule sends what both made after the backward, in one batch. Not where a rank runs all
// its forwards before all its backwards: there is no steady phase then, and the last forward is sent on its own.
// What a rank computes for its parts of a vocabulary between two actions of its layers belongs to the step before it,
// whose messages wait for it (github.com/sail-sg/VocabularyParallelism,
// megatron/core/pipeline_parallel/vocab_parallel_schedule.py).
struct StepRules {
  bool joins_recompute_and_backward = false;
  bool joins_forward_and_backward = false;
  int layers = 0;  // stages of them, where the parts of a vocabulary that stand behind these join steps; 0: none do
};

// A step is one action, an overlapped pair (`joins_next` of its first node), or what the rules join.
[[nodiscard]] ExchangeSteps exchange_steps(const ScheduleGraph& graph, std::vector<bool> joins_next, StepRules rules);

// A message of a synchronous exchange: sent after the step that ends with `made`, used by the one that begins with
// `used`, received between the steps that end with `before` (`no_node`: at the start) and begin with `next`.
struct ExchangedMessage {
  NodeId transfer;
  NodeId made;
  NodeId used;
  NodeId before;
  NodeId next;
};

// Receives every message where it is sent, if all ranks keep in step, rather than just before it is used: a rank that
// is behind the sender's next one takes it in early and keeps it. So does Megatron-LM's interleaved schedule, whose
// first rank receives the last one's output of p - 1 steps before after each of its own
// (megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving): with groups of more
// microbatches than ranks it holds some of them for several steps. No two ranks then wait for each other, unless steps
// do that already by what they use and make: those messages are left as they are.
void receive_in_lockstep(const ScheduleGraph& graph, const ExchangeSteps& steps,
                         std::vector<ExchangedMessage>& messages);

}  // namespace plumb
