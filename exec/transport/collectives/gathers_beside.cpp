#include "exec/transport/collectives/gathers_beside.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "exec/transport/collectives/payloads.hpp"

namespace plumb::exec {
namespace {

std::size_t bytes_at(const std::vector<GathersBeside::PartList>& values, std::size_t position) {
  std::size_t bytes = 0;
  for (const GathersBeside::PartList& parts : values) bytes += parts.at(position).size();
  return bytes;
}

}  // namespace

GathersBeside::GathersBeside(Transport& transport, std::vector<int> group)
    : transport_(transport), group_(std::move(group)), place_(group_, transport.rank()) {}

void GathersBeside::start(std::vector<PartList> values) {
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t from = place_.before(distance);
    transport_.expect(group_[from], Channel::gathers, bytes_at(values, from), 1);
  }
  const Payload own = plain_memory(bytes_at(values, place_.position()));
  std::span<std::byte> rest = bytes_in(own);
  for (const PartList& parts : values) {
    const std::span<std::byte> part = parts[place_.position()];
    copy(part, rest);
    rest = rest.subspan(part.size());
  }
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    transport_.send(group_[place_.after(distance)], Channel::gathers, own);
  }
  gathers_.push_back(std::move(values));
}

void GathersBeside::finish(Clock::time_point deadline) {
  const std::vector<PartList> values = std::move(gathers_.front());
  gathers_.pop_front();
  Bytes received;
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t from = place_.before(distance);
    try {
      const auto [parts, arrived] = transport_.receive(group_[from], Channel::gathers, deadline);
      last_arrival_ = std::max(last_arrival_, arrived);
      std::span<std::byte> rest = bytes_in(parts);
      for (const PartList& into : values) {
        copy(rest.first(into[from].size()), into[from]);
        rest = rest.subspan(into[from].size());
      }
      received += Bytes{static_cast<std::int64_t>(parts.size)};
    } catch (const Stopped&) {
      throw;
    } catch (const RunError& error) {
      throw RunError(fmt::format("rank {}", transport_.rank()),
                     fmt::format("all-gather over ranks {}, waiting for rank {}: {}", fmt::join(group_, ", "),
                                 group_[from], error.problem()),
                     error.hint());
    }
  }
  transport_.count_received(group_, received);
}

}  // namespace plumb::exec
