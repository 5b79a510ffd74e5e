#include "exec/transport/parcel_lines.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "exec/transport/take_oldest.hpp"

namespace plumb::exec {
namespace {

constexpr std::chrono::microseconds look_every{20};

using Sizes = std::vector<std::uint64_t>;  // of the parts, behind their number: never empty

Payload payload_of(Sizes sizes) {
  const auto memory = std::make_shared<Sizes>(std::move(sizes));
  return {.owner = memory,
          .data = reinterpret_cast<std::byte*>(memory->data()),
          .size = memory->size() * sizeof(Sizes::value_type)};
}

Sizes sizes_of(const Parcel& parcel) {
  Sizes sizes{parcel.size()};
  for (const Payload& part : parcel) sizes.push_back(part.size);
  return sizes;
}

Sizes parse(const Payload& payload) {
  Sizes sizes(payload.size / sizeof(Sizes::value_type));
  if (!sizes.empty()) std::memcpy(sizes.data(), payload.data, sizes.size() * sizeof(Sizes::value_type));
  return sizes;
}

}  // namespace

RunError ParcelLines::failure(const std::string& problem) const {
  return RunError("rank " + std::to_string(control_.rank()), problem);
}

void ParcelLines::require_peer(int peer) const {
  if (peer >= 0 && peer < control_.size() && peer != control_.rank()) return;
  throw failure("has no peer " + std::to_string(peer) + " to evict to or load from");
}

void ParcelLines::begin_step(const RankLaunches& launches) {
  std::map<int, int> coming;
  for (const LaunchBatch& batch : launches) {
    if (batch.use != CommunicatorUse::evictions) continue;
    for (const LaunchOperation& operation : batch.operations) {
      if (!operation.sends) ++coming[operation.peer];
    }
  }
  for (const auto& [peer, count] : coming) {
    require_peer(peer);
    control_.expect_parcels(peer, count);
  }
}

void ParcelLines::send(int peer, Parcel parcel) {
  require_peer(peer);
  control_.send_parcel(peer, {payload_of(sizes_of(parcel))});
  to_send_[peer].push_back(std::move(parcel));
}

Parcel ParcelLines::take_to_send(const LaunchOperation& operation) {
  std::deque<Parcel>& waiting = to_send_[operation.peer];
  if (waiting.empty()) throw failure(to_string(operation.action) + " has not been handed over");
  return take_oldest(waiting);
}

Parcel ParcelLines::take_buffers(const LaunchOperation& operation, const std::function<void()>& look) {
  const int peer = operation.peer;
  require_peer(peer);
  while (!control_.has_parcel(peer)) {
    look();
    std::this_thread::sleep_for(look_every);
  }
  const ReceivedParcel told = control_.receive_parcel(peer, Clock::time_point::max());
  const Sizes sizes = told.parcel.size() == 1 ? parse(told.parcel.front()) : Sizes{};
  if (sizes.empty() || sizes.front() != sizes.size() - 1) {
    throw failure("is told something else than the sizes of " + to_string(operation.action));
  }
  Parcel parcel;
  for (std::size_t part = 1; part < sizes.size(); ++part) parcel.push_back(buffers_.take(sizes[part]));
  return parcel;
}

void ParcelLines::launched(int peer, Parcel parcel) { received_[peer].push_back(std::move(parcel)); }

bool ParcelLines::has(int peer) const {
  const auto found = received_.find(peer);
  return found != received_.end() && !found->second.empty();
}

Parcel ParcelLines::receive(int peer) {
  if (!has(peer)) throw failure("takes activations from rank " + std::to_string(peer) + " that were not launched");
  return take_oldest(received_[peer]);
}

}  // namespace plumb::exec
