// Findings of all ranks on their hosts, exchanged before work starts, and the problems that follow from them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "exec/launch/membership.hpp"
#include "exec/transport/rendezvous.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Parts of an InputError for which a run cannot start.
struct Refusal {
  std::string where;
  std::string problem;
  std::string hint;
  bool operator==(const Refusal&) const = default;
};
[[nodiscard]] Refusal refusal_of(const Error& error);
[[nodiscard]] InputError error_of(const Refusal& refusal);

struct WorldMember {
  std::string host = {};                // host_name
  std::string host_id = {};             // of HostIdentity
  std::string device = {};              // "cuda:1"
  std::string device_bus = {};          // equal for ranks of a host that have one device; empty if unknown
  std::string library = {};             // "NCCL 2.30.4"; empty if there is none
  bool shares_devices = false;          // the library takes several ranks on a device, and is told to
  std::optional<Refusal> refusal = {};  // this rank cannot take part
  bool operator==(const WorldMember&) const = default;
};

[[nodiscard]] std::string to_text(const WorldMember& member);
// Throws RunError for any text that `to_text` does not write.
[[nodiscard]] WorldMember parse_world_member(std::string_view text);

// Returns the number of the device that a rank takes among `visible` ones: its number among the ranks of its host, or
// the only one if the launcher shows each rank its own. With `shares`, ranks beyond the last device begin at the first.
// Throws InputError if there are too few. 0 if there are none: making that device reports the cause.
[[nodiscard]] int device_of_rank(const Membership& member, int visible, bool shares);

// Returns the first problem of `members`, which are by rank: ranks that cannot take part (those with one reason
// together), libraries of different versions, several ranks on one device. None if the run can start.
[[nodiscard]] std::optional<Refusal> world_problem(const std::vector<WorldMember>& members);

// Sends every rank's findings to rank 0, which puts its verdict into `rendezvous`. Throws the same InputError on every
// rank if there is a problem; else as `control`.
void require_world(const WorldMember& mine, Transport& control, const Rendezvous& rendezvous,
                   Clock::time_point deadline);

}  // namespace plumb::exec
