// Where every rank of this process stands, and a thread that notices when one stands there for too long.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/layout/layout.hpp"
#include "common/schedule/schedule.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// A place in a rank's program. Before the first and after the last action of a step `action` is not an index.
struct Position {
  static constexpr std::int32_t before = -1;
  static constexpr std::int32_t after = INT32_MAX;

  std::int32_t step = 0;
  std::int32_t action = before;
  bool operator==(const Position&) const = default;
};

// "step 2, 3F7", "before warm-up step 1" (step_name). `rank`: of the pipeline; `warm_up`: steps of the run.
[[nodiscard]] std::string describe(const Position& position, const Schedule& lowered, int rank, int warm_up = 0);

// One line per rank of the layout, in schedule terms: what it does or waits for, and the cycle if ranks wait for each
// other.
[[nodiscard]] std::string describe_waits(const Schedule& lowered, const Layout& layout,
                                         const std::vector<Position>& positions, int warm_up = 0);

class Watchdog {
 public:
  struct Actions {
    std::function<void(int rank, const Position& position, Seconds since)>
        on_hang;                     // once per position past its deadline
    std::function<void()> on_stuck;  // still not destroyed `grace` after the first hang: nothing but exiting helps
    Seconds grace{10};
  };

  // The actions run on the watchdog's own thread.
  Watchdog(int ranks, Actions actions);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // Called by the rank's thread; costs a few stores. Both moments are of time without pauses (exec/host/pauses.hpp).
  void enter(int rank, const Position& position, Clock::time_point now, Clock::time_point deadline);
  [[nodiscard]] Position position(int rank) const;
  [[nodiscard]] std::vector<Position> positions() const;

 private:
  struct Slot {
    std::atomic<std::int64_t> position{0};
    std::atomic<Clock::rep> entered{0};
    std::atomic<Clock::rep> deadline{INT64_MAX};
  };

  void watch();

  std::vector<Slot> slots_;
  Actions on_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace plumb::exec
