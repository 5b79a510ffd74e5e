// How long communication of a rank takes, and how much of that its computing hides.
#pragma once

#include "common/base/units.hpp"

namespace plumb {

// Of a rank: communication on its way to it or over it, and of that, while the rank computes. The rest is exposed.
struct CommunicationTime {
  Seconds on_its_way = {};
  Seconds hidden = {};
  bool operator==(const CommunicationTime&) const = default;
};
[[nodiscard]] inline Seconds exposed(const CommunicationTime& time) { return time.on_its_way - time.hidden; }
inline void operator+=(CommunicationTime& sum, const CommunicationTime& time) {
  sum.on_its_way += time.on_its_way;
  sum.hidden += time.hidden;
}
inline void operator-=(CommunicationTime& sum, const CommunicationTime& time) {
  sum.on_its_way -= time.on_its_way;
  sum.hidden -= time.hidden;
}

}  // namespace plumb
