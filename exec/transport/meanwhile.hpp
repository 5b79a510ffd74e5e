// What a rank goes on with while it waits for its peers in a collective, or in a pause in place of work.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "common/base/error.hpp"
#include "exec/device/clock.hpp"

namespace plumb::exec {

// Between two looks at what has come, a part of the wait so far: cores are others' meanwhile, where there are fewer
// than ranks.
[[nodiscard]] inline Clock::duration until_next_look(Clock::time_point waits_since) {
  constexpr int looks_in_a_wait = 16;
  constexpr Clock::duration shortest = std::chrono::microseconds(20);
  constexpr Clock::duration longest = std::chrono::microseconds(100);
  return std::clamp((Clock::now() - waits_since) / looks_in_a_wait, shortest, longest);
}

// What it failed by: not a failure of what it waits in.
class FailedMeanwhile final : public RunError {
 public:
  using RunError::RunError;
};

// What tells it: a transport.
class GoesOnMeanwhile {
 public:
  // Called over and over while a message of a collective is not there yet; it neither waits nor makes a collective.
  // Empty: nothing.
  virtual void set_meanwhile(std::function<void()> work) { meanwhile_ = std::move(work); }
  [[nodiscard]] virtual const std::function<void()>& meanwhile() const { return meanwhile_; }

 private:
  std::function<void()> meanwhile_;
};

// As long as this is there.
class Meanwhile {
 public:
  // `tells` must outlive this.
  Meanwhile(GoesOnMeanwhile& tells, std::function<void()> work) : tells_(tells) {
    tells_.set_meanwhile(std::move(work));
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile() { tells_.set_meanwhile({}); }

 private:
  GoesOnMeanwhile& tells_;
};

}  // namespace plumb::exec
