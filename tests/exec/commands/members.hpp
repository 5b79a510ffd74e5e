// Ranks of a session over NCCL as threads of one process, from the rendezvous to the logs, with a scripted library in
// NCCL's place and the host's memory in a GPU's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/commands/member.hpp"
#include "exec/transport/gloo/run_store.hpp"
#include "exec/transport/receive_arena.hpp"
#include "tests/exec/device/host_with_streams.hpp"
#include "tests/exec/fake_nccl/nccl_ranks.hpp"

namespace plumb::exec::test {

inline const Speeds slow_messages{.copies = std::chrono::microseconds(500),
                                  .unhurried = std::chrono::microseconds(500)};

inline PreparedPlan prepared(Plan plan) {
  Schedule lowered = lowered_schedule(plan);
  LaunchPlan launches = plan_launches(lowered, plan.costs);
  std::vector<ReceiveSlots> slots = plan_receive_arenas(lowered, plan.costs, launches);
  return {.plan = std::move(plan),
          .lowered = std::move(lowered),
          .launches = std::move(launches),
          .slots = std::move(slots)};
}

inline SessionOptions nccl_session(int steps = 2) {
  SessionOptions options;
  options.steps = steps;
  options.warm_up = 0;
  options.transport = "nccl";
  options.device = "cuda";
  options.check = true;
  return options;
}

// As many devices as asked for, each with a place of its own.
inline Host host_of(int devices) {
  return {.visible_devices = [devices] { return devices; },
          .make_device =
              [](int index) {
                return std::make_unique<HostWithStreams>(static_cast<std::uint32_t>(100 * index + 1), slow_messages);
              },
          .device_facts = [](int index) { return DeviceFacts{.bus = "0000:" + std::to_string(index) + "b:00"}; },
          .nccl_library = PLUMB_FAKE_NCCL,
          .watches_signals = false};
}

struct MembersEnd {
  SessionLogs logs;                 // of rank 0
  std::vector<std::string> errors;  // by rank; empty: none
  std::vector<ExitStatus> statuses;
  std::string stop_reason;
};

using HostOfRank = std::function<Host(int rank)>;

// As a launcher starts them, on one host unless `on_each` says how many ranks are on each.
inline MembersEnd run_members(const std::vector<PreparedPlan>& plans, const SessionOptions& options,
                              const HostOfRank& host, int on_each = 1 << 20) {
  const int ranks = ranks_of(plans.front());
  const auto store = RunStore::host(0);
  MembersEnd end{.logs = {},
                 .errors = std::vector<std::string>(static_cast<std::size_t>(ranks)),
                 .statuses = std::vector<ExitStatus>(static_cast<std::size_t>(ranks), ExitStatus::done),
                 .stop_reason = {}};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto place = static_cast<std::size_t>(rank);
      const Membership member{.rank = rank,
                              .size = ranks,
                              .local_rank = rank % on_each,
                              .address = "127.0.0.1",
                              .port = store->port(),
                              .launcher = "torchrun"};
      try {
        SessionLogs logs = run_member(plans, options, member, host(rank));
        if (rank == 0) end.logs = std::move(logs);
      } catch (const Error& error) {
        end.errors[place] = error.what();
        end.statuses[place] = error.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  end.stop_reason = store->stop_reason();
  return end;
}

inline MembersEnd run_members(const std::vector<PreparedPlan>& plans, const SessionOptions& options) {
  return run_members(plans, options, [&](int) { return host_of(ranks_of(plans.front())); });
}

}  // namespace plumb::exec::test
