// What each rank finds on its host, told to all before work starts: whether the run can go on with that.
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

// Why a run cannot start, as an InputError says it.
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
  std::string host_id = {};             // likewise
  std::string device = {};              // "cuda:1"
  std::string device_bus = {};          // the same for ranks of a host that have one device; empty: unknown
  std::string library = {};             // "NCCL 2.30.4"; empty: none
  bool shares_devices = false;          // this library bears several ranks on a device, and is told to
  std::optional<Refusal> refusal = {};  // this rank cannot take part
  bool operator==(const WorldMember&) const = default;
};

[[nodiscard]] std::string to_text(const WorldMember& member);
// Throws RunError for anything else than `to_text` writes.
[[nodiscard]] WorldMember parse_world_member(std::string_view text);

// Which of the `visible` devices a rank takes: the one with its number among the ranks of its host; the only one where
// the launcher shows each rank its own; with `shares`, more ranks than devices go round. Throws InputError when there
// are too few. 0 where there are none: asking for that one says why.
[[nodiscard]] int device_of_rank(const Membership& member, int visible, bool shares);

// By rank. The first of: ranks that cannot take part (those with one reason together), libraries of different versions,
// several ranks on one device. None: the run can start.
[[nodiscard]] std::optional<Refusal> world_problem(const std::vector<WorldMember>& members);

// Every rank tells rank 0, which tells all at `rendezvous`: throws the same InputError on every rank if there is a
// problem, so that all of them say it and end. RunError and Stopped as `control` throws them.
void require_world(const WorldMember& mine, Transport& control, const Rendezvous& rendezvous,
                   Clock::time_point deadline);

}  // namespace plumb::exec
