// A rank's part in evictions: hands activations to a partner, keeps a partner's, and takes what comes when it comes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/schedule/action_index.hpp"
#include "common/timeline/timeline.hpp"
#include "exec/run/step_moments.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// EVICT and LOAD stand in two lists each. The sending half hands over at once; a receiving half that the rank has
// passed only waits where its parcel is needed: LOAD by the backward, EVICT by the LOAD that sends it back.
class Evictions {
 public:
  using StageOf = std::function<Stage&(const Action& action)>;
  using Moved = std::function<void(const std::byte* data, int to_rank)>;  // may be empty

  Evictions(const Schedule& lowered, Transport& transport, StageOf stage_of, Moved moved);

  // On an asynchronous device: what is evicted was computed on `compute`, and when is written down in `moments`.
  void on_device(Stream& compute, StepMoments& moments);

  // `events` are those of the step, in the order of the rank's list; they stay where they are.
  void begin_step(std::vector<Event>& events);
  void end_step() const;

  // Either half of `event`, the next to be added to the step's. What a sending half needs must be here.
  void perform(Event& event);

  // Where in the rank's list the oldest receiving half stands that must be taken before `action`, if there is one.
  [[nodiscard]] std::optional<std::size_t> awaited_before(const Action& action) const;
  void take_oldest(Clock::time_point deadline);
  // What is here already.
  void take_arrived();

  // On an asynchronous device: `action` starts there after the bytes that were loaded for it have come.
  void wait_for_loaded(const Action& action);

 private:
  struct OnDevice {
    Stream& compute;
    StepMoments& moments;
  };

  struct Coming {
    Action action;
    int peer = -1;
    std::size_t event = 0;  // its place
  };

  [[nodiscard]] bool is_own(const Action& eviction) const;
  [[nodiscard]] bool sends(const Action& eviction) const;
  [[nodiscard]] int peer_of(const Action& eviction) const;
  void send(Event& event);
  void count_as(int rank, const Parcel& parcel) const;
  void load(const Action& action, Parcel parcel);

  const Schedule& lowered_;
  Transport& transport_;
  StageOf stage_of_;
  Moved moved_;
  int rank_;
  ActionIndex index_;
  std::vector<Event>* events_ = nullptr;
  std::deque<Coming> coming_;                                                 // in the order of the list
  std::map<std::pair<std::int32_t, std::int32_t>, Parcel> kept_for_partner_;  // by stage and microbatch
  std::optional<OnDevice> device_;                                            // empty: it does everything at once
  std::map<std::pair<std::int32_t, std::int32_t>, MomentPtr> loaded_;         // when it is there, by the same
};

}  // namespace plumb::exec
