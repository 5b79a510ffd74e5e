// Time without the pauses of this process: whoever was stopped (Ctrl-Z, SIGSTOP, a suspended host) has not waited.
#pragma once

#include <chrono>
#include <optional>

#include "common/base/error.hpp"
#include "exec/device/clock.hpp"

namespace plumb::exec {

// From the moments at which somebody looks at the clock who means to do so every 50 ms: what a look is late by, beyond
// what a busy host may do to it, is a pause.
class PauseCount {
 public:
  static constexpr std::chrono::milliseconds look_every{50};
  static constexpr std::chrono::milliseconds longest_gap{250};

  void look(Clock::time_point now);
  void stop_looking() { last_look_.reset(); }

  // `now` less all pauses until then, the one from which nobody has looked yet too; never goes back.
  [[nodiscard]] Clock::time_point unpaused(Clock::time_point now) const;

 private:
  [[nodiscard]] Clock::duration since_look(Clock::time_point now) const;

  Clock::duration paused_{0};
  std::optional<Clock::time_point> last_look_;
};

// Of this process. While no PauseWatch lives, no pause is noticed. Deadlines of waits are of this time.
[[nodiscard]] Clock::time_point unpaused(Clock::time_point now);
[[nodiscard]] inline Clock::time_point unpaused_now() { return unpaused(Clock::now()); }
[[nodiscard]] bool has_passed(Clock::time_point deadline);
// What the clock says at `deadline` if no more pauses come, for calls that sleep until a moment: at the latest in an
// hour, so that it can be counted with. Who wakes looks again whether the deadline has passed.
[[nodiscard]] Clock::time_point wake_at(Clock::time_point deadline);

// What a call waited for has not come in time: whoever set the deadline may know how to have a longer one.
class PastDeadline : public RunError {
 public:
  explicit PastDeadline(const RunError& error) : RunError(error) {}
};

// Lives with a thread that calls `look` every PauseCount::look_every.
class PauseWatch {
 public:
  PauseWatch();
  PauseWatch(const PauseWatch&) = delete;
  PauseWatch& operator=(const PauseWatch&) = delete;
  ~PauseWatch();

  void look() const;
};

}  // namespace plumb::exec
