// Length of the equal chunks into which a gated delta layer cuts a sequence.
#pragma once

#include <cstdint>

#include "common/model/layer.hpp"

namespace plumb {

// A chunk that is not full costs as much as a full one, so a short sequence is one short chunk.
[[nodiscard]] constexpr std::int64_t chunk_length(const GatedDelta& delta, std::int64_t tokens) {
  const std::int64_t chunks = (tokens + delta.chunk - 1) / delta.chunk;
  return (tokens + chunks - 1) / chunks;
}

}  // namespace plumb
