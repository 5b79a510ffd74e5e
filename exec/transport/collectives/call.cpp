#include "exec/transport/collectives/call.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "exec/host/pauses.hpp"
#include "exec/transport/collectives/payloads.hpp"

namespace plumb::exec {

std::size_t Call::position_of(int rank) const {
  const auto found = std::ranges::find(group_, rank);
  if (found == group_.end()) throw failure(fmt::format("rank {} is not in the group", rank));
  return static_cast<std::size_t>(found - group_.begin());
}

Payload Call::receive(std::size_t from, std::size_t bytes) {
  waits_for_ = from;
  bytes_ = bytes;
  go_on_until_message(group_[from]);
  auto [payload, arrived] = transport_.receive(group_[from], Channel::collective, deadline_);
  last_arrival_ = std::max(last_arrival_, arrived);
  waits_for_ = position();
  received_ += Bytes{static_cast<std::int64_t>(payload.size)};
  return payload;
}

// Or until the deadline, of which the transport tells.
void Call::go_on_until_message(int peer) const {
  const auto& meanwhile = transport_.meanwhile();
  const Clock::time_point waits_since = Clock::now();
  while (meanwhile && !transport_.has_message(peer, Channel::collective) && !has_passed(deadline_)) {
    try {
      meanwhile();
    } catch (const RunError& error) {
      throw FailedMeanwhile(error.where(), error.problem(), error.hint());
    }
    std::this_thread::sleep_for(until_next_look(waits_since));
  }
}

void Call::send_to_all(std::span<const std::byte> values) {
  if (size() == 1) return;
  const Payload sent = copy_of(values);
  for (std::size_t distance = 1; distance < size(); ++distance) send(after(distance), sent);
}

void Call::expect_from_all(std::size_t bytes) {
  for (std::size_t distance = 1; distance < size(); ++distance) expect(before(distance), bytes);
}

std::vector<Payload> Call::receive_from_all(std::size_t bytes) {
  std::vector<Payload> received(size());
  for (std::size_t distance = 1; distance < size(); ++distance) {
    received[before(distance)] = receive(before(distance), bytes);
  }
  return received;
}

std::string Call::describe() const {
  const std::string over = fmt::format("over ranks {}", fmt::join(group_, ", "));
  if (waits_for_ == position()) return over;
  return fmt::format("{}, waiting for {} bytes from rank {}", over, bytes_, group_[waits_for_]);
}

RunError Call::within(const char* name, const RunError& error) const {
  return RunError(fmt::format("rank {}", transport_.rank()),
                  fmt::format("{} {}: {}", name, describe(), error.problem()), error.hint());
}

RunError Call::failure(const std::string& problem) const {
  return RunError(fmt::format("rank {}", transport_.rank()), problem);
}

void Call::require_one_each(std::size_t parts) const {
  if (parts != size()) throw failure(fmt::format("{} parts for {} ranks", parts, size()));
}

}  // namespace plumb::exec
