// Counts requests to end a program, from signal handlers too.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>

namespace plumb {

// Programs that end a job often signal the process and then its whole group, as timeout(1) does: signals within a
// second of the last request are the same one.
class EndRequests {
 public:
  // Takes a signal; returns how many requests there are. Async-signal-safe.
  int take() {
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t now_ns = std::int64_t{now.tv_sec} * second_ns + now.tv_nsec;
    std::int64_t last_ns = last_ns_;  // handlers may run on several threads at once
    do {
      if (last_ns != never && now_ns - last_ns < second_ns) return std::max<int>(1, count_);
    } while (!last_ns_.compare_exchange_weak(last_ns, now_ns));
    return ++count_;
  }
  [[nodiscard]] int count() const { return count_; }
  void reset() {
    count_ = 0;
    last_ns_ = never;
  }

 private:
  static constexpr std::int64_t second_ns = 1'000'000'000;
  static constexpr std::int64_t never = 0;
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
                "a signal handler writes them");
  std::atomic<int> count_ = 0;
  std::atomic<std::int64_t> last_ns_ = never;
};

}  // namespace plumb
