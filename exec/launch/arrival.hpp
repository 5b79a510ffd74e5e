// Whether all ranks of a run have come, and were started alike: before they have a transport between them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "exec/launch/membership.hpp"
#include "exec/transport/rendezvous.hpp"

namespace plumb::exec {

// Returns when somebody listens there. Throws RunError when nobody does in time: rank 0, which does, has not come. A
// host that nobody knows is left to who connects to say.
void wait_for_listener(const std::string& address, int port, Seconds timeout);

// Leaves `mine`, with what this rank was started, at `rendezvous` and waits for the texts of all ranks, calling `poll`
// now and then, which throws when others have ended the run. Throws RunError naming all ranks that have not come in
// time; the same InputError on every rank, naming two, when their texts differ.
void require_same_start(const std::string& mine, const Membership& member, const Rendezvous& rendezvous,
                        const std::function<void()>& poll, Seconds timeout);

// "rank 3", "ranks 0-3", "ranks 0, 2": of ascending numbers, at least one.
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);

}  // namespace plumb::exec
