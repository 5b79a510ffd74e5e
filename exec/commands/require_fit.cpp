#include "exec/commands/require_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/text.hpp"
#include "exec/checkpoint/checkpoint_index.hpp"
#include "exec/host/enough_memory.hpp"
#include "exec/host/open_files.hpp"
#include "exec/launch/rank_files.hpp"
#include "exec/transport/collectives/rank_group.hpp"

namespace plumb::exec {

std::vector<int> ranks_of_host(const Membership& member, const Environment& environment) {
  for (const char* const name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    const std::optional<std::string> text = environment(name);
    int count = 0;
    if (!text || std::from_chars(text->data(), text->data() + text->size(), count).ec != std::errc()) continue;
    const int first = member.rank - member.local_rank;
    if (first >= 0 && count > member.local_rank && first + count <= member.size) return ranks_from(first, count);
  }
  return {member.rank};
}

// At most: each element is copied by one rank that has it, on the host.
Bytes copied_to_save(const Plan& plan, const std::vector<int>& ranks) {
  return std::min(bytes_of_states(index_of(plan, "")), states_of_ranks(plan, ranks));
}

void require_fit(const std::vector<PreparedPlan>& plans, const SessionOptions& options, const std::vector<int>& ranks,
                 const Host& host) {
  if (options.emulate) return;
  std::vector<const Plan*> all;
  for (const PreparedPlan& prepared : plans) all.push_back(&prepared.plan);
  const Plan& first = plans.front().plan;
  MemoryNeed need{.where = first.name,
                  .what = ranks.size() == 1 ? fmt::format("rank {} takes", ranks.front())
                                            : fmt::format("its {} ranks here take", ranks.size()),
                  .made_for = machine_text(first.cluster.machine),
                  .bytes = {},
                  .hint =
                      "run it on that machine, plan a smaller model or batch for this one, or add --emulate, "
                      "which needs no memory"};
  MemoryNeed of_host = need;
  if (options.checkpoint.beside) {
    of_host.bytes = copied_to_save(first, ranks);
    of_host.hint += "; without --asynchronous-save it takes " + to_text(of_host.bytes) + " less";
  }
  const bool on_host = options.device == "cpu";
  if (on_host) of_host.bytes += memory_of_ranks(all, ranks);
  require_memory(of_host, memory_of_host(host.identity));
  if (on_host) return;
  const auto facts = host.device_facts(0);
  if (!facts || facts->memory_bytes == 0) return;
  const MemoryThere there{.where = facts->name, .bytes = Bytes{facts->memory_bytes}};
  if (options.transport != "nccl") {
    need.bytes = memory_of_ranks(all, ranks);
    return require_memory(need, there);
  }
  for (const int rank : ranks) {
    need.what = fmt::format("rank {} takes", rank);
    need.bytes = memory_of_ranks(all, {rank});
    require_memory(need, there);
  }
}

void require_files_of_ranks(const std::vector<PreparedPlan>& plans, const SessionOptions& options,
                            const std::vector<int>& ranks, HostsStore hosts) {
  const bool known = options.fault.empty() && !options.force_unchecked;  // else messages may lead nowhere
  const std::int64_t of_store = open_files_of_store(ranks_of(plans.front()));
  const std::string& first = plans.front().plan.name;
  if (hosts == HostsStore::launcher) require_open_files(first, "whoever starts its ranks", own_files + of_store);
  for (const PreparedPlan& prepared : plans) {
    std::pair<std::int64_t, int> most{0, 0};
    for (const int rank : ranks) {
      if (!known) break;
      const bool saves = !options.checkpoint.folder.empty();
      const std::int64_t files = open_files_of_rank(prepared.plan, prepared.lowered, rank, saves);
      most = std::max(most, {files + (hosts == HostsStore::rank ? of_store : 0), -rank});
    }
    require_open_files(prepared.plan.name, fmt::format("rank {}", -most.second), most.first);
  }
}

}  // namespace plumb::exec
