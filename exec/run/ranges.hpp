// Named ranges that NVIDIA's profilers show, as PyTorch's pipelining names them: "PP:" and the action.
#pragma once

#include "common/schedule/action.hpp"

namespace plumb::exec {

// From construction to destruction, on the thread that makes it. Nothing where NVTX's header was not found.
class Range {
 public:
  explicit Range(const Action& action);
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range();
};

}  // namespace plumb::exec
