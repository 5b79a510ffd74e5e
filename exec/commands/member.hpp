// One rank of a session in a process of its own: it joins the others through the run's store, over Gloo or NCCL.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "exec/commands/rank_work.hpp"
#include "exec/host/host.hpp"
#include "exec/launch/membership.hpp"
#include "exec/launch/signal_watch.hpp"

namespace plumb::exec {

// Throws InputError when so many ranks, all of them here, cannot talk over NCCL: no library, no devices, too few. Asks
// no device for anything, so that whoever only starts ranks takes none of its memory.
void require_nccl_here(int ranks, const Host& host);

// Rank 0 gets the logs. Over NCCL all ranks look at their hosts first, and throw the same InputError if one of them
// cannot take part. Every error has been told to the other ranks, which throw an InputError, too, where the first did.
// `afterwards`, if there is one, is made with the rank's own watch, and goes on catching signals behind it.
[[nodiscard]] SessionLogs run_member(const std::vector<PreparedPlan>& plans, const SessionOptions& options,
                                     const Membership& member, const Host& host,
                                     std::optional<SignalWatch>* afterwards = nullptr);

// What rank 0 of ranks that somebody else has started refuses before it joins them: the others wait for it, and end
// with this. Where they cannot be told nothing happens.
void tell_ranks(const Membership& member, const Error& error);

// Of a rank other than 0, which refuses the same by itself: whether rank 0 has told it (tell_ranks) within seconds, and
// so says it for all. A process that only looks like a rank, by variables of another run, is told nothing.
[[nodiscard]] bool is_told(const Membership& member);

// Where in the store a rank leaves its log when the run is ended.
[[nodiscard]] std::string log_name(int rank);

// What rank 0 leaves there for whoever has started the ranks, once all steps are done.
inline const std::string all_trained = "trained";

// As whoever's watchdog sees a rank that hangs.
[[nodiscard]] std::string hang_reason(const RankWork& work, int rank, const Watchdog& watchdog, Seconds since);

// `hint`, then `places`, a line per rank, of an error that says `said`; with the legend of the first action among these
// (common/schedule/action_words.hpp). Plans that alternate and cut sequences into different numbers of parts have none.
[[nodiscard]] std::string with_places(const std::string& said, const std::string& hint, const std::string& places,
                                      const std::vector<PreparedPlan>& plans);

// The hint of an error of one rank, which does not know where the others stood, with the same legend.
[[nodiscard]] std::string with_legend(const RunError& error, const std::vector<PreparedPlan>& plans);

// When even a stop does not end it.
[[noreturn]] void leave_hanging();

}  // namespace plumb::exec
