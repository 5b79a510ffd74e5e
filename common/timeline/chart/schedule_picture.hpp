// A schedule's step as a picture (SVG) that stands alone: for papers, slides and pages, light or dark.
#pragma once

#include <string>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb {

struct SchedulePictureText {
  std::string title;
  std::vector<std::string> lines;  // below it: bubbles, memory
  std::vector<double> peaks = {};  // activations per rank, as bars beside the lanes; may be empty
};

// Times are in a unit of the user's own. Every action has a tooltip. What repeats is drawn once where the whole step
// would be too wide to read.
[[nodiscard]] std::string schedule_picture(const StepTimeline& step, const Schedule& schedule,
                                           const SchedulePictureText& text);

}  // namespace plumb
