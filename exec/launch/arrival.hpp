// Meeting of a run's ranks before they have a transport: all join, and all were started with the same options.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "exec/launch/membership.hpp"
#include "exec/transport/rendezvous.hpp"

namespace plumb::exec {

// Waits until rank 0 listens there. Throws RunError if it does not in time. Returns at once if the host is unknown: the
// connection that follows reports that.
void wait_for_listener(const std::string& address, int port, Seconds timeout);

// Puts `mine`, the options of this rank, into `rendezvous` and waits for those of all ranks. Calls `poll` now and then,
// which throws if others have ended the run. Throws RunError naming all ranks that did not join in time, and the same
// InputError on every rank, naming two, if their options differ.
void require_same_start(const std::string& mine, const Membership& member, const Rendezvous& rendezvous,
                        const std::function<void()>& poll, Seconds timeout);

// Returns "rank 3", "ranks 0-3", "ranks 0, 2" for ascending numbers, at least one.
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);

}  // namespace plumb::exec
