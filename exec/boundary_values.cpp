#include "exec/boundary_values.hpp"

#include <fmt/format.h>

#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {

void BoundaryValues::put(const ValueKey& key, Payload payload) {
  if (values_.emplace(key, std::move(payload)).second) return;
  throw RunError("", fmt::format("a value for stage {}, microbatch {} is already there", key.stage, key.microbatch));
}

Payload BoundaryValues::take(const ValueKey& key) {
  auto node = values_.extract(key);
  if (node.empty()) {
    throw RunError(
        "", fmt::format("the {} for stage {}, microbatch {} is not there",
                        key.channel == Channel::forward ? "activation" : "output gradient", key.stage, key.microbatch));
  }
  return std::move(node.mapped());
}

void BoundaryValues::require_none() const {
  if (values_.empty()) return;
  const ValueKey& key = values_.begin()->first;
  throw RunError("", fmt::format("{} values were never used, the first for stage {}, microbatch {}", values_.size(),
                                 key.stage, key.microbatch));
}

}  // namespace plumb::exec
