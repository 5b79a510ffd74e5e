#include "common/base/stop.hpp"

#include <algorithm>

namespace plumb {

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

void Stop::check() const {
  if (ended()) throw Stopped();
}

}  // namespace plumb
