#include "exec/launch/world.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "exec/host/pauses.hpp"
#include "exec/launch/arrival.hpp"

namespace plumb::exec {
namespace {

using nlohmann::json;

constexpr auto look_for_ranks_every = std::chrono::milliseconds(5);
const std::string verdict_key = "world";

json to_json(const Refusal& refusal) {
  return {{"where", refusal.where}, {"problem", refusal.problem}, {"hint", refusal.hint}};
}

Refusal refusal_from(const json& value) {
  return {.where = value.at("where"), .problem = value.at("problem"), .hint = value.at("hint")};
}

std::optional<Refusal> first_refusal(const std::vector<WorldMember>& members) {
  std::optional<Refusal> first;
  std::vector<int> ranks;
  std::string host;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const std::optional<Refusal>& refusal = members[rank].refusal;
    if (!refusal || (first && *refusal != *first)) continue;
    if (!first) host = members[rank].host;
    first = refusal;
    ranks.push_back(static_cast<int>(rank));
  }
  // A reason that all ranks share needs no rank.
  if (first && ranks.size() < members.size()) {
    first->problem = fmt::format("{} (on {}): {}", ranks_text(ranks), host, first->problem);
  }
  return first;
}

std::optional<Refusal> other_library(const std::vector<WorldMember>& members) {
  for (std::size_t rank = 1; rank < members.size(); ++rank) {
    if (members[rank].library == members[0].library) continue;
    return Refusal{
        .where = "--transport",
        .problem = fmt::format("rank {} (on {}) has {}, rank 0 (on {}) {}: they cannot talk", rank, members[rank].host,
                               members[rank].library, members[0].host, members[0].library),
        .hint = "name the same libnccl.so.2 on all hosts in PLUMB_NCCL_LIBRARY"};
  }
  return std::nullopt;
}

std::optional<Refusal> shared_device(const std::vector<WorldMember>& members) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> owners;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const WorldMember& member = members[rank];
    if (member.device_bus.empty() || member.shares_devices) continue;
    owners[{member.host_id, member.device_bus}].push_back(static_cast<int>(rank));
  }
  for (const auto& [device, ranks] : owners) {
    if (ranks.size() == 1) continue;
    const std::string& host = members[static_cast<std::size_t>(ranks.front())].host;
    return Refusal{.where = "--transport",
                   .problem = fmt::format("{} have one device, {} on {}: 'nccl' gives each rank its own",
                                          ranks_text(ranks), device.second, host),
                   .hint =
                       "start as many ranks on a host as it has devices, or NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL "
                       "2.30.3 or newer, or --transport local, where ranks share one"};
  }
  return std::nullopt;
}

}  // namespace

Refusal refusal_of(const Error& error) { return {error.where(), error.problem(), error.hint()}; }
InputError error_of(const Refusal& refusal) { return {refusal.where, refusal.problem, refusal.hint}; }

std::string to_text(const WorldMember& member) {
  json text{{"host", member.host},       {"host_id", member.host_id},
            {"device", member.device},   {"device_bus", member.device_bus},
            {"library", member.library}, {"shares_devices", member.shares_devices}};
  if (member.refusal) text["refusal"] = to_json(*member.refusal);
  return text.dump();
}

WorldMember parse_world_member(std::string_view text) {
  try {
    const json value = json::parse(text);
    WorldMember member{.host = value.at("host"),
                       .host_id = value.at("host_id"),
                       .device = value.at("device"),
                       .device_bus = value.at("device_bus"),
                       .library = value.at("library"),
                       .shares_devices = value.at("shares_devices"),
                       .refusal = {}};
    if (value.contains("refusal")) member.refusal = refusal_from(value.at("refusal"));
    return member;
  } catch (const json::exception&) {
    throw RunError("start", "a rank sent something else than its findings on its host",
                   "do all ranks run the same plumb-exec, with the same --transport?");
  }
}

int device_of_rank(const Membership& member, int visible, bool shares) {
  if (visible <= 0) return 0;
  if (member.local_rank < visible) return member.local_rank;
  if (shares || visible == 1) return member.local_rank % visible;
  throw InputError(
      "--transport",
      fmt::format("is number {} of the ranks of its host, which has {} devices: 'nccl' gives each its own",
                  member.local_rank + 1, visible),
      fmt::format(
          "start at most {} ranks on a host, each with its number there in LOCAL_RANK, or --transport local, where "
          "ranks share one device",
          visible));
}

std::optional<Refusal> world_problem(const std::vector<WorldMember>& members) {
  if (auto refusal = first_refusal(members)) return refusal;
  if (auto refusal = other_library(members)) return refusal;
  return shared_device(members);
}

void require_world(const WorldMember& mine, Transport& control, const Rendezvous& rendezvous,
                   Clock::time_point deadline) {
  std::optional<std::string> found;
  try {
    std::vector<WorldMember> members;
    for (const std::string& text : control.gather(to_text(mine), deadline)) members.push_back(parse_world_member(text));
    if (control.rank() == 0) {
      const std::optional<Refusal> refusal = world_problem(members);
      rendezvous.put(verdict_key, refusal ? to_json(*refusal).dump() : "{}");
    }
    while (!(found = rendezvous.find(verdict_key))) {
      control.poll();
      if (has_passed(deadline)) throw RunError("start", "rank 0 did not decide in time whether the run can start");
      std::this_thread::sleep_for(look_for_ranks_every);
    }
  } catch (const RunError&) {
    // Rank 0 may have put its verdict and ended while this rank still waited for others.
    found = rendezvous.find(verdict_key);
    if (!found) throw;
  }
  const json value = json::parse(*found);
  if (!value.empty()) throw error_of(refusal_from(value));
}

}  // namespace plumb::exec
