// How far a check is, and whether it is to go on.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/base/program.hpp"
#include "common/base/stop.hpp"

namespace plumb::exec {

// What a check looks at while it goes on: the clock of its progress, and what ends it.
struct CheckWatch {
  Progress::Clock clock = std::chrono::steady_clock::now;
  Stop stop = {};
};

// Of all that one device does: its steps are as long as those of all ranks together.
class CheckProgress {
 public:
  CheckProgress(std::int64_t microbatches, const CheckWatch& watch)
      : progress_("checking against a single device: microbatches", watch.clock),
        stop_(watch.stop),
        total_(microbatches) {}
  // Throws plumb::Stopped.
  void add(int microbatches) {
    stop_.check();
    progress_.update(done_ += microbatches, total_);
  }

 private:
  Progress progress_;
  Stop stop_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace plumb::exec
