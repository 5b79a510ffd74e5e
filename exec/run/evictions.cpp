#include "exec/run/evictions.hpp"

#include <algorithm>

#include "common/base/error.hpp"

namespace plumb::exec {

Evictions::Evictions(const Schedule& lowered, Transport& transport, StageOf stage_of, Moved moved)
    : lowered_(lowered),
      transport_(transport),
      stage_of_(std::move(stage_of)),
      moved_(std::move(moved)),
      rank_(transport.rank()),
      index_(index_actions(lowered)) {}

void Evictions::on_device(Stream& compute, StepMoments& moments) { device_.emplace(OnDevice{compute, moments}); }

void Evictions::begin_step(std::vector<Event>& events) {
  events_ = &events;
  coming_.clear();
  kept_for_partner_.clear();
  loaded_.clear();
  // A rank makes room for itself at its EVICT: the partner's must be there. Only LOAD brings nothing before its place.
  for (const Action& action : lowered_.actions[static_cast<std::size_t>(rank_)]) {
    if (action.kind == ActionKind::evict && !is_own(action)) transport_.expect_parcels(peer_of(action), 1);
  }
}

void Evictions::end_step() const {
  if (!coming_.empty()) throw RunError("", to_string(coming_.front().action) + " was never needed");
  if (!kept_for_partner_.empty()) throw RunError("", "activations of a partner were never loaded back");
}

bool Evictions::is_own(const Action& eviction) const {
  return rank_of(lowered_, eviction.stage, eviction.microbatch) == rank_;
}

bool Evictions::sends(const Action& eviction) const { return sends_activations(lowered_, rank_, eviction); }

int Evictions::peer_of(const Action& eviction) const {
  if (!is_own(eviction)) return rank_of(lowered_, eviction.stage, eviction.microbatch);
  const std::int32_t other = index_.find_partner(eviction);
  if (other == nowhere) throw RunError("", "no other rank has " + to_string(eviction));
  return index_.rank_at(other);
}

void Evictions::perform(Event& event) {
  event.peer = peer_of(event.action);
  if (sends(event.action)) {
    send(event);
    event.end = seconds_of(Clock::now());
    return;
  }
  event.end = event.start;
  if (device_) device_->moments[events_->size()].begin = device_->compute.record();
  if (is_own(event.action)) transport_.expect_parcels(event.peer, 1);
  coming_.push_back({.action = event.action, .peer = event.peer, .event = events_->size()});
}

void Evictions::send(Event& event) {
  const Action& action = event.action;
  Parcel parcel;
  if (is_own(action)) {
    parcel = stage_of_(action).evict(action.microbatch);
    if (device_) {
      const MomentPtr ready = device_->compute.record();
      for (Payload& part : parcel) part.ready = ready;
    }
    // The room is free at once; what comes back counts from where its own rank takes it.
    count_as(event.peer, parcel);
  } else {
    auto node = kept_for_partner_.extract({action.stage, action.microbatch});
    if (node.empty()) throw RunError("", "what is to be loaded was not evicted to here");
    parcel = std::move(node.mapped());
  }
  event.bytes = bytes_of(parcel);
  if (device_ && !parcel.empty()) {
    device_->moments[events_->size()] = {.begin = parcel.back().ready, .end = parcel.back().ready};
  }
  transport_.send_parcel(event.peer, std::move(parcel));
}

std::optional<std::size_t> Evictions::awaited_before(const Action& action) const {
  const bool loads = action.kind == ActionKind::load && sends(action);
  if (coming_.empty() || !(loads || is_compute(action.kind))) return std::nullopt;
  const Action wanted{loads ? ActionKind::evict : ActionKind::load, action.stage, action.microbatch};
  const bool comes = std::any_of(coming_.begin(), coming_.end(), [&](const Coming& c) { return c.action == wanted; });
  return comes ? std::optional(coming_.front().event) : std::nullopt;
}

void Evictions::take_arrived() {
  while (!coming_.empty() && transport_.has_parcel(coming_.front().peer)) take_oldest(Clock::time_point::max());
}

void Evictions::take_oldest(Clock::time_point deadline) {
  const Coming coming = coming_.front();
  const Seconds waiting_since = seconds_of(Clock::now());
  MomentPtr since = device_ ? device_->compute.record() : nullptr;
  ReceivedParcel received = transport_.receive_parcel(coming.peer, deadline);
  count_as(rank_, received.parcel);
  Event& event = (*events_)[coming.event];
  event.bytes = bytes_of(received.parcel);
  event.end = seconds_of(received.arrived);  // perhaps before its place
  event.waited = std::max(Seconds{0}, event.end - waiting_since);
  if (device_ && !received.parcel.empty()) {
    ActionMoments& moments = device_->moments[coming.event];
    moments.end = received.parcel.back().ready;
    moments.waiting_since = std::move(since);
  }
  if (is_own(coming.action)) {
    load(coming.action, std::move(received.parcel));
  } else {
    kept_for_partner_[{coming.action.stage, coming.action.microbatch}] = std::move(received.parcel);
  }
  coming_.pop_front();
}

void Evictions::load(const Action& action, Parcel parcel) {
  if (device_ && !parcel.empty()) loaded_[{action.stage, action.microbatch}] = parcel.back().ready;
  stage_of_(action).load(action.microbatch, std::move(parcel));
}

void Evictions::wait_for_loaded(const Action& action) {
  const auto node = loaded_.extract({action.stage, action.microbatch});
  if (!node.empty()) device_->compute.wait(node.mapped());
}

void Evictions::count_as(int rank, const Parcel& parcel) const {
  if (!moved_) return;
  for (const Payload& part : parcel) moved_(part.data, rank);
}

}  // namespace plumb::exec
