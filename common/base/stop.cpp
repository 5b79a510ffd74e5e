#include "common/base/stop.hpp"

#include <algorithm>

namespace plumb {
namespace {

thread_local const Stop* stop_of_thread = nullptr;
thread_local unsigned turns_of_thread = 0;

}  // namespace

Stopped::Stopped() : RunError("work", "was told to end before it had an answer", "give it more time") {}

Deadline deadline_after(std::chrono::duration<double> seconds) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> most = std::chrono::steady_clock::time_point::max() - now;
  // A part of it, since the most is rounded as a floating-point number.
  if (!(seconds < most / 2)) return std::nullopt;
  return now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::max(seconds, -most / 2));
}

bool Stop::ended() const {
  if (look_) look_();
  if (flag_ != nullptr && *flag_) return true;
  return deadline_ && std::chrono::steady_clock::now() >= *deadline_;
}

StopOnThread::StopOnThread(const Stop* stop) : before_(stop_of_thread) { stop_of_thread = stop; }
StopOnThread::~StopOnThread() { stop_of_thread = before_; }

void look_at_stop() {
  constexpr unsigned turns_between = 4096;
  if (stop_of_thread != nullptr && (++turns_of_thread & (turns_between - 1)) == 0) stop_of_thread->check();
}

void Stop::check() const {
  if (ended()) throw Stopped();
}

}  // namespace plumb
