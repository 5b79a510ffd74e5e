#include "exec/host/pauses.hpp"

#include <algorithm>
#include <mutex>

namespace plumb::exec {
namespace {

struct OfProcess {
  std::mutex mutex;
  PauseCount count;
  int watches = 0;
};

OfProcess& of_process() {
  static OfProcess all;
  return all;
}

}  // namespace

Clock::duration PauseCount::since_look(Clock::time_point now) const {
  if (!last_look_) return Clock::duration{0};
  return std::max<Clock::duration>(now - *last_look_ - longest_gap, Clock::duration{0});
}

void PauseCount::look(Clock::time_point now) {
  paused_ += since_look(now);
  last_look_ = now;
}

Clock::time_point PauseCount::unpaused(Clock::time_point now) const { return now - paused_ - since_look(now); }

Clock::time_point unpaused(Clock::time_point now) {
  const std::scoped_lock lock(of_process().mutex);
  return of_process().count.unpaused(now);
}

bool has_passed(Clock::time_point deadline) { return unpaused_now() >= deadline; }

Clock::time_point wake_at(Clock::time_point deadline) {
  const Clock::time_point now = Clock::now();
  return now + std::clamp<Clock::duration>(deadline - unpaused(now), Clock::duration{0}, std::chrono::hours(1));
}

PauseWatch::PauseWatch() {
  const std::scoped_lock lock(of_process().mutex);
  if (++of_process().watches == 1) of_process().count.look(Clock::now());
}

PauseWatch::~PauseWatch() {
  const std::scoped_lock lock(of_process().mutex);
  if (--of_process().watches == 0) of_process().count.stop_looking();
}

void PauseWatch::look() const {
  const std::scoped_lock lock(of_process().mutex);
  of_process().count.look(Clock::now());
}

}  // namespace plumb::exec
