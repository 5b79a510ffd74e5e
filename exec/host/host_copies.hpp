// What went to the host's memory that counts apart, or came from there, and how long that took.
#pragma once

#include "common/base/units.hpp"

namespace plumb::exec {

struct HostCopies {
  Bytes bytes = {};
  Seconds time = {};
};
inline void operator+=(HostCopies& sum, const HostCopies& copies) {
  sum.bytes += copies.bytes;
  sum.time += copies.time;
}

}  // namespace plumb::exec
