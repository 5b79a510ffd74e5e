// The activities that are under way, each in a slot that is used again when it has ended. Internal.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "sim/engine.hpp"
#include "sim/paths.hpp"
#include "sim/simgrid_versions.hpp"

namespace plumb::sim {

inline constexpr std::size_t no_slot = std::numeric_limits<std::size_t>::max();

// An activity that has all that it uses to itself is timed: its end is known when it starts (no device and no port
// changes its speed), and SimGrid need not know of it. It becomes a fluid if another one comes to one of its
// resources before that end.
struct Slot {
  ActivityId id = 0;
  int from = 0;  // of a computation both are its rank
  int to = 0;
  Path path = {};    // of a computation just its device; of what nothing contends with empty
  double begin = 0;  // by SimGrid's clock, after the latency; while it is timed
  double end = 0;
  s4u::ActivityPtr fluid = {};  // none while it is timed
  bool held = false;            // waits for its begin, or for what stands still; `end` is then the time that is left
};

// Of one thing that activities contend for.
struct Resource {
  bool shared = false;  // cores of several ranks: all is fluid from the start
  int fluids = 0;
  std::size_t timed = no_slot;
};

class Slots {
 public:
  [[nodiscard]] Slot& operator[](std::size_t slot) { return all_[slot]; }
  [[nodiscard]] const Slot& operator[](std::size_t slot) const { return all_[slot]; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }  // free ones too
  [[nodiscard]] bool all_free() const { return free_.size() == all_.size(); }

  [[nodiscard]] std::size_t keep(Slot activity) {
    if (free_.empty()) {
      free_.push_back(all_.size());
      all_.emplace_back();
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    all_[slot] = std::move(activity);
    return slot;
  }
  void set_free(std::size_t slot) {
    all_[slot].end = 0;  // no alarm that is left over is its
    free_.push_back(slot);
  }

 private:
  std::vector<Slot> all_;
  std::vector<std::size_t> free_;
};

}  // namespace plumb::sim
