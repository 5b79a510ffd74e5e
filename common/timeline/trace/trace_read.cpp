#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/files.hpp"
#include "common/base/text.hpp"
#include "common/cost/costs_json.hpp"
#include "common/layout/layout_json.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/interchange/schedule_json.hpp"
#include "common/timeline/trace/trace.hpp"
#include "common/timeline/trace/trace_format.hpp"
#include "common/timeline/trace/trace_sax.hpp"

namespace plumb {
namespace {

Schedule schedule_in_range(const JsonValue& value) {
  Schedule schedule = schedule_from_json(value);
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      if (in_range(schedule, action)) continue;
      value.at("actions")[rank].fail("holds " + to_string(action) + " of " + std::to_string(all_stages(schedule)) +
                                     " stages and " + std::to_string(schedule.microbatches) + " microbatches");
    }
  }
  return schedule;
}

Action action_from_json(const JsonValue& value) {
  try {
    return parse_action(value.text());
  } catch (const InputError& error) {
    value.fail(error.problem());
  }
}

std::optional<PeakMoment> peak_from_json(const std::optional<JsonValue>& value) {
  if (!value) return std::nullopt;
  return PeakMoment{.held = {.kept = value->at("kept_bytes").bytes(),
                             .messages = value->at("message_bytes").bytes(),
                             .workspace = value->at("workspace_bytes").bytes()},
                    .time = value->at("time_s").seconds(),
                    .action = action_from_json(value->at("action"))};
}

std::optional<CommunicationTime> within_from_json(const JsonValue& value, const std::string& axis) {
  const auto time = value.find(axis + "_time_s");
  if (!time) return std::nullopt;
  const auto hidden = value.find(axis + "_hidden_s");
  const Seconds of_it = hidden ? hidden->seconds() : Seconds{};
  return CommunicationTime{.on_its_way = time->seconds() + of_it, .hidden = of_it};
}

std::optional<AxisTraffic> axes_from_json(const std::optional<JsonValue>& value) {
  if (!value) return std::nullopt;
  AxisTraffic traffic{.tensor = value->at("tensor_bytes").bytes(),
                      .data = value->at("data_bytes").bytes(),
                      .pipeline = value->at("pipeline_bytes").bytes()};
  traffic.tensor_within = within_from_json(*value, "tensor");
  traffic.data_within = within_from_json(*value, "data");
  return traffic;
}

Bytes bytes_if_there(const std::optional<JsonValue>& value) { return value ? value->bytes() : Bytes{}; }

RankSummary summary_from_json(const JsonValue& value) {
  return {.parameter_bytes = value.at("parameter_bytes").bytes(),
          .gradient_bytes = value.at("gradient_bytes").bytes(),
          .optimizer_bytes = value.at("optimizer_bytes").bytes(),
          .activation_bytes = value.at("activation_bytes").bytes(),
          .peak_bytes = value.at("peak_bytes").bytes(),
          .received_bytes = value.at("received_bytes").bytes(),
          .peak = peak_from_json(value.find("peak")),
          .by_axis = axes_from_json(value.find("by_axis")),
          .host_bytes = bytes_if_there(value.find("host_bytes")),
          .host_copied_bytes = bytes_if_there(value.find("host_copied_bytes"))};
}

TimelineSource source_from_json(const JsonValue& value) {
  for (const TimelineSource source : {TimelineSource::predicted, TimelineSource::measured}) {
    if (value.text() == source_name(source)) return source;
  }
  value.fail("is '" + excerpt(value.text()) + "', expected 'predicted' or 'measured'");
}

void read_clocks(const JsonValue& value, Timeline& timeline) {
  if (const auto uncertainty = value.find("clock_uncertainty_s")) timeline.clock_uncertainty = uncertainty->seconds();
  const auto clocks = value.find("clock_of_rank");
  if (!clocks) return;
  for (std::size_t i = 0; i < clocks->size(); ++i) {
    timeline.clock_of_rank.push_back((*clocks)[i].small_integer(0, ranks_of(timeline) - 1));
  }
  if (timeline.clock_of_rank.size() != static_cast<std::size_t>(ranks_of(timeline))) {
    clocks->fail("has " + std::to_string(timeline.clock_of_rank.size()) + " entries for " +
                 std::to_string(ranks_of(timeline)) + " ranks");
  }
}

// Of whose ranks the events are, where these are more than the schedule's.
void read_layout(const JsonValue& value, Timeline& timeline) {
  const auto layout = value.find("layout");
  if (!layout) return;
  timeline.layout = layout_from_json(*layout);
  if (has_stage_data(*timeline.layout)) layout->fail("has data degrees by stage, of which no timeline has all ranks");
  if (timeline.layout->pipeline == timeline.schedule.ranks) return;
  layout->at("pipeline")
      .fail("is " + std::to_string(timeline.layout->pipeline) + ", the schedule has " +
            std::to_string(timeline.schedule.ranks) + " ranks");
}

Timeline timeline_from_json(const JsonValue& value) {
  const std::int64_t version = value.at("version").integer();
  if (version != trace_version) {
    value.at("version").fail(
        "is " + std::to_string(version) + ", this plumb reads version " + std::to_string(trace_version),
        "write the timeline again with this version of plumb");
  }
  Timeline timeline{.source = source_from_json(value.at("source")),
                    .producer = value.at("producer").text(),
                    .plan_name = value.at("plan_name").text(),
                    .plan_digest = value.at("plan_digest").text(),
                    .costs_digest = value.at("costs_digest").text(),
                    .tokens_per_step = value.at("tokens_per_step").integer(),
                    .model_flops = {value.at("model_flops").number()},
                    .schedule = schedule_in_range(value.at("schedule")),
                    .costs = pipeline_costs_from_json(value.at("costs")),
                    .ranks = {},
                    .steps = {}};
  if (timeline.costs.stages.size() != timeline.schedule.rank_of_stage.size()) {
    value.at("costs").fail("has " + std::to_string(timeline.costs.stages.size()) + " stages, the schedule has " +
                           std::to_string(all_stages(timeline.schedule)));
  }
  const int parts = timeline.schedule.vocabulary_barriers > 0 ? timeline.schedule.ranks : 0;
  if (timeline.costs.vocabulary.parts != parts) {
    value.at("costs").fail("have a vocabulary in " + std::to_string(timeline.costs.vocabulary.parts) +
                           " parts, the schedule has it in " + std::to_string(parts));
  }
  read_layout(value, timeline);
  const JsonValue ranks = value.at("ranks");
  for (std::size_t i = 0; i < ranks.size(); ++i) timeline.ranks.push_back(summary_from_json(ranks[i]));
  if (!timeline.ranks.empty() && timeline.ranks.size() != static_cast<std::size_t>(ranks_of(timeline))) {
    ranks.fail("has " + std::to_string(timeline.ranks.size()) + " entries for " + std::to_string(ranks_of(timeline)) +
               " ranks");
  }
  read_clocks(value, timeline);
  if (const auto limit = value.find("memory_limit_bytes")) timeline.memory_limit = limit->bytes();
  if (const auto peak = value.find("peak_flops_per_s")) timeline.peak_flops = {peak->number()};
  if (const auto layout = value.find("layout_name")) timeline.layout_name = layout->text();
  if (const auto split = value.find("split")) timeline.split = split->text();
  const JsonValue steps = value.at("steps");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    timeline.steps.push_back({.events = {}, .duration = steps[i].at("duration_s").seconds()});
  }
  return timeline;
}

// What is wrong with an event of this timeline; empty if nothing is.
std::string problem_of(const TraceEvent& entry, const Timeline& timeline) {
  const Event& event = entry.event;
  const Schedule& schedule = timeline.schedule;
  const auto outside = [](std::int64_t value, std::int64_t count) { return value < 0 || value >= count; };
  const auto of = [](const char* what, std::int64_t value, std::size_t count) {
    return std::string("is of ") + what + " " + std::to_string(value) + " of " + std::to_string(count);
  };
  if (outside(entry.step, static_cast<std::int64_t>(timeline.steps.size()))) {
    return of("step", entry.step, timeline.steps.size());
  }
  const int ranks = ranks_of(timeline);
  if (outside(event.rank, ranks)) return of("rank", event.rank, static_cast<std::size_t>(ranks));
  if (outside(event.action.stage, all_stages(schedule))) {
    return of("stage", event.action.stage, schedule.rank_of_stage.size());
  }
  if (!in_range(schedule, event.action)) {
    return of("microbatch", event.action.microbatch, static_cast<std::size_t>(schedule.microbatches));
  }
  if (event.peer != -1 && outside(event.peer, ranks)) {
    return of("peer", event.peer, static_cast<std::size_t>(ranks));
  }
  const auto in_step = [](Seconds time) { return time >= Seconds{} && time <= longest_time; };
  if (!in_step(event.start) || !in_step(event.end)) {
    return "runs from " + to_text(event.start) + " to " + to_text(event.end) +
           ", expected 0 to 1e9 s: times count from the step's start";
  }
  if (event.end < event.start) return "ends before it starts";
  if (event.waited < Seconds{}) return "waited less than nothing";
  if (event.beside < Seconds{}) return "ran beside others for less than nothing";
  if (event.bytes < Bytes{}) return "has less than no bytes";
  return "";
}

}  // namespace

Timeline read_timeline(const std::filesystem::path& path) {
  const std::string file = path.string();
  TraceContent content = parse_trace(read_file(path), file);
  if (content.plumb.is_null()) {
    throw InputError(file,
                     content.has_events ? "is a Chrome trace, but not one of plumb's: it has no 'plumb' object"
                                        : "is JSON, but not a timeline: it has no 'plumb' object",
                     "`plumb simulate -o` and `plumb-exec run -o` write timelines");
  }
  const Json plumb = std::move(content.plumb);
  const JsonValue root(plumb, file, "plumb");
  Timeline timeline = timeline_from_json(root);
  if (!content.problem.empty()) throw InputError(file, content.problem);
  for (const TraceEvent& entry : content.events) {
    const std::string problem = problem_of(entry, timeline);
    if (!problem.empty()) {
      throw InputError(file + ": traceEvents[" + std::to_string(entry.number) + "]",
                       to_string(entry.event.action) + " " + problem);
    }
    timeline.steps[static_cast<std::size_t>(entry.step)].events.push_back(entry.event);
  }
  const JsonValue steps = root.at("steps");
  for (std::size_t i = 0; i < timeline.steps.size(); ++i) {
    const std::int64_t expected = steps[i].at("events").integer();
    const std::size_t found = timeline.steps[i].events.size();
    if (expected != static_cast<std::int64_t>(found)) {
      steps[i].fail("has " + std::to_string(found) + " events in the trace, expected " + std::to_string(expected));
    }
  }
  return timeline;
}

}  // namespace plumb
