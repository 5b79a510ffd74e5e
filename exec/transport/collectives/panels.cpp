#include "exec/transport/collectives/panels.hpp"

#include <fmt/format.h>

#include <utility>

#include "exec/transport/collectives/payloads.hpp"

namespace plumb::exec {

BlockFromRoot::BlockFromRoot(Transport& transport, std::vector<int> group, std::size_t root,
                             std::span<const std::byte> own)
    : AtRoot(transport, std::move(group), root, own.size()) {
  if (is_root()) {
    call_.send_to_all(own);
  } else {
    call_.expect(root_, bytes_);
  }
}

Payload BlockFromRoot::receive(Clock::time_point deadline) {
  Payload block;
  call_.wait_until(deadline);
  call_.named("broadcast of a panel", [&] {
    if (is_root()) throw call_.failure("the root receives its own block");
    block = call_.receive(root_, bytes_);
  });
  return block;
}

SumAtRoot::SumAtRoot(Transport& transport, std::vector<int> group, std::size_t root, std::span<const std::byte> part)
    : AtRoot(transport, std::move(group), root, part.size()) {
  if (is_root()) {
    call_.expect_from_all(bytes_);
  } else {
    call_.send(root_, copy_of(part));
  }
}

void SumAtRoot::finish(std::span<std::byte> part, ElementType type, Clock::time_point deadline) {
  call_.wait_until(deadline);
  call_.named("sum of a panel", [&] {
    require_addable(part.size(), type);
    if (!is_root()) throw call_.failure(fmt::format("rank {} adds up, and not this one", group_[root_]));
    if (part.size() != bytes_) throw call_.failure(fmt::format("a part of {} bytes, not {}", part.size(), bytes_));
    add_received(part, call_.position(), call_.receive_from_all(bytes_), part, type);
  });
}

}  // namespace plumb::exec
