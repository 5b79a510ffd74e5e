// Small messages between the ranks of one host: sockets of the host (Unix domain), straight from rank to rank.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/device/clock.hpp"

namespace plumb::exec {

// Owns a file descriptor; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

// Rung once, it stays so: whoever awaits a link with it does not sleep any more.
class Bell {
 public:
  Bell();
  void ring() noexcept;
  [[nodiscard]] const Descriptor& descriptor() const { return descriptor_; }

 private:
  Descriptor descriptor_;
};

enum class Sent : std::uint8_t { yes, full, closed };

// One way, from one rank to another: whole messages, in order, each with the time at which it was sent. The kernel
// holds what was not received yet, as long as there is room.
class HostLink {
 public:
  explicit HostLink(Descriptor socket = Descriptor()) : socket_(std::move(socket)) {}

  explicit operator bool() const { return static_cast<bool>(socket_); }

  // Never waits.
  [[nodiscard]] Sent send(std::span<const std::byte> message) const;
  // Waits for room; returns when the link is closed, too.
  void await_room() const;
  // Lets `await_room` return, now and later; what was sent still arrives.
  void close_sends() const;

  // When the message was sent that is here now; nothing: none is. Throws RunError when the sender has gone, or when the
  // message has another size than `into`.
  [[nodiscard]] std::optional<Clock::time_point> receive(std::span<std::byte> into) const;
  // Sleeps until there is something to receive, the sender has gone, `bell` rings or `deadline` passes.
  void await_message(const Bell& bell, Clock::time_point deadline) const;

 private:
  Descriptor socket_;
};

// Where the links of a rank begin. The receiver opens a link, by the sender's name, before it lets the sender know that
// it expects something: so the sender finds the link there, and the receiver notices at once when the sender goes.
class HostLinks {
 public:
  // `run` is of this run alone on the host, and the same for its ranks. Throws RunError where the system refuses.
  HostLinks(std::string run, int rank);

  // On which `sender` sends from now on. `queue`: any number, of one link alone. Throws RunError when it has gone.
  [[nodiscard]] HostLink open_from(int sender, int queue) const;
  // That `receiver` has opened; nothing: it has not.
  [[nodiscard]] std::optional<HostLink> opened_by(int receiver, int queue);

 private:
  struct Opened {
    Descriptor socket;
    int receiver = -1;  // it has not said yet who it is
    int queue = -1;
  };

  std::string run_;
  int rank_;
  Descriptor listener_;
  std::mutex mutex_;
  std::vector<Opened> opened_;  // under the mutex: not asked for yet
};

}  // namespace plumb::exec
