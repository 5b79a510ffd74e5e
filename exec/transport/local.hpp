// Ranks as threads of one process: a message is handed over by its pointer, nothing is copied.
#pragma once

#include <memory>
#include <vector>

#include "exec/transport/transport.hpp"

namespace plumb::exec {

// One transport per rank; they share their queues and may outlive each other.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_local_transports(int ranks);

}  // namespace plumb::exec
