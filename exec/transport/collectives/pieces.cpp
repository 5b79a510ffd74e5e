#include "exec/transport/collectives/pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exec/transport/collectives/payloads.hpp"

namespace plumb::exec {

GatherInPieces::GatherInPieces(Transport& transport, std::vector<int> group, std::span<const std::byte> own)
    : group_(std::move(group)), call_(transport, group_), bytes_(own.size()) {
  if (call_.size() == 1) return;
  for (std::size_t distance = 1; distance < call_.size(); ++distance) call_.expect(call_.before(1), bytes_);
  call_.send(call_.after(1), copy_of(own));
}

Payload GatherInPieces::next(Clock::time_point deadline) {
  Payload part;
  call_.wait_until(deadline);
  call_.named("all-gather in pieces", [&] {
    if (distance_ == call_.size()) throw call_.failure("all parts have come");
    part = call_.receive(call_.before(1), bytes_);
    if (++distance_ < call_.size()) call_.send(call_.after(1), part);
  });
  return part;
}

ScatterInPieces::ScatterInPieces(Transport& transport, std::vector<int> group, std::size_t bytes)
    : group_(std::move(group)), call_(transport, group_), bytes_(bytes), given_(group_.size()) {
  given_[call_.position()] = true;
  call_.expect_from_all(bytes_);
}

void ScatterInPieces::give(std::size_t to, std::span<const std::byte> part) {
  call_.named("reduce-scatter in pieces", [&] {
    if (part.size() != bytes_) throw call_.failure(fmt::format("a part of {} bytes, not {}", part.size(), bytes_));
    if (given_.at(to)) throw call_.failure(fmt::format("a second part for rank {}", group_[to]));
    given_[to] = true;
    call_.send(to, copy_of(part));
  });
}

void ScatterInPieces::finish(std::span<const std::byte> own, std::span<std::byte> sum, ElementType type,
                             Clock::time_point deadline) {
  call_.wait_until(deadline);
  call_.named("reduce-scatter in pieces", [&] {
    require_addable(sum.size(), type);
    if (own.size() != bytes_ || sum.size() != bytes_) {
      throw call_.failure(fmt::format("parts of {} bytes, not {} and {}", bytes_, own.size(), sum.size()));
    }
    const auto left_out = std::ranges::find(given_, false);
    if (left_out != given_.end()) {
      throw call_.failure(fmt::format("no part for rank {}", group_[left_out - given_.begin()]));
    }
    add_received(own, call_.position(), call_.receive_from_all(bytes_), sum, type);
  });
}

}  // namespace plumb::exec
