// Measures a transport between two ranks of this host.
#pragma once

#include <string>

#include "common/cost/costs.hpp"

namespace plumb::exec {

// Half a round trip of a small message, and what a large one takes longer. Throws InputError for an unknown transport.
[[nodiscard]] TransferCost measure_transfer(const std::string& transport);

}  // namespace plumb::exec
