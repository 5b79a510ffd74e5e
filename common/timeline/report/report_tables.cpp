#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>

#include "common/base/text.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/timeline/chart/time_axis.hpp"
#include "common/timeline/diff/diff.hpp"
#include "common/timeline/report/report_parts.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb::html {
namespace {

struct Part {
  std::string_view colour;
  std::string_view name;
  double share = 0;  // of the whole bar
  std::string amount;
};

// Parts of one bar, side by side.
std::string stacked_bar(const std::vector<Part>& parts) {
  std::string bar = "<div class=\"bar\">";
  for (const Part& part : parts) {
    if (!(part.share > 0)) continue;
    bar += fmt::format(R"(<i class="{}" style="width:{:.3f}%" title="{}: {}"></i>)", part.colour, 100 * part.share,
                       part.name, part.amount);
  }
  return bar + "</div>";
}

double share(Seconds part, Seconds whole) { return whole.value > 0 ? part / whole : 0; }
double share(Bytes part, Bytes whole) { return whole.value > 0 ? part / whole : 0; }

std::string stages_of(const Schedule& schedule, int rank) {
  std::string text;
  for (const int stage : stages_of_rank(schedule, rank)) {
    text += (text.empty() ? "" : ", ") + std::to_string(stage);
    if (const auto part = part_name(schedule, stage); !part.empty()) text += fmt::format(" ({})", part);
  }
  return text;
}

// A time that the clocks cannot tell from nothing is greyed.
std::string uncertain_cell(Seconds time, Seconds uncertainty) {
  if (time <= Seconds{} || time > uncertainty) return fmt::format("<td>{}</td>", to_text(time));
  return fmt::format(R"(<td class="quiet" title="{}">{}</td>)", clocks_cause, to_text(time));
}

std::string time_cells(const RankStatistics& rank, Seconds step, Seconds uncertainty) {
  const std::vector<Part> parts{
      {"busy", "compute", share(rank.compute, step), to_text(rank.compute)},
      {"waits", "exposed communication", share(rank.exposed_communication, step), to_text(rank.exposed_communication)},
      {"idle", "idle", share(rank.idle, step), to_text(rank.idle)}};
  return fmt::format("<td>{}</td>{}{}<td class=\"wide\">{}</td>", to_text(rank.compute),
                     uncertain_cell(rank.exposed_communication, uncertainty), uncertain_cell(rank.idle, uncertainty),
                     stacked_bar(parts));
}

// What the bars of memory are drawn to: `whole` is as wide as a cell.
struct MemoryScale {
  Bytes whole;
  Bytes limit;  // drawn as a line; 0: not known, or so far away that the bars would be too short to read
};

// A quarter of a cell is the least in which the parts of a bar can still be told apart.
constexpr std::int64_t most_times_largest = 4;

MemoryScale memory_scale(Bytes largest, Bytes limit) {
  if (limit <= Bytes{} || limit.value / most_times_largest > largest.value) return {.whole = largest, .limit = {}};
  return {.whole = std::max(largest, limit), .limit = limit};
}

std::string with_limit(const std::string& bar, const MemoryScale& scale) {
  if (scale.limit == Bytes{}) return bar;
  return fmt::format(
      R"(<div class="limited">{}<i class="limit" style="left:{:.3f}%" title="a rank may use: {}"></i></div>)", bar,
      100 * share(scale.limit, scale.whole), to_text(scale.limit));
}

std::string memory_cells(const RankSummary& rank, const MemoryScale& scale) {
  const Bytes largest = scale.whole;
  const std::vector<Part> parts{
      {"parameters", "parameters", share(rank.parameter_bytes, largest), to_text(rank.parameter_bytes)},
      {"gradients", "gradients", share(rank.gradient_bytes, largest), to_text(rank.gradient_bytes)},
      {"optimizer", "optimizer", share(rank.optimizer_bytes, largest), to_text(rank.optimizer_bytes)},
      {"activations", "activations", share(rank.activation_bytes, largest), to_text(rank.activation_bytes)}};
  return fmt::format("<td>{}</td><td>{}</td><td class=\"wide\">{}</td>", to_text(rank.received_bytes),
                     to_text(rank.peak_bytes), with_limit(stacked_bar(parts), scale));
}

// A bar longer than its cell would lie: the whole is the largest sum of parts or peak of any rank.
Bytes largest_memory(const std::vector<RankSummary>& ranks) {
  Bytes largest;
  for (const RankSummary& rank : ranks) {
    const Bytes sum = rank.parameter_bytes + rank.gradient_bytes + rank.optimizer_bytes + rank.activation_bytes;
    largest = std::max({largest, sum, rank.peak_bytes});
  }
  return largest;
}

// Below the table, where it may take several lines.
std::string rank_legend(const Timeline& timeline, bool has_memory, const MemoryScale& scale) {
  const auto entry = [](std::string_view colour, std::string_view name) {
    return fmt::format(R"(<span><i class="key {}"></i>{}</span>)", colour, name);
  };
  std::string text = R"(<p class="legend"><span class="quiet">time:</span>)" + entry("busy", "compute") +
                     entry("waits", "exposed") + entry("idle", "idle");
  if (has_memory) {
    text += R"(<span class="quiet">memory:</span>)" + entry("parameters", "parameters") +
            entry("gradients", "gradients") + entry("optimizer", "optimizer") + entry("activations", "activations");
    if (scale.limit > Bytes{}) text += entry("limit", "what a rank may use");
    text += fmt::format("<span class=\"quiet\">a whole bar: {}{}</span>", to_text(scale.whole),
                        timeline.memory_limit > Bytes{}
                            ? fmt::format("; a rank of the plan's device may use {}", to_text(timeline.memory_limit))
                            : "");
  }
  return text + "</p>\n";
}

std::string peak_text(Bytes peak, Bytes limit) {
  return limit.value > 0 ? fmt::format("{} of {}{}", to_text(peak), to_text(limit), peak > limit ? ", too much" : "")
                         : to_text(peak);
}

}  // namespace

std::string rank_table(const Timeline& timeline, const StepTimeline& step) {
  const int ranks = ranks_of(timeline);
  const StepStatistics statistics = step_statistics(step, ranks);
  const std::vector<Seconds> uncertainty = exposure_uncertainty(timeline, step);
  const bool has_memory = timeline.ranks.size() == statistics.ranks.size();
  const MemoryScale scale = memory_scale(largest_memory(timeline.ranks), timeline.memory_limit);
  std::string table =
      R"(<table class="ranks"><thead><tr><th>rank<th>stages<th>compute<th>exposed<th>idle<th class="wide">time)";
  if (has_memory) {
    table += R"(<th>received<th>peak<th class="wide">memory)";
  }
  table += "</tr></thead><tbody>\n";
  for (std::size_t rank = 0; rank < statistics.ranks.size(); ++rank) {
    table += fmt::format("<tr><td>{}</td><td>{}</td>{}", rank,
                         stages_of(timeline.schedule, pipeline_rank(timeline, static_cast<int>(rank))),
                         time_cells(statistics.ranks[rank], step.duration, uncertainty[rank]));
    if (has_memory) table += memory_cells(timeline.ranks[rank], scale);
    table += "</tr>\n";
  }
  return table + "</tbody></table>\n" + rank_legend(timeline, has_memory, scale);
}

std::string communication_table(const Timeline& timeline, const StepTimeline& step) {
  const CommunicationTimes times = communication_times(timeline, step);
  std::string rows;
  for (const CommunicationUse use : communication_uses) {
    const CommunicationTime& time = times[static_cast<std::size_t>(use)];
    if (time.on_its_way == Seconds{}) continue;
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", name_of(use),
                        to_text(time.on_its_way), to_text(time.hidden), to_text(exposed(time)),
                        percent_text(share(time.hidden, time.on_its_way)));
  }
  if (rows.empty()) return "";
  return "<table class=\"ranks\"><thead><tr><th>between ranks, mean of them<th>on its way<th>hidden<th>exposed<th>part "
         "hidden</tr></thead><tbody>\n" +
         rows + "</tbody></table>\n";
}

namespace {

std::string or_dash(const std::string& text) { return text.empty() ? "–" : text; }

// Of the model's FLOPs over what the devices could do meanwhile.
std::string utilisation_text(const Timeline& timeline, Seconds step) {
  const double possible = timeline.peak_flops.value * step.value;
  return possible > 0 ? percent_text(timeline.model_flops.value / possible) : "–";
}

}  // namespace

std::string overview_table(const std::vector<Timeline>& timelines) {
  std::string table =
      "<table "
      "class=\"overview\"><thead><tr><th>plan<th>layout<th>layers<th>schedule<th>timeline<th>step<th>tokens/"
      "s<th>MFU<th>bubble <span "
      "class=\"quiet\">of "
      "makespan, with the optimizer</span><th>bubble <span class=\"quiet\">of span</span><th>largest "
      "peak</tr></thead><tbody>\n";
  for (const Timeline& timeline : timelines) {
    const StepTimeline& step = median_step(timeline);
    const StepStatistics statistics = step_statistics(step, ranks_of(timeline));
    Bytes peak;
    for (const RankSummary& rank : timeline.ranks) peak = std::max(peak, rank.peak_bytes);
    const double speed = tokens_per_s(timeline, step);
    table += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}, {} microbatches</td><td>{} <span "
        "class=\"quiet\">{}</span></td><td><b>{}</b></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td></tr>\n",
        escaped(timeline.plan_name), or_dash(escaped(timeline.layout_name)), or_dash(escaped(timeline.split)),
        escaped(timeline.schedule.name), whole_microbatches(timeline.schedule), source_word(timeline.source),
        escaped(timeline.producer), to_text(step.duration),
        speed > 0 ? fmt::format("{:.{}f}", speed, speed < 100 ? 1 : 0) : "–", utilisation_text(timeline, step.duration),
        percent_text(statistics.bubble_makespan_fraction), percent_text(statistics.bubble_span_fraction),
        peak.value > 0 ? peak_text(peak, timeline.memory_limit) : "–");
  }
  return table + "</tbody></table>\n";
}

namespace {

// Where a row's bar begins and ends, in parts of the whole width.
struct Scale {
  double low = 0;
  double high = 1;
  [[nodiscard]] double at(double value) const { return high > low ? 100 * (value - low) / (high - low) : 0; }
};

Scale scale_of(const TimelineDiff& diff) {
  double low = std::min(diff.predicted.value, diff.measured.value);
  double high = std::max(diff.predicted.value, diff.measured.value);
  double now = diff.predicted.value;
  for (const DiffCause& cause : diff.causes) {
    now += cause.seconds.value;
    low = std::min(low, now);
    high = std::max(high, now);
  }
  const double margin = std::max((high - low) * 0.15, high * 1e-3);
  return {.low = std::max(0.0, low - margin), .high = high + margin};
}

std::string bar_row(std::string_view kind, double from, double to, const Scale& scale) {
  return fmt::format(R"(<div class="fall"><i class="{}" style="left:{:.3f}%;width:{:.3f}%"></i></div>)", kind,
                     scale.at(std::min(from, to)), std::max(0.15, std::abs(scale.at(to) - scale.at(from))));
}

std::string joined(const std::vector<std::string>& texts) {
  std::string result;
  for (const std::string& text : texts) {
    result += fmt::format("{}<span class=\"nobreak\">{}</span>", result.empty() ? "" : " · ", typeset(escaped(text)));
  }
  return result;
}

}  // namespace

std::string waterfall(const TimelineDiff& diff) {
  const Scale scale = scale_of(diff);
  const auto part = [&](Seconds time) {
    return diff.measured.value > 0 ? typeset(fmt::format("{:+.2f}%", 100 * (time / diff.measured))) : std::string();
  };
  const auto share_text = [&](Seconds time) {
    return diff.measured.value > 0 ? fmt::format("{:.2f}%", 100 * (time / diff.measured)) : std::string();
  };
  std::string table = fmt::format(
      "<table class=\"waterfall\"><thead><tr><th class=\"left\">cause<th>time<th>of measured<th class=\"fall\"><span "
      "class=\"quiet\">{} to {}</span><th class=\"left\" title=\"0F3: stage 0's forward of microbatch "
      "3\">largest actions</tr></thead><tbody>\n",
      to_text(Seconds{scale.low}), to_text(Seconds{scale.high}));
  const auto total = [&](std::string_view name, Seconds time, const std::string& percentage) {
    table +=
        fmt::format("<tr class=\"total\"><td class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}</td><td></td></tr>\n",
                    name, to_text(time), percentage, bar_row("whole", scale.low, time.value, scale));
  };
  total("predicted step", diff.predicted, share_text(diff.predicted));
  double now = diff.predicted.value;
  for (const DiffCause& cause : diff.causes) {
    const double next = now + cause.seconds.value;
    const bool none = std::abs(cause.seconds.value) < 1e-9 * diff.predicted.value;
    const std::string actions = cause.within_clocks ? no_finding : joined(cause.actions);
    table += fmt::format(
        "<tr{}><td class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"left actions\">{}</td></tr>\n",
        none || cause.within_clocks ? " class=\"none\"" : "", escaped(cause.cause),
        none ? "0" : typeset(signed_text(cause.seconds)), none ? "" : part(cause.seconds),
        bar_row(none         ? "nothing"
                : next > now ? "longer"
                             : "shorter",
                now, next, scale),
        actions);
    now = next;
  }
  total("measured step", diff.measured, share_text(diff.measured));
  return table + "</tbody></table>\n";
}

}  // namespace plumb::html
