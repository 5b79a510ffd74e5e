#include "exec/transport/ending.hpp"

#include "exec/transport/transport.hpp"

namespace plumb::exec {

void Ending::fail(const std::string& problem) {
  const std::scoped_lock lock(mutex);
  if (failure || stop_reason) return;
  failure = problem;
  to_announce = "rank " + std::to_string(rank) + ": " + problem;
  changed.notify_all();
  over.ring();
}

void Ending::stop(const std::string& reason, bool announce) {
  const std::scoped_lock lock(mutex);
  if (announce && !to_announce) to_announce = reason;
  if (!stop_reason) stop_reason = reason;
  changed.notify_all();
  over.ring();
}

void Ending::throw_if_over() const {
  if (failure) throw RunError("rank " + std::to_string(rank), *failure);
  if (stop_reason) throw Stopped(*stop_reason);
}

}  // namespace plumb::exec
