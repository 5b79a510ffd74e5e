#include "exec/transport/collectives/gathers_beside.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
    : transport_(transport), group_(std::move(group)), position_(position_in(group_, transport.rank())) {}

std::size_t GathersBeside::before(std::size_t distance) const {
  return (position_ + group_.size() - distance) % group_.size();
}

void GathersBeside::start(std::vector<PartList> values) {
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t from = before(distance);
    transport_.expect(group_[from], Channel::gathers, bytes_at(values, from), 1);
  }
  const Payload own = plain_memory(bytes_at(values, position_));
  std::span<std::byte> rest = bytes_in(own);
  for (const PartList& parts : values) {
    copy(parts[position_], rest);
    rest = rest.subspan(parts[position_].size());
  }
  // From the next one around: so that not all talk to the same first.
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    transport_.send(group_[(position_ + distance) % group_.size()], Channel::gathers, own);
  }
  gathers_.push_back(std::move(values));
}

void GathersBeside::finish(Clock::time_point deadline) {
  const std::vector<PartList> values = std::move(gathers_.front());
  gathers_.pop_front();
  Bytes received;
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t from = before(distance);
    try {
      const Payload parts = transport_.receive(group_[from], Channel::gathers, deadline).payload;
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
