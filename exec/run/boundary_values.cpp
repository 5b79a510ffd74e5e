#include "exec/run/boundary_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {

void BoundaryValues::put(const ValueKey& key, Payload payload) {
  if (std::ranges::find(values_, key, &Value::key) != values_.end()) {
    throw RunError("", fmt::format("a value for stage {}, microbatch {} is already there", key.stage, key.microbatch));
  }
  values_.push_back({.key = key, .payload = std::move(payload)});
}

Payload BoundaryValues::take(const ValueKey& key) {
  const auto found = std::ranges::find(values_, key, &Value::key);
  if (found == values_.end()) {
    throw RunError(
        "", fmt::format("the {} for stage {}, microbatch {} is not there",
                        key.channel == Channel::forward ? "activation" : "output gradient", key.stage, key.microbatch));
  }
  Payload payload = std::move(found->payload);
  *found = std::move(values_.back());
  values_.pop_back();
  return payload;
}

void BoundaryValues::require_none() const {
  if (values_.empty()) return;
  const ValueKey& key = std::ranges::min_element(values_, {}, &Value::key)->key;
  throw RunError("", fmt::format("{} values were never used, the first for stage {}, microbatch {}", values_.size(),
                                 key.stage, key.microbatch));
}

}  // namespace plumb::exec
