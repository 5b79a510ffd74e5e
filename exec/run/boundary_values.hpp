// What a rank has received or produced between its stages and not used yet.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/schedule/schedule.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Which boundary value: an activation for `stage` (forward) or an output gradient for it (backward).
struct ValueKey {
  Channel channel = Channel::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  auto operator<=>(const ValueKey&) const = default;
};

// Of the value that an action takes or makes; none of those that do neither.
[[nodiscard]] constexpr std::optional<Channel> channel_of(const Action& action) {
  if (action.kind == ActionKind::forward) return Channel::forward;
  if (makes_input_gradient(action.kind)) return Channel::backward;
  return std::nullopt;
}

class BoundaryValues {
 public:
  void clear() { values_.clear(); }

  // Throws RunError for a value that is already there.
  void put(const ValueKey& key, Payload payload);

  // Throws RunError for a value that is not there.
  [[nodiscard]] Payload take(const ValueKey& key);

  // Throws RunError, naming the first, if any is left.
  void require_none() const;

 private:
  struct Value {
    ValueKey key;
    Payload payload;
  };

  std::vector<Value> values_;  // a few at any time: in no order, so that an action allocates nothing
};

}  // namespace plumb::exec
