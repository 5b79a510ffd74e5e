// Seconds and bytes of every block, stage and transfer: what graphs, simulators and splits are fed with.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"
#include "common/cost/compute_cost.hpp"
#include "common/cost/software.hpp"
#include "common/cost/vocabulary_cost.hpp"
#include "common/split/split.hpp"

namespace plumb {

// How long a forward and a backward take as an overlapped pair: the longer one, and of the shorter what it does not
// hide.
[[nodiscard]] Seconds overlapped_time(Seconds first, Seconds second, double hidden);

// What each of the two takes of that time, of its own: both the same fraction.
[[nodiscard]] double share_in_pair(Seconds first, Seconds second, double hidden);

// The least that actions can take of the sum of their times, all of them paired with one as long.
[[nodiscard]] constexpr double least_of_pairs(double hidden) { return 1 - hidden / 2; }

// A message between two ranks that is alone on its way: latency + bytes / bandwidth.
struct TransferCost {
  Seconds latency;
  BytesPerSecond bandwidth;
  bool operator==(const TransferCost&) const = default;
};

[[nodiscard]] Seconds transfer_time(const TransferCost& cost, Bytes amount);

// What neighbouring ranks share on their way out. Of ranks that a graph has one for, all send at once: the bandwidths
// are what one of them has then.
struct SharedLinks {
  int ranks_per_nic = 1;
  BytesPerSecond nic = {};   // 0: every rank has a port of its own, as fast as `outside`
  int ranks_per_switch = 0;  // 0: no PCIe switches
  BytesPerSecond uplink = {};
  int ranks_per_leaf = 0;  // 0: no leaf switches
  BytesPerSecond leaf = {};
  int ranks_per_site = 0;  // 0: one site
  BytesPerSecond site = {};
  Seconds site_latency = {};  // on top of that of `outside`
  bool operator==(const SharedLinks&) const = default;
};

// `outside` between these ranks of two machines, which may be under two leaves or on two sites.
[[nodiscard]] TransferCost beyond_machine(TransferCost outside, const SharedLinks& shared, int from, int to);

// What crosses the boundary behind a stage, where ranks of neighbouring stages hold different shares of a microbatch.
struct BoundaryCost {
  Bytes before;      // hidden states of one microbatch, as one rank of the stage holds them
  Bytes behind;      // … of the next one
  TransferCost way;  // the larger of the two takes as long as all that goes over the busiest port of the boundary
  bool operator==(const BoundaryCost&) const = default;
};

// Everything that a schedule graph needs besides the schedule.
struct PipelineCosts {
  std::vector<ComputeCost> stages;
  Bytes boundary_bytes;      // of one microbatch between two stages, each direction
  Bytes tied_bytes;          // of a tied embedding's gradient; 0 if not tied or on one rank
  TransferCost inside;       // ranks of one machine
  TransferCost outside;      // ranks of two machines
  TransferCost across = {};  // ranks of one machine under two switches, where it has any
  SharedLinks shared = {};
  int ranks_per_machine = 1;
  int cores_per_machine = 0;  // 0: every rank computes on a device of its own
  // That a rank of the pipeline computes on: one for each of the ranks that it stands for on a machine, at most all.
  int cores_per_rank = 1;
  PipelineExchange exchange = PipelineExchange::asynchronous;
  double hidden_in_pairs = 0;  // of the shorter action of an overlapped pair, the fraction that the longer one hides
  std::string provenance;      // in words, as `provenance` of common/block_cost/block_costs.hpp writes it
  std::string transport;       // over which `inside` was measured, "local" or "gloo"; empty: it was not
  // Behind each stage but the last, where stages have different data degrees; empty: all are alike. Graphs then take
  // messages from these, not from boundary_bytes and the links above.
  std::vector<BoundaryCost> boundaries = {};
  // Of slices of different lengths, as in the schedule; empty: all are alike. `boundary_bytes` is then the longest's.
  std::vector<std::int64_t> slice_tokens = {};
  // Then also: what each slice's messages take on arrival until all of a tensor group have them; empty: nothing.
  std::vector<Seconds> slice_gathering = {};
  Seconds gradient_clipping = {};  // once a step, until all ranks know the norm of the whole gradient
  VocabularyCost vocabulary = {};  // `stages` has then the parts behind those that follow one another
  bool operator==(const PipelineCosts&) const = default;
};

// Of its stages those that follow one another.
[[nodiscard]] inline int chain_stages(const PipelineCosts& costs) {
  return static_cast<int>(costs.stages.size()) - 2 * costs.vocabulary.parts;
}

// Of PipelineCosts, or of a simulator's platform, whose members have the same names.
template <class Links>
[[nodiscard]] bool on_one_machine(const Links& links, int from, int to) {
  const int each = std::max(1, links.ranks_per_machine);
  return machine_of(from, each) == machine_of(to, each);
}

// The way of a message between two ranks: `inside` or `across` if one machine has both.
template <class Links>
[[nodiscard]] TransferCost transfer_between(const Links& links, int from, int to) {
  if (!on_one_machine(links, from, to)) return beyond_machine(links.outside, links.shared, from, to);
  const int each = std::max(1, links.ranks_per_machine);
  const int under = links.shared.ranks_per_switch;
  return under > 0 && from % each / under != to % each / under ? links.across : links.inside;
}

// Hidden states of one microbatch (as actions count: of a slice) as a rank of this stage takes them in or sends them.
[[nodiscard]] Bytes boundary_of_stage(const PipelineCosts& costs, int stage, int microbatch);

// Of messages, each slice's; one for all where they are alike. Not of data degrees by stage.
[[nodiscard]] std::vector<Bytes> message_bytes(const PipelineCosts& costs);

// What its message takes beside its way.
[[nodiscard]] Seconds gathering_time(const PipelineCosts& costs, int microbatch);

// A message over the boundary behind `stage`, either way, alone.
[[nodiscard]] Seconds boundary_time(const BoundaryCost& boundary);

// The blocks of one stage, and these in sequence; `blocks` has layers + 2 entries.
[[nodiscard]] std::span<const ComputeCost> stage_blocks(const std::vector<ComputeCost>& blocks, const Split& split,
                                                        int stage);
[[nodiscard]] ComputeCost stage_cost(const std::vector<ComputeCost>& blocks, const Split& split, int stage);

// Of one rank's share of a microbatch, all its chunks together; a message takes `hop`.
struct EvenTimes {
  Seconds forward = {};
  Seconds input_gradient = {};
  Seconds weight_gradient = {};
  Seconds hop = {};
  int chunks = 1;
  double hidden_in_pairs = 0;
};

// Every stage alike. For `plumb schedule show`.
[[nodiscard]] PipelineCosts even_costs(int stages, const EvenTimes& times);

}  // namespace plumb
