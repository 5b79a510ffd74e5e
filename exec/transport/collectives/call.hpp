// What a collective between hosts is made of: messages of one rank with those of its group.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// One collective of this rank, with its peers by their position in the group.
class Call {
 public:
  // `transport` and `group` must outlive this.
  Call(Transport& transport, std::span<const int> group)
      : transport_(transport), group_(group), place_(group, transport.rank()), waits_for_(place_.position()) {}

  // From now on.
  void wait_until(Clock::time_point deadline) { deadline_ = deadline; }

  // Throws with the collective's name and group what `body` throws, and counts what it has received.
  template <class Body>
  void named(const char* name, const Body& body) {
    try {
      body();
    } catch (const Stopped&) {
      throw;
    } catch (const FailedMeanwhile&) {
      throw;
    } catch (const RunError& error) {
      throw within(name, error);
    }
    transport_.count_received({group_.begin(), group_.end()}, std::exchange(received_, Bytes{}));
  }

  [[nodiscard]] std::size_t position() const { return place_.position(); }
  [[nodiscard]] std::size_t size() const { return group_.size(); }
  [[nodiscard]] std::size_t after(std::size_t distance) const { return place_.after(distance); }
  [[nodiscard]] std::size_t before(std::size_t distance) const { return place_.before(distance); }

  [[nodiscard]] std::size_t position_of(int rank) const;

  void expect(std::size_t from, std::size_t bytes) { transport_.expect(group_[from], Channel::collective, bytes, 1); }
  void send(std::size_t to, Payload payload) { transport_.send(group_[to], Channel::collective, std::move(payload)); }
  [[nodiscard]] Payload receive(std::size_t from, std::size_t bytes);

  // Of all that has been received.
  [[nodiscard]] Clock::time_point last_arrival() const { return last_arrival_; }

  // One copy, which all others get.
  void send_to_all(std::span<const std::byte> values);
  void expect_from_all(std::size_t bytes);
  // What all others have sent, by their position.
  [[nodiscard]] std::vector<Payload> receive_from_all(std::size_t bytes);

  [[nodiscard]] RunError failure(const std::string& problem) const;
  void require_one_each(std::size_t parts) const;

 private:
  // "over ranks 0, 2, 3, waiting for 12 bytes from rank 2".
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] RunError within(const char* name, const RunError& error) const;
  void go_on_until_message(int peer) const;

  Transport& transport_;
  std::span<const int> group_;
  Clock::time_point deadline_ = {};
  PlaceInGroup place_;
  std::size_t waits_for_;  // itself: nobody
  std::size_t bytes_ = 0;  // that it waits for
  Clock::time_point last_arrival_ = {};
  Bytes received_;  // not counted yet
};

}  // namespace plumb::exec
