// One rank of a session in a process of its own: it joins the others through the run's store, over Gloo or NCCL.
#pragma once

#include <string>
#include <vector>

#include "exec/commands/rank_work.hpp"
#include "exec/host/host.hpp"
#include "exec/launch/membership.hpp"

namespace plumb::exec {

// Throws InputError when so many ranks, all of them here, cannot talk over NCCL: no library, no devices, too few. Asks
// no device for anything, so that whoever only starts ranks takes none of its memory.
void require_nccl_here(int ranks, const Host& host);

// Rank 0 gets the logs. Over NCCL all ranks look at their hosts first, and throw the same InputError if one of them
// cannot take part. Every error has been told to the other ranks, which throw an InputError, too, where the first did.
[[nodiscard]] SessionLogs run_member(const std::vector<PreparedPlan>& plans, const SessionOptions& options,
                                     const Membership& member, const Host& host);

// What rank 0 of ranks that somebody else has started refuses before it joins them: the others wait for it, and end
// with this. Where they cannot be told nothing happens.
void tell_ranks(const Membership& member, const Error& error);

// Where in the store a rank leaves its log when the run is ended.
[[nodiscard]] std::string log_name(int rank);

// What rank 0 leaves there for whoever has started the ranks, once all steps are done.
inline const std::string all_trained = "trained";

// As whoever's watchdog sees a rank that hangs.
[[nodiscard]] std::string hang_reason(const RankWork& work, int rank, const Watchdog& watchdog, Seconds since);

// When even a stop does not end it.
[[noreturn]] void leave_hanging();

}  // namespace plumb::exec
