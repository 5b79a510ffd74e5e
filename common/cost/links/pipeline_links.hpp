// What the messages of a pipeline have of the links of a cluster.
#pragma once

#include "common/cluster/machine.hpp"
#include "common/cost/costs.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// Sets `inside`, `outside`, `across` and `shared` of the costs. Of a plan's graph each rank stands for all ranks of its
// stage, which send at once: where k of them share a NIC, an uplink, a leaf or a site's link, each has 1/k of it here,
// and the stages of one such link share that. Exact where stages and links divide each other; elsewhere k is that of
// the fullest link. `gathering` takes its time on arrival, after the last byte.
void set_links(PipelineCosts& costs, const Layout& layout, const Cluster& cluster, Seconds gathering);

}  // namespace plumb
