// Lines in which messages and parcels wait, in the order of their sends.
#pragma once

#include <deque>
#include <utility>

namespace plumb::exec {

// Precondition: there is one.
template <class Value>
[[nodiscard]] Value take_oldest(std::deque<Value>& line) {
  Value oldest = std::move(line.front());
  line.pop_front();
  return oldest;
}

}  // namespace plumb::exec
