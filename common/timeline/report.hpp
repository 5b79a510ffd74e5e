// One self-contained HTML page: timelines as pictures, tables of ranks, the diff when there are a prediction and a run.
#pragma once

#include <string>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

[[nodiscard]] std::string html_report(const std::vector<Timeline>& timelines);

}  // namespace plumb
