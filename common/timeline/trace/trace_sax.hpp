// Reads a trace without building its hundred thousand events as a JSON tree. Internal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/document/json.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb {

// An event of a trace as it stands there; `number` counts all entries of traceEvents.
struct TraceEvent {
  Event event;
  std::int64_t step = 0;
  std::size_t number = 0;
};

// The check takes an assertion in the JSON library's move for a throw.
// NOLINTNEXTLINE(bugprone-exception-escape)
struct TraceContent {
  bool has_events = false;         // there is a traceEvents array: a Chrome trace, whoever wrote it
  Json plumb;                      // null if there is none
  std::vector<TraceEvent> events;  // of phase X
  std::string problem;             // of the first event that plumb did not write; empty if there is none
};

// Throws InputError for text that is not JSON. Anything else is the caller's to judge.
[[nodiscard]] TraceContent parse_trace(std::string_view text, const std::string& file);

}  // namespace plumb
