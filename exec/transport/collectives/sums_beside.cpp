#include "exec/transport/collectives/sums_beside.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/placement/collective.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/collectives/payloads.hpp"

namespace plumb::exec {

SumsBeside::SumsBeside(Transport& transport, std::vector<int> group, Gets gets)
    : transport_(transport), group_(std::move(group)), place_(group_, transport.rank()), gets_(gets) {}

void SumsBeside::start(std::span<float> values) {
  Sum sum{.parts = equal_parts(std::as_writable_bytes(values), group_.size(), sizeof(float)),
          .summands = std::vector<Payload>(group_.size())};
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t from = place_.before(distance);
    transport_.expect(group_[from], Channel::collective, sum.parts[place_.position()].size(), 1);
    if (gets_ == Gets::whole) transport_.expect(group_[from], Channel::sums, sum.parts[from].size(), 1);
  }
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    const std::size_t to = place_.after(distance);
    transport_.send(group_[to], Channel::collective, copy_of(sum.parts[to]));
  }
  sums_.push_back(std::move(sum));
}

void SumsBeside::progress() {
  if (!idle()) advance(0, nullptr);
}

void SumsBeside::finish(std::size_t count, Clock::time_point deadline) {
  if (!idle()) advance(count, &deadline);
}

// Of those behind the first `count`, and without a deadline of all: as far as it gets without waiting.
void SumsBeside::advance(std::size_t count, const Clock::time_point* deadline) {
  const auto deadline_of = [&](std::size_t place) { return ended_ + place < count ? deadline : nullptr; };
  try {
    while (added_ < sums_.size() && take_summands(sums_[added_], deadline_of(added_))) add_and_send(sums_[added_++]);
    while (added_ > 0 && take_sums(sums_.front(), deadline_of(0))) {
      sums_.pop_front();
      --added_;
      ++ended_;
    }
  } catch (const Stopped&) {
    throw;
  } catch (const RunError& error) {
    throw RunError(fmt::format("rank {}", transport_.rank()),
                   fmt::format("{} over ranks {}{}: {}",
                               name_of(gets_ == Gets::whole ? Collective::all_reduce : Collective::reduce_scatter),
                               fmt::join(group_, ", "), waits_for_, error.problem()),
                   error.hint());
  }
}

std::optional<Payload> SumsBeside::receive(std::size_t from, Channel channel, const Clock::time_point* deadline) {
  const int peer = group_[from];
  if (deadline == nullptr && !transport_.has_message(peer, channel)) return std::nullopt;
  waits_for_ = fmt::format(", waiting for rank {}", peer);
  auto [payload, arrived] = transport_.receive(peer, channel, deadline == nullptr ? Clock::now() : *deadline);
  last_arrival_ = std::max(last_arrival_, arrived);
  waits_for_.clear();
  transport_.count_received(group_, Bytes{static_cast<std::int64_t>(payload.size)});
  return payload;
}

bool SumsBeside::take_summands(Sum& sum, const Clock::time_point* deadline) {
  for (; sum.summands_from < group_.size(); ++sum.summands_from) {
    const std::size_t from = place_.before(sum.summands_from);
    std::optional<Payload> summand = receive(from, Channel::collective, deadline);
    if (!summand) return false;
    sum.summands[from] = *std::move(summand);
  }
  return true;
}

void SumsBeside::add_and_send(Sum& sum) {
  const std::span<std::byte> own = sum.parts[place_.position()];
  const Payload total = plain_memory(own.size());
  add_received(own, place_.position(), sum.summands, bytes_in(total), ElementType::fp32);
  copy(bytes_in(total), own);
  sum.summands.clear();
  if (gets_ == Gets::own_part) return;
  for (std::size_t distance = 1; distance < group_.size(); ++distance) {
    transport_.send(group_[place_.after(distance)], Channel::sums, total);
  }
}

bool SumsBeside::take_sums(Sum& sum, const Clock::time_point* deadline) {
  if (gets_ == Gets::own_part) return true;
  for (; sum.sums_from < group_.size(); ++sum.sums_from) {
    const std::size_t from = place_.before(sum.sums_from);
    const std::optional<Payload> total = receive(from, Channel::sums, deadline);
    if (!total) return false;
    copy(bytes_in(*total), sum.parts[from]);
  }
  return true;
}

}  // namespace plumb::exec
