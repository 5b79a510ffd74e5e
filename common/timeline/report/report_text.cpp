#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/text.hpp"
#include "common/timeline/chart/time_axis.hpp"
#include "common/timeline/report/report_parts.hpp"
#include "common/timeline/trace/trace_format.hpp"

namespace plumb::html {

std::string typeset(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool minus = text[i] == '-' && (i == 0 || text[i - 1] == ' ') && i + 1 < text.size() && text[i + 1] >= '0' &&
                       text[i + 1] <= '9';
    if (minus)
      result += "−";
    else
      result += text[i];
  }
  return result;
}

std::string source_word(TimelineSource source) { return std::string(source_name(source)); }

namespace {

// "4.10 ms (slower F of stage 3)" of what made the step longest.
std::string largest_cause(const TimelineDiff& diff, bool slower) {
  const auto largest = std::ranges::max_element(diff.causes, {}, [&](const DiffCause& cause) {
    if (cause.within_clocks) return 0.0;
    return slower ? cause.seconds.value : -cause.seconds.value;
  });
  if (largest == diff.causes.end() || largest->within_clocks || (largest->seconds.value > 0) != slower) return "";
  return fmt::format("Most of it: <b>{}</b> ({}).", escaped(largest->cause), typeset(signed_text(largest->seconds)));
}

}  // namespace

std::string verdict(const TimelineDiff& diff) {
  const double gap = diff.prediction_gap();
  std::string text;
  if (diff.step_within_clocks()) {
    text = "The run took as long as predicted, as far as the clocks of its hosts agree. ";
  } else if (std::abs(gap) < 0.005) {
    text = "The run took as long as predicted, within half a percent. ";
  } else if (gap < -0.5) {
    text = fmt::format("The run took <b>{:.1f} times as long</b> as predicted. {} ", 1 / (1 + gap),
                       largest_cause(diff, true));
  } else {
    text = fmt::format("The prediction is off by <b>{}</b>: {} than the measured step. {} ", typeset(change_text(gap)),
                       gap > 0 ? "longer" : "shorter", largest_cause(diff, gap < 0));
  }
  text += fmt::format(
      "Replayed with nothing but its own durations, the schedule's graph gives {} ({} of the measured step): {}",
      to_text(diff.replay), typeset(fmt::format("{:+.2f}%", 100 * diff.replay_gap())),
      std::abs(diff.replay_gap()) <= 0.01 || diff.replay_within_clocks()
          ? "the graph explains this run."
          : "the rest is time outside of compute and messages, see the pauses below.");
  return text;
}

std::string explanation() {
  return R"(<section id="reading"><h2>How to read this page</h2><dl class="words">
<dt><i class="key F"></i>F</dt><dd>forward of one microbatch through one stage</dd>
<dt><i class="key B"></i>B</dt><dd>full backward; split, it is <i class="key I"></i>I, the gradient of the input, which
the previous stage waits for, and <i class="key W"></i>W, the gradient of the weights, for which nobody waits</dd>
<dt><i class="key R"></i>R</dt><dd>the forward once more, because its activations were not kept</dd>
<dt><i class="key step"></i>step</dt><dd>the optimizer</dd>
<dt><i class="key message"></i>message</dt><dd>from when the sender hands it over until it is there; drawn below the
rank that receives it</dd>
<dt><i class="key reduction"></i>all-reduce</dt><dd>gradients summed over the ranks that hold the same weights; drawn
below each of them</dd>
<dt><i class="key waits"></i>exposed</dt><dd>a message or an all-reduce was on its way and the rank had nothing to compute</dd>
<dt><i class="key idle"></i>idle</dt><dd>nothing to compute, and nothing on its way yet</dd>
<dt>bubble</dt><dd>of the makespan: the part of the step in which an average rank runs no F, B, I, W or R, that is
exposed and idle time and the optimizer's step, which “compute” has elsewhere on this page; of the span: the same within
the longest rank's own time from the first to the last of these (the “zero” of zero-bubble schedules, arXiv
2401.10241)</dd>
<dt>causes</dt><dd>the predicted step is replayed on the schedule's graph while measured durations take the place of
predicted ones: compute stage by stage, then messages, then the order in which ranks acted, then pauses of the hosts.
Each change of the step is one cause, so they add up; what clocks leave unexplained is the residual. Of several hosts,
what may be the difference of their clocks is put in last, and greyed: it is no finding</dd>
</dl></section>
)";
}

}  // namespace plumb::html
