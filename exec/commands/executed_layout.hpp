// Which layouts are executed, and over what.
#pragma once

#include "exec/commands/session.hpp"

namespace plumb::exec {

// Throws InputError that says what is allowed: pipelines, and data parallelism (on hosts of every sharding) and 1d
// tensor parallelism, with and without sequence parallelism, around and in them; these not where ranks share a device,
// and on devices without ZeRO++, offload and clipping. 2d, 2.5d and 3d tensor parallelism on hosts, of what is planned
// in them, without sharding, offload, slices and evictions.
void require_executed_layout(const Plan& plan, const SessionOptions& options);

}  // namespace plumb::exec
