#include "exec/run/step_moments.hpp"

#include <algorithm>

#include "exec/transport/launch_plan/launch_plan.hpp"

namespace plumb::exec {

void StepMoments::begin_step(std::size_t actions) {
  all_.assign(actions, {});
  ended_ = 0;
}

void StepMoments::take(const std::vector<Launched>& launched) {
  ended_ = 0;  // what had none counted as ended
  for (const Launched& batch : launched) {
    if (batch.batch->call) continue;  // a part of its action, which has moments of its own
    for (const LaunchOperation& operation : batch.batch->operations) {
      ActionMoments& of = all_.at(static_cast<std::size_t>(operation.index));
      of.begin = batch.begin;
      of.end = batch.end;
    }
  }
}

std::size_t StepMoments::ended() {
  while (ended_ < all_.size() && has_come(all_[ended_].end)) ++ended_;
  return ended_;
}

void StepMoments::write_times(const Device& device, std::vector<Event>& events) {
  for (std::size_t index = 0; index < events.size(); ++index) {
    const ActionMoments& moments = all_.at(index);
    Event& event = events[index];
    if (moments.begin) event.start = device.time_of(*moments.begin);
    if (moments.end) event.end = device.time_of(*moments.end);
    if (moments.waiting_since) {
      event.waited = std::max(Seconds{0}, event.end - device.time_of(*moments.waiting_since));
    }
    if (moments.beside_since) {
      event.beside = std::max(Seconds{0}, event.start - device.time_of(*moments.beside_since));
    }
  }
  all_.clear();
}

}  // namespace plumb::exec
