#include "common/timeline/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/cost/profile/profile_noise.hpp"
#include "common/timeline/diff/diff.hpp"
#include "common/timeline/report/report_parts.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb {
namespace {

using html::escaped;

// A prediction and the run of the same plan, told apart from what stands alone.
struct Pair {
  const Timeline* predicted = nullptr;
  const Timeline* measured = nullptr;
  std::optional<TimelineDiff> difference;  // if there are both
};

const Timeline& first_of(const Pair& pair) { return pair.predicted != nullptr ? *pair.predicted : *pair.measured; }

std::string sides_of(const Pair& pair) {
  if (pair.predicted != nullptr && pair.measured != nullptr) return "predicted and measured";
  return pair.predicted != nullptr ? "predicted" : "measured";
}

// "demo, 1f1b, dynamic split"; of several with the same name and the same sides, each with its number.
std::vector<std::string> titles_of(const std::vector<Pair>& pairs) {
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto same = [&](const Pair& other) {
      return first_of(other).plan_name == first_of(pairs[i]).plan_name && sides_of(other) == sides_of(pairs[i]);
    };
    const auto before = std::count_if(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(i), same);
    const std::string& name = first_of(pairs[i]).plan_name;
    titles.push_back(std::ranges::count_if(pairs, same) > 1 ? fmt::format("{} ({})", name, before + 1) : name);
  }
  return titles;
}

// In the order given: each timeline of a plan that has no pair yet begins one.
std::vector<Pair> pairs_of(const std::vector<Timeline>& timelines) {
  std::vector<Pair> pairs;
  for (const Timeline& timeline : timelines) {
    const bool predicted = timeline.source == TimelineSource::predicted;
    const auto side = predicted ? &Pair::predicted : &Pair::measured;
    const auto other_side = predicted ? &Pair::measured : &Pair::predicted;
    const auto partner = std::ranges::find_if(pairs, [&](const Pair& pair) {
      const Timeline* other = pair.*other_side;
      return pair.*side == nullptr && other != nullptr && other->plan_digest == timeline.plan_digest &&
             other->schedule == timeline.schedule;
    });
    Pair& pair = partner != pairs.end() ? *partner : pairs.emplace_back();
    pair.*side = &timeline;
  }
  // Each further run of a plan stands beside the same prediction.
  for (Pair& pair : pairs) {
    if (pair.predicted != nullptr) continue;
    const auto partner = std::ranges::find_if(pairs, [&](const Pair& other) {
      return other.predicted != nullptr && other.predicted->plan_digest == pair.measured->plan_digest &&
             other.predicted->schedule == pair.measured->schedule;
    });
    if (partner != pairs.end()) pair.predicted = partner->predicted;
  }
  for (Pair& pair : pairs) {
    if (pair.predicted != nullptr && pair.measured != nullptr) pair.difference = diff(*pair.predicted, *pair.measured);
  }
  return pairs;
}

std::string shape_of(const Timeline& timeline) {
  const Schedule& schedule = timeline.schedule;
  const auto counted = [](int count, std::string_view one, std::string_view many) {
    return fmt::format("{} {}", count, count == 1 ? one : many);
  };
  const std::string mesh = timeline.layout ? fmt::format(" ({})", describe(*timeline.layout)) : "";
  return fmt::format("{}: {}{}, {}, {}", escaped(schedule.name), counted(ranks_of(timeline), "rank", "ranks"), mesh,
                     counted(stages(schedule), "stage", "stages"),
                     counted(schedule.microbatches, "microbatch", "microbatches"));
}

// What one timeline alone has to say.
std::string single_verdict(const Timeline& timeline) {
  const StepTimeline& step = median_step(timeline);
  const StepStatistics statistics = step_statistics(step, ranks_of(timeline));
  Seconds exposed;
  Seconds idle;
  for (const RankStatistics& rank : statistics.ranks) {
    exposed += rank.exposed_communication;
    idle += rank.idle;
  }
  Seconds uncertainty;
  for (const Seconds of_rank : exposure_uncertainty(timeline, step)) uncertainty += of_rank;
  const Seconds all = step.duration * static_cast<double>(std::max<std::size_t>(1, statistics.ranks.size()));
  const auto part = [&](Seconds time) { return percent_text(all.value > 0 ? time / all : 0); };
  const std::string on_its_way =
      uncertainty > Seconds{} && exposed <= uncertainty
          ? ""
          : fmt::format(" ({} of it while a message is on its way)",
                        (exposed + idle).value > 0 ? percent_text(exposed / (exposed + idle)) : percent_text(0));
  return fmt::format(
      "A step {} <b>{}</b>. Of the ranks' time, {} passes without anything to compute{}; "
      "with the optimizer's time that is the bubble, {}.",
      timeline.source == TimelineSource::predicted ? "is predicted to take" : "took", to_text(step.duration),
      part(exposed + idle), on_its_way, percent_text(statistics.bubble_makespan_fraction));
}

// Of a run on several hosts; else nothing.
std::string clocks_note(const Timeline& timeline) {
  if (timeline.clock_uncertainty == Seconds{}) return "";
  return fmt::format("<p class=\"note\">{} What is no finding stands in grey. What one rank did is on one clock.</p>\n",
                     clocks_sentence(timeline.clock_uncertainty));
}

std::string timeline_section(const Timeline& timeline, Seconds longest) {
  const StepTimeline& step = median_step(timeline);
  const bool predicted = timeline.source == TimelineSource::predicted;
  std::string origin = escaped(timeline.producer);
  if (timeline.steps.size() > 1) origin += fmt::format(", the median of {} steps", timeline.steps.size());
  if (predicted && !timeline.costs.provenance.empty()) origin += ", costs from " + escaped(timeline.costs.provenance);
  const std::string text =
      fmt::format("<h3>{} <span class=\"quiet\">by {}</span></h3>\n", predicted ? "Predicted" : "Measured", origin);
  return text + html::timeline_picture(timeline, step, longest);
}

std::string pair_sections(const Pair& pair, const std::string& title, Seconds longest) {
  std::vector<const Timeline*> shown;
  for (const Timeline* timeline : {pair.predicted, pair.measured}) {
    if (timeline != nullptr) shown.push_back(timeline);
  }
  const Timeline& first = *shown.front();
  std::string text =
      fmt::format("<section><h2>{} <span class=\"quiet\">{}</span></h2><p class=\"quiet\">{}</p>\n", escaped(title),
                  sides_of(pair), shape_of(pair.measured != nullptr ? *pair.measured : first));
  std::vector<const StepTimeline*> steps;
  steps.reserve(shown.size());
  for (const Timeline* timeline : shown) text += clocks_note(*timeline);
  for (const Timeline* timeline : shown) steps.push_back(&median_step(*timeline));
  text += html::timeline_legend(steps, first.schedule.vocabulary_barriers > 0);
  for (const Timeline* timeline : shown) text += timeline_section(*timeline, longest);
  text += "</section>\n";
  if (pair.difference) {
    text +=
        "<section><h2>Why they differ</h2><p>From the predicted step to the measured one: row by row, measured "
        "durations take the place of predicted ones in the schedule's graph.</p>\n<div class=\"scroll\">" +
        html::waterfall(*pair.difference) + "</div></section>\n";
  }
  text += "<section><h2>The ranks</h2>\n";
  for (const Timeline* timeline : shown) {
    text += fmt::format("<h3>{} <span class=\"quiet\">{}</span></h3>\n<div class=\"scroll\">{}{}</div>",
                        timeline->source == TimelineSource::predicted ? "Predicted" : "Measured",
                        escaped(timeline->producer), html::rank_table(*timeline, median_step(*timeline)),
                        html::communication_table(*timeline, median_step(*timeline)));
  }
  return text + "</section>\n";
}

// The page's first words: of the pair if there is just one, else of all.
std::string headline(const std::vector<Pair>& pairs, const std::vector<std::string>& titles, const std::string& note) {
  std::string names;
  std::string lead;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Pair& pair = pairs[i];
    const Timeline& first = first_of(pair);
    if (names.find(first.plan_name) == std::string::npos) names += (names.empty() ? "" : "; ") + first.plan_name;
    if (pairs.size() > 1)
      lead += "<p class=\"lead\"><b>" + escaped(titles[i]) + "</b>: ";
    else
      lead += "<p class=\"lead\">";
    if (pair.difference) {
      lead += fmt::format("A step was predicted to take <b>{}</b> and took <b>{}</b>. ",
                          to_text(pair.difference->predicted), to_text(pair.difference->measured));
      lead += html::verdict(*pair.difference);
    } else {
      lead += single_verdict(first);
    }
    lead += "</p>\n";
  }
  if (!note.empty()) lead += "<p class=\"lead\"><b>" + escaped(note) + "</b></p>\n";
  return "<header><div class=\"brand\">plumb · pipeline report</div><h1>" + escaped(names) + "</h1>\n" + lead +
         "</header>\n";
}

}  // namespace

std::string html_report(const std::vector<Timeline>& timelines, const std::string& note) {
  if (timelines.empty()) throw InputError("report", "no timelines were given, expected at least one");
  Seconds longest;
  for (const Timeline& timeline : timelines) longest = std::max(longest, median_step(timeline).duration);
  const std::vector<Pair> pairs = pairs_of(timelines);
  const std::vector<std::string> titles = titles_of(pairs);
  const bool noisy = std::ranges::any_of(timelines, [](const Timeline& timeline) {
    return timeline.source == TimelineSource::predicted && has_noise_mark(timeline.costs.provenance);
  });
  const std::string separator = noisy && !note.empty() ? " " : "";
  std::string body = headline(pairs, titles, note + separator + std::string(noisy ? noise_warning : ""));
  body +=
      "<section><h2>At a glance</h2><div class=\"scroll\">" + html::overview_table(timelines) + "</div></section>\n";
  for (std::size_t i = 0; i < pairs.size(); ++i) body += pair_sections(pairs[i], titles[i], longest);
  body += html::explanation();
  body += "<footer>";
  for (const Timeline& timeline : timelines) {
    body += fmt::format("{} {}: plan <code>{}</code>, costs <code>{}</code> from {}.<br>\n",
                        escaped(timeline.plan_name), html::source_word(timeline.source), escaped(timeline.plan_digest),
                        escaped(timeline.costs_digest), escaped(timeline.costs.provenance));
  }
  body += "</footer>\n";
  const std::string more = pairs.size() > 1 ? fmt::format(" and {} more", pairs.size() - 1) : "";
  return html::page(titles.front() + more + " – plumb", body);
}

}  // namespace plumb
