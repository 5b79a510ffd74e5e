// Sums over a group of ranks that go on beside the rank's own work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// All-reduces of fp32 values, as Collectives::all_reduce makes them: the same bits, the same bytes received (parts by
// equal_parts: each rank adds up its own, from all others, and sends the sum to all others), counted alike. Here the
// rank never waits for them until it must: what has come is taken on whenever it looks.
//
// Of one rank, on its thread, like its transport. All ranks of `group` (ascending, this one among them) start the same
// sums in the same order; meanwhile they make no other collectives with each other.
class SumsBeside {
 public:
  // What each rank gets: the whole sum, or as of a reduce-scatter its own part by equal_parts.
  enum class Gets : std::uint8_t { whole, own_part };

  // `transport`, whose Channel::collective and Channel::sums this uses, must outlive this.
  SumsBeside(Transport& transport, std::vector<int> group, Gets gets = Gets::whole);

  // In place: until `finish` has returned nobody else touches the values.
  void start(std::span<float> values);
  [[nodiscard]] std::size_t started() const { return ended_ + sums_.size(); }  // so many so far

  // Adds what has come and hands it on. Never waits. Throws as Transport::receive.
  void progress();

  // Waits for as many as that of those that were started, from the first on. Throws as Collectives does.
  void finish(std::size_t count, Clock::time_point deadline);
  void finish(Clock::time_point deadline) { finish(started(), deadline); }

  // When the last of what others have sent had come, of what was taken so far.
  [[nodiscard]] Clock::time_point last_arrival() const { return last_arrival_; }

  [[nodiscard]] bool idle() const { return sums_.empty(); }

 private:
  struct Sum {
    std::vector<std::span<std::byte>> parts;  // by position in the group, as the next
    std::vector<Payload> summands;            // of this rank's part, what has come
    std::size_t summands_from = 1;            // how far away the next one stands that has to come
    std::size_t sums_from = 1;                // likewise of a part's sum
  };

  // Nothing where there is no deadline, and no message yet.
  [[nodiscard]] std::optional<Payload> receive(std::size_t from, Channel channel, const Clock::time_point* deadline);
  void advance(std::size_t count, const Clock::time_point* deadline);
  [[nodiscard]] bool take_summands(Sum& sum, const Clock::time_point* deadline);
  [[nodiscard]] bool take_sums(Sum& sum, const Clock::time_point* deadline);
  void add_and_send(Sum& sum);

  Transport& transport_;
  std::vector<int> group_;
  PlaceInGroup place_;
  Gets gets_;
  std::deque<Sum> sums_;   // that have not ended
  std::size_t ended_ = 0;  // before these
  std::size_t added_ = 0;  // of these, from the oldest: this rank's part is added and sent
  Clock::time_point last_arrival_ = {};
  std::string waits_for_;  // for errors
};

}  // namespace plumb::exec
