// Ranks of a run as threads of this process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Body of a rank, on a thread of its own.
using RankMain = std::function<void(Transport& transport)>;

// Runs body(0), body(1) … body(count − 1), each on a thread of its own, and returns when all have ended. If the system
// refuses a thread, `refused` gets its index and the reason, and must end the threads that run.
void run_threads(std::size_t count, const std::function<void(std::size_t)>& body,
                 const std::function<void(std::size_t, const std::string&)>& refused);

// Runs rank_main on one thread per transport. If one throws, the others are stopped. Rethrows the first error that is a
// rank's own (not Stopped) when all have ended.
void run_on_threads(const std::vector<std::unique_ptr<Transport>>& transports, const RankMain& rank_main);

// Prints the error and ends the program with its status, although threads of it still work.
[[noreturn]] void leave_at_once(const Error& error);

}  // namespace plumb::exec
