// Holds the cluster of a plan to what a machine's and a scenario's file may say. Internal, like json.hpp.
#pragma once

#include "common/base/document/json.hpp"
#include "common/cluster/machine.hpp"

namespace plumb {

// Throws InputError, at the number, for the first one out of its range (common/cluster/machine_ranges.hpp). `value`: of
// the same cluster.
void require_ranges(const Cluster& cluster, const JsonValue& value);

}  // namespace plumb
