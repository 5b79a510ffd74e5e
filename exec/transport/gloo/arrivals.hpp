// What a queue's thread has received for its rank, in order, and the rank's wait for it.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "exec/host/pauses.hpp"
#include "exec/transport/ending.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// `Item` has a member `arrived`, as Received has.
template <class Item>
class Arrivals {
 public:
  explicit Arrivals(Ending& ending) : ending_(ending) {}

  // Of the queue's thread: the next item, or why there will be no more.
  void put(Item item) {
    {
      const std::scoped_lock lock(ending_.mutex);
      items_.push_back(std::move(item));
    }
    ending_.changed.notify_all();
  }
  void lose(std::string problem) {
    {
      const std::scoped_lock lock(ending_.mutex);
      lost_ = std::move(problem);
    }
    ending_.changed.notify_all();
  }

  [[nodiscard]] bool any() {
    const std::scoped_lock lock(ending_.mutex);
    return !items_.empty();
  }

  // Waits for the oldest. Throws what ends the run, and RunError when the peer is lost or the deadline has passed: what
  // the two say is made only then.
  template <class Lost, class Late>
  [[nodiscard]] Item take(Clock::time_point deadline, const Lost& lost, const Late& late) {
    std::unique_lock lock(ending_.mutex);
    const bool waited = items_.empty();
    while (items_.empty()) {
      ending_.throw_if_over();
      if (lost_) throw RunError(where(), fmt::format("{} ({})", lost(), *lost_));
      (void)ending_.changed.wait_until(lock, wake_at(deadline));
      if (items_.empty() && has_passed(deadline)) {
        throw PastDeadline(RunError(where(), late()));
      }
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    if (waited) item.arrived = Clock::now();
    return item;
  }

 private:
  [[nodiscard]] std::string where() const { return fmt::format("rank {}", ending_.rank); }

  Ending& ending_;
  std::deque<Item> items_;           // under the ending's mutex
  std::optional<std::string> lost_;  // under the ending's mutex
};

}  // namespace plumb::exec
