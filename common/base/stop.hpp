// When work that takes long is told to end: by a flag, or because its time is over.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "common/base/error.hpp"

namespace plumb {

// Thrown by work that was told to end before it had an answer: nothing is known of what it was about.
struct Stopped : RunError {
  Stopped();
};

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

// So many seconds from now; none where that is later than the clock goes, or not a number.
[[nodiscard]] Deadline deadline_after(std::chrono::duration<double> seconds);

// Asked by the threads that work; the flag may be set by any other, or by a signal.
class Stop {
 public:
  Stop() = default;  // never
  Stop(const std::atomic<bool>* flag, Deadline deadline) : flag_(flag), deadline_(deadline) {}

  // The same, which calls `look` whenever it is asked, on the thread that asks: work that goes on shows it there.
  [[nodiscard]] Stop looked_at_by(std::function<void()> look) const {
    Stop same = *this;
    same.look_ = std::move(look);
    return same;
  }

  [[nodiscard]] bool has_deadline() const { return deadline_.has_value(); }
  [[nodiscard]] bool ended() const;
  // Throws Stopped if it has.
  void check() const;

 private:
  const std::atomic<bool>* flag_ = nullptr;
  Deadline deadline_ = {};
  std::function<void()> look_ = {};
};

// Lets the long loops of this thread ask a stop for as long as this lives: those of graphs, paths, memory over time and
// simulations, which are handed none.
class StopOnThread {
 public:
  // nullptr: none, as without this. The stop must outlive it.
  explicit StopOnThread(const Stop* stop);
  ~StopOnThread();
  StopOnThread(const StopOnThread&) = delete;
  StopOnThread& operator=(const StopOnThread&) = delete;

 private:
  const Stop* before_;
};

// One turn of such a loop; every few thousand of them look. Throws Stopped.
void look_at_stop();

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
