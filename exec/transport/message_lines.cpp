#include "exec/transport/message_lines.hpp"

#include <string>

#include "exec/transport/take_oldest.hpp"

namespace plumb::exec {
namespace {

Channel channel_of(const LaunchOperation& operation) {
  return goes_forward(operation.action.kind) ? Channel::forward : Channel::backward;
}

}  // namespace

RunError MessageLines::failure(const std::string& problem) const {
  return RunError("rank " + std::to_string(rank_), problem);
}

MessageLines::Line& MessageLines::line_of(const LaunchOperation& operation) {
  return lines_[{operation.peer, channel_of(operation)}];
}

void MessageLines::send(int peer, Channel channel, Payload payload) {
  lines_[{peer, channel}].to_send.push_back(std::move(payload));
}

Payload MessageLines::take_to_send(const LaunchOperation& operation) {
  auto& waiting = line_of(operation).to_send;
  if (waiting.empty()) throw failure(to_string(operation.action) + " has not been handed over");
  return take_oldest(waiting);
}

void MessageLines::expect(int peer, Channel channel, std::size_t bytes, int count) {
  auto& expected = lines_[{peer, channel}].to_receive;
  expected.insert(expected.end(), static_cast<std::size_t>(count), bytes);
}

Payload MessageLines::take_buffer(const LaunchOperation& operation) {
  auto& expected = line_of(operation).to_receive;
  if (expected.empty()) throw failure(to_string(operation.action) + " is not expected");
  return buffers_.take(operation.peer, channel_of(operation), take_oldest(expected));
}

void MessageLines::launched(const LaunchOperation& operation, Payload payload) {
  line_of(operation).received.push_back(std::move(payload));
}

Payload MessageLines::receive(int peer, Channel channel) {
  auto& received = lines_[{peer, channel}].received;
  if (received.empty()) {
    throw failure("takes a message of rank " + std::to_string(peer) + " that has not been launched");
  }
  return take_oldest(received);
}

}  // namespace plumb::exec
