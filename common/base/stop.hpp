// When work that takes long is told to end: by a flag, or because its time is over.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "common/base/error.hpp"

namespace plumb {

// Thrown by work that was told to end before it had an answer: nothing is known of what it was about.
struct Stopped : RunError {
  Stopped();
};

// Asked by the threads that work; the flag may be set by any other, or by a signal.
class Stop {
 public:
  Stop() = default;  // never
  Stop(const std::atomic<bool>* flag, std::optional<std::chrono::steady_clock::time_point> deadline)
      : flag_(flag), deadline_(deadline) {}

  [[nodiscard]] bool ended() const;
  // Throws Stopped if it has.
  void check() const;

 private:
  const std::atomic<bool>* flag_ = nullptr;
  std::optional<std::chrono::steady_clock::time_point> deadline_ = {};
};

// A loop's look at it, every few thousand turns: the clock costs more than a turn does.
class StopWatch {
 public:
  explicit StopWatch(const Stop* stop) : stop_(stop) {}
  // Throws Stopped.
  void turn() {
    if (stop_ != nullptr && (++turns_ & (turns_between - 1)) == 0) stop_->check();
  }

 private:
  static constexpr unsigned turns_between = 4096;
  const Stop* stop_;
  unsigned turns_ = 0;
};

}  // namespace plumb
