// How far a check is.
#pragma once

#include <cstdint>

#include "common/base/program.hpp"

namespace plumb::exec {

// Of all that one device does: its steps are as long as those of all ranks together.
class CheckProgress {
 public:
  CheckProgress(std::int64_t microbatches, const Progress::Clock& clock)
      : progress_("checking against a single device: microbatches", clock), total_(microbatches) {}
  void add(int microbatches) { progress_.update(done_ += microbatches, total_); }

 private:
  Progress progress_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace plumb::exec
