#include "common/base/stop.hpp"

namespace plumb {

Stopped::Stopped() : RunError("work", "was told to end before it had an answer", "give it more time") {}

bool Stop::ended() const {
  if (flag_ != nullptr && *flag_) return true;
  return deadline_ && std::chrono::steady_clock::now() >= *deadline_;
}

void Stop::check() const {
  if (ended()) throw Stopped();
}

}  // namespace plumb
