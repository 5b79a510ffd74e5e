// What the writer and the reader of traces share. Internal.
#pragma once

#include <string_view>

#include "common/timeline/timeline.hpp"

namespace plumb {

inline constexpr int trace_version = 1;

[[nodiscard]] inline std::string_view source_name(TimelineSource source) {
  return source == TimelineSource::predicted ? "predicted" : "measured";
}

}  // namespace plumb
