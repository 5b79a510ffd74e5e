// What goes wrong at a date during a step: a slow or failing link or host, and what a simulation that knows them says.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "common/graph/evaluate.hpp"

namespace plumb {

enum class Disturbed : std::uint8_t {
  device,         // of `rank`: all that it computes
  ports,          // of `rank`: all messages to and from it
  outside_ports,  // of `rank`: those from and to other machines; who shares its NIC keeps the rest of it
  way,            // messages between `rank` and `peer`, both ways; their ports have the rest to themselves
  uplink,         // of the switch that `rank` is under inside its machine: all messages through it
  leaf,           // uplink of the leaf that `rank` is under: all messages through it
  reduction,      // of `rank`: its data-parallel reduction, of which the graph has one node
};

// From `from` until `until` it runs at `factor` of its speed; 0: it stands still, and what it does goes on afterwards.
// Several at once multiply. Latencies stay, and pass meanwhile; those of a reduction count as part of it.
struct Disturbance {
  Disturbed what = Disturbed::device;
  int rank = 0;
  int peer = -1;  // of a way
  double factor = 1;
  Seconds from = {};
  Seconds until = {std::numeric_limits<double>::infinity()};
  bool operator==(const Disturbance&) const = default;
};

// `unfinished`: nodes that never ended, by id, because something that they need never came back; their times are those
// of nothing, and the makespan that of what did end.
struct StepOutcome {
  Evaluation evaluation = {};
  std::vector<NodeId> unfinished = {};
};

// An engine that runs one step of a graph.
using StepEngine =
    std::function<StepOutcome(const ScheduleGraph&, const PipelineCosts&, const std::vector<Disturbance>&)>;

}  // namespace plumb
