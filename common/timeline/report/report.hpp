// One self-contained HTML page: timelines as pictures, tables of ranks, the diff when there are a prediction and a run.
#pragma once

#include <string>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

// `note`: a sentence that belongs under the headline, as what calibrations say of the machine.
[[nodiscard]] std::string html_report(const std::vector<Timeline>& timelines, const std::string& note = "");

}  // namespace plumb
