// Messages of a rank between the calls of its runner and their launch, where they move on streams.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "common/base/error.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/receive_buffers.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Of each peer and direction, in the order of the schedule. What is evicted and loaded has ParcelLines.
class MessageLines {
 public:
  // `rank`: for errors. `buffers` must outlive this.
  MessageLines(int rank, ReceiveBuffers& buffers) : rank_(rank), buffers_(buffers) {}

  // Kept until it is launched.
  void send(int peer, Channel channel, Payload payload);
  // Throws RunError where none has been handed over for `operation`.
  [[nodiscard]] Payload take_to_send(const LaunchOperation& operation);

  void expect(int peer, Channel channel, std::size_t bytes, int count);
  // To receive into. Throws RunError for an operation that is not expected.
  [[nodiscard]] Payload take_buffer(const LaunchOperation& operation);

  // The next of its peer: with its `ready` it can be received.
  void launched(const LaunchOperation& operation, Payload payload);
  // Throws RunError for one that has not been launched.
  [[nodiscard]] Payload receive(int peer, Channel channel);

 private:
  struct Line {
    std::deque<Payload> to_send;         // handed over, not launched
    std::deque<std::size_t> to_receive;  // expected, not launched: bytes
    std::deque<Payload> received;        // launched, not taken by the rank
  };

  [[nodiscard]] Line& line_of(const LaunchOperation& operation);
  [[nodiscard]] RunError failure(const std::string& problem) const;

  int rank_;
  ReceiveBuffers& buffers_;
  std::map<std::pair<int, Channel>, Line> lines_;
};

}  // namespace plumb::exec
