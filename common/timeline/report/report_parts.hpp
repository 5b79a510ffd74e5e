// The parts of the HTML report, each a piece of markup. Internal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/timeline/chart/markup.hpp"
#include "common/timeline/diff/diff.hpp"
#include "common/timeline/timeline.hpp"

namespace plumb::html {

// Escaped text with true minus signs before numbers.
[[nodiscard]] std::string typeset(std::string_view text);

[[nodiscard]] std::string source_word(TimelineSource source);  // "predicted" or "measured"

// One lane a rank, `longest` wide: the same scale for every picture of the page.
[[nodiscard]] std::string timeline_picture(const Timeline& timeline, const StepTimeline& step, Seconds longest);
[[nodiscard]] std::string timeline_legend(const std::vector<const StepTimeline*>& steps, bool divides_vocabulary);

// Per rank: where the time went, what was received, who owns the memory.
[[nodiscard]] std::string rank_table(const Timeline& timeline, const StepTimeline& step);

// What went on between the ranks beside their own computing; empty where nothing did.
[[nodiscard]] std::string communication_table(const Timeline& timeline, const StepTimeline& step);

// One row a timeline.
[[nodiscard]] std::string overview_table(const std::vector<Timeline>& timelines);

// Predicted, cause by cause, measured: a falling line of bars and the actions behind each.
[[nodiscard]] std::string waterfall(const TimelineDiff& diff);

// What the diff says, in a sentence or three.
[[nodiscard]] std::string verdict(const TimelineDiff& diff);

// What the words and colours mean.
[[nodiscard]] std::string explanation();

// A whole page around `body`.
[[nodiscard]] std::string page(std::string_view title, std::string_view body);

}  // namespace plumb::html
