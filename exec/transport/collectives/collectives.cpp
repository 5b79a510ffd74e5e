#include "exec/transport/collectives/collectives.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "exec/transport/collectives/blocks.hpp"
#include "exec/transport/collectives/call.hpp"
#include "exec/transport/collectives/payloads.hpp"
#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/collectives/sum.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t message_bytes = 512 << 10;  // of an all-reduce: measured, tests/bench/bench_collectives.cpp

template <class List>
void send_to_each(Call& call, const List& parts) {
  for (std::size_t distance = 1; distance < call.size(); ++distance) {
    call.send(call.after(distance), copy_of(parts[call.after(distance)]));
  }
}

template <class List>
void expect_around(Call& call, const List& parts) {
  for (std::size_t distance = 1; distance < call.size(); ++distance) {
    call.expect(call.before(1), parts[call.before(distance)].size());
  }
}

void begin_ring(Call& call, Payload own) {
  if (call.size() > 1) call.send(call.after(1), std::move(own));
}

// Each hands on what it gets, as it gets it.
template <class List>
void finish_ring(Call& call, const List& parts) {
  for (std::size_t distance = 1; distance < call.size(); ++distance) {
    const std::span<std::byte> part = parts[call.before(distance)];
    const Payload received = call.receive(call.before(1), part.size());
    if (distance + 1 < call.size()) call.send(call.after(1), received);
    copy(bytes_in(received), part);
  }
}

std::size_t width_of(ElementType type) { return static_cast<std::size_t>(element_bytes(type)); }

using PartList = std::vector<std::span<std::byte>>;

// The parts of each block.
std::vector<PartList> cut_into_blocks(std::span<std::byte> values, std::size_t ranks, std::size_t width) {
  std::vector<PartList> blocks;
  for (const std::size_t elements : blocks_of(values.size() / width, ranks, message_bytes / width)) {
    blocks.push_back(equal_parts(values.first(elements * width), ranks, width));
    values = values.subspan(elements * width);
  }
  return blocks;
}

}  // namespace

// Throws with the collective's name and group what `body` throws, and counts what it has received.
template <class Body>
void Collectives::run(const char* name, std::span<const int> group, Clock::time_point deadline, const Body& body) {
  Call call(transport_, group);
  call.wait_until(deadline);
  call.named(name, [&] { body(call); });
}

void Collectives::all_reduce(std::span<const int> group, std::span<std::byte> values, ElementType type,
                             Clock::time_point deadline) {
  run("all-reduce", group, deadline, [&](Call& call) {
    require_addable(values.size(), type);
    const std::vector<PartList> blocks = cut_into_blocks(values, call.size(), width_of(type));
    const auto own = [&](std::size_t block) { return blocks[block][call.position()]; };
    // Blocks overlap by one: while a block's sums go around, the next one's values are under way.
    call.expect_from_all(own(0).size());
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      if (block + 1 < blocks.size()) call.expect_from_all(own(block + 1).size());
      expect_around(call, blocks[block]);
    }
    send_to_each(call, blocks[0]);
    std::vector<Payload> received = call.receive_from_all(own(0).size());
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      const bool more = block + 1 < blocks.size();
      if (more) send_to_each(call, blocks[block + 1]);
      Payload sum = plain_memory(own(block).size());
      add_received(own(block), call.position(), received, bytes_in(sum), type);
      copy(bytes_in(sum), own(block));
      begin_ring(call, std::move(sum));
      if (more) received = call.receive_from_all(own(block + 1).size());
      finish_ring(call, blocks[block]);
    }
  });
}

void Collectives::all_gather(std::span<const int> group, Parts parts, Clock::time_point deadline) {
  run("all-gather", group, deadline, [&](Call& call) {
    call.require_one_each(parts.size());
    expect_around(call, parts);
    begin_ring(call, copy_of(parts[call.position()]));
    finish_ring(call, parts);
  });
}

void Collectives::reduce_scatter(std::span<const int> group, ConstParts parts, std::span<std::byte> sum,
                                 ElementType type, Clock::time_point deadline) {
  run("reduce-scatter", group, deadline, [&](Call& call) {
    call.require_one_each(parts.size());
    require_addable(sum.size(), type);
    const std::span<const std::byte> own = parts[call.position()];
    if (own.size() != sum.size()) {
      throw call.failure(fmt::format("a sum of {} bytes for a part of {}", sum.size(), own.size()));
    }
    call.expect_from_all(own.size());
    send_to_each(call, parts);
    add_received(own, call.position(), call.receive_from_all(own.size()), sum, type);
  });
}

void Collectives::broadcast(std::span<const int> group, int root, std::span<std::byte> values,
                            Clock::time_point deadline) {
  run("broadcast", group, deadline, [&](Call& call) {
    const std::size_t from = call.position_of(root);
    if (call.position() != from) {
      call.expect(from, values.size());
      copy(bytes_in(call.receive(from, values.size())), values);
    } else {
      call.send_to_all(values);
    }
  });
}

void Collectives::reduce(std::span<const int> group, int root, std::span<std::byte> values, ElementType type,
                         Clock::time_point deadline) {
  run("reduce", group, deadline, [&](Call& call) {
    require_addable(values.size(), type);
    const std::size_t to = call.position_of(root);
    if (call.position() != to) {
      call.send(to, copy_of(values));
    } else {
      call.expect_from_all(values.size());
      add_received(values, call.position(), call.receive_from_all(values.size()), values, type);
    }
  });
}

void Collectives::all_to_all(std::span<const int> group, ConstParts give, Parts take, Clock::time_point deadline) {
  run("all-to-all", group, deadline, [&](Call& call) {
    call.require_one_each(give.size());
    call.require_one_each(take.size());
    const std::size_t own = call.position();
    if (give[own].size() != take[own].size()) {
      throw call.failure(fmt::format("gives itself {} bytes and takes {}", give[own].size(), take[own].size()));
    }
    for (std::size_t distance = 1; distance < call.size(); ++distance) {
      call.expect(call.before(distance), take[call.before(distance)].size());
    }
    send_to_each(call, give);
    copy(give[own], take[own]);
    for (std::size_t distance = 1; distance < call.size(); ++distance) {
      const std::span<std::byte> part = take[call.before(distance)];
      copy(bytes_in(call.receive(call.before(distance), part.size())), part);
    }
  });
}

void Collectives::all_to_all(std::span<const int> group, std::span<const std::byte> give, std::span<std::byte> take,
                             Clock::time_point deadline) {
  (void)position_in(group, transport_.rank());
  if (give.size() % group.size() != 0 || take.size() % group.size() != 0) {
    throw RunError(fmt::format("rank {}", transport_.rank()),
                   fmt::format("all-to-all over ranks {}: {} bytes given and {} taken are no equal parts",
                               fmt::join(group, ", "), give.size(), take.size()));
  }
  all_to_all(group, equal_parts(give, group.size(), 1), equal_parts(take, group.size(), 1), deadline);
}

}  // namespace plumb::exec
