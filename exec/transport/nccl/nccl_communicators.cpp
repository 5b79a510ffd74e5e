#include "exec/transport/nccl/nccl_communicators.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

constexpr auto look_at_library_every = 2ms;
constexpr auto time_to_let_go = 1s;  // of a launching thread, before its communicators are aborted under it

std::string id_key(int index) { return fmt::format("nccl/{}/id", index); }
std::string member_key(int index, int rank) { return fmt::format("nccl/{}/member/{}", index, rank); }

// Stores keep text.
std::string to_hex(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}
ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id{};
  for (std::size_t i = 0; i < sizeof id.internal && 2 * i + 1 < text.size(); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

// What the thread that joins a communicator shares with the one that waits for it: the latter may give up.
struct Joining {
  std::shared_ptr<const NcclLibrary> library;
  ncclUniqueId id;
  int size = 0;
  int rank = 0;
  ncclComm_t communicator = {};
  std::promise<void> entered;
  std::promise<ncclResult_t> result;
};

std::string missing_members(const CommunicatorSpec& spec, int index, const Rendezvous& rendezvous) {
  std::vector<int> missing;
  for (const int rank : spec.ranks) {
    if (!rendezvous.find(member_key(index, rank))) missing.push_back(rank);
  }
  if (missing.empty()) return "all its ranks have come, but do not reach each other";
  return fmt::format("rank{} {} {} not come", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                     missing.size() == 1 ? "has" : "have");
}

Clock::time_point start_deadline(const NcclOptions& options) {
  const std::chrono::duration<double> timeout(options.start_timeout.value);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
}

}  // namespace

NcclCommunicators::NcclCommunicators(std::shared_ptr<const NcclLibrary> library, const NcclOptions& options,
                                     Transport& control, Device& device, const Rendezvous& rendezvous)
    : library_(std::move(library)), specs_(options.communicators), rank_(control.rank()) {
  try {
    for (std::size_t i = 0; i < specs_.size(); ++i) make(static_cast<int>(i), options, control, device, rendezvous);
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicators::~NcclCommunicators() {
  if (aborted_) return;
  for (Member& member : members_) library_->call.comm_destroy(member.communicator);
}

RunError NcclCommunicators::not_complete(int index, const NcclOptions& options, const Rendezvous& rendezvous,
                                         const std::string& hint) const {
  const CommunicatorSpec& spec = specs_[static_cast<std::size_t>(index)];
  return RunError(fmt::format("rank {}", rank_),
                  fmt::format("communicator {} was not complete after {:.0f} s: {}", describe(spec),
                              options.start_timeout.value, missing_members(spec, index, rendezvous)),
                  hint);
}

ncclUniqueId NcclCommunicators::unique_id(int index, const NcclOptions& options, Transport& control,
                                          const Rendezvous& rendezvous) {
  const CommunicatorSpec& spec = specs_[static_cast<std::size_t>(index)];
  if (rank_ == spec.ranks.front()) {
    ncclUniqueId id{};
    const ncclResult_t result = library_->call.get_unique_id(&id);
    if (result != ncclSuccess) throw nccl_error(*library_, fmt::format("rank {}", rank_), describe(spec), result);
    rendezvous.put(id_key(index), to_hex(id));
    return id;
  }
  const Clock::time_point deadline = start_deadline(options);
  while (true) {
    if (const auto text = rendezvous.find(id_key(index))) return from_hex(*text);
    control.poll();
    if (Clock::now() > deadline) throw not_complete(index, options, rendezvous, "");
    std::this_thread::sleep_for(look_at_library_every);
  }
}

// NCCL waits for all ranks inside the call: on a thread of its own, so that this one can give up.
void NcclCommunicators::make(int index, const NcclOptions& options, Transport& control, Device& device,
                             const Rendezvous& rendezvous) {
  const CommunicatorSpec& spec = specs_[static_cast<std::size_t>(index)];
  const auto self = std::ranges::find(spec.ranks, rank_);
  if (self == spec.ranks.end()) return;
  rendezvous.put(member_key(index, rank_), "here");
  auto joining = std::make_shared<Joining>();
  joining->library = library_;
  joining->id = unique_id(index, options, control, rendezvous);
  joining->size = static_cast<int>(spec.ranks.size());
  joining->rank = static_cast<int>(self - spec.ranks.begin());
  std::future<ncclResult_t> result = joining->result.get_future();
  std::future<void> entered = joining->entered.get_future();
  std::thread([joining, &device] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;  // else every batch would be launched by a thread of NCCL's, made for it
    try {
      device.enter();
      joining->entered.set_value();
    } catch (...) {
      joining->entered.set_exception(std::current_exception());
      return;
    }
    joining->result.set_value(joining->library->call.comm_init_rank_config(&joining->communicator, joining->size,
                                                                           joining->id, joining->rank, &config));
  }).detach();
  entered.get();  // from here on it does not touch the device object, which may go before it does
  const Clock::time_point deadline = start_deadline(options);
  while (result.wait_for(look_at_library_every) != std::future_status::ready) {
    control.poll();
    if (Clock::now() <= deadline) continue;
    throw not_complete(index, options, rendezvous,
                       "NCCL_DEBUG=INFO tells more; NCCL_SOCKET_IFNAME names the network to use");
  }
  const ncclResult_t made = result.get();
  if (made != ncclSuccess) throw nccl_error(*library_, fmt::format("rank {}", rank_), describe(spec), made);
  members_.push_back({.index = index,
                      .rank = joining->rank,
                      .communicator = joining->communicator,
                      .stream = device.make_stream(true)});
}

NcclCommunicators::Member* NcclCommunicators::find(const CommunicatorSpec& spec) {
  const auto found = std::ranges::find_if(
      members_, [&](const Member& member) { return specs_[static_cast<std::size_t>(member.index)] == spec; });
  return found == members_.end() ? nullptr : &*found;
}

void NcclCommunicators::abort() noexcept {
  try {
    std::unique_lock lock(mutex_, std::defer_lock);
    const Clock::time_point give_up = Clock::now() + time_to_let_go;
    while (!lock.try_lock() && Clock::now() < give_up) std::this_thread::sleep_for(look_at_library_every);
    if (aborted_.exchange(true)) return;
    std::vector<std::thread> threads;
    for (Member& member : members_) {
      threads.emplace_back([this, &member] { library_->call.comm_abort(member.communicator); });
    }
    for (std::thread& thread : threads) thread.join();
  } catch (...) {  // no threads left: the process ends without
  }
}

}  // namespace plumb::exec
