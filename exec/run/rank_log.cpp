#include "exec/run/rank_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/layout/lane.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/schedule/weight_versions.hpp"
#include "exec/transport/launch_plan/communicators.hpp"

namespace plumb::exec {
namespace {

using nlohmann::json;

// An action of a pipeline, and the lane that it is of by its first rank: all lanes have the same actions.
using LaneAction = std::pair<int, Action>;

// Which ranks of a layout do something together.
class Together {
 public:
  explicit Together(const Plan& plan) : layout_(plan.layout), schedule_(plan.schedule) {}

  [[nodiscard]] LaneAction in_lane(int rank, const Action& action) const {
    return {group(layout_, rank, MeshAxis::pipeline).front(), action};
  }

  // Of a collective: two ranks of a lane, all that train a stage on other data, or all.
  [[nodiscard]] LaneAction collective(const Event& event) const {
    if (event.action.kind == ActionKind::clip_gradients) return {0, {.kind = event.action.kind}};
    if (joins_parts(event.action.kind)) {  // of which each rank names its own part
      Action action = event.action;
      action.stage = part_on(schedule_, action.stage, 0);
      return in_lane(event.rank, action);
    }
    if (is_of_data_ranks(schedule_, event.action))
      return {group(layout_, event.rank, MeshAxis::data).front(), event.action};
    return in_lane(event.rank, name_of_both(event.action));
  }

  [[nodiscard]] int pipeline_rank(int rank) const { return lane_of(layout_, rank).pipeline_rank; }

  // Whether the rank's coming is one that it waits for: of a broadcast that of the rank that has it alone.
  [[nodiscard]] bool is_waited_for(const Event& event) const {
    return event.action.kind != ActionKind::broadcast ||
           pipeline_rank(event.rank) == rank_beside_parts(schedule_, event.action.stage);
  }

 private:
  const Layout& layout_;
  const Schedule& schedule_;
};

// A message by its receive.
Action receive_of(const Action& action) { return is_send(action.kind) ? other_end(action) : action; }

Bytes copied_to_host(const RankStep& step) {
  Bytes sum;
  for (const Event& event : step.events) {
    const ActionKind kind = event.action.kind;
    if (kind == ActionKind::optimizer_step || gathers_weights(kind)) sum += event.bytes;
  }
  return sum;
}

// The mean of the steps from `first` on.
void add_within(RankSummary& summary, const std::vector<RankStep>& steps, std::size_t first) {
  if (!summary.by_axis || first >= steps.size()) return;
  const auto count = static_cast<double>(steps.size() - first);
  TimesWithin mean;
  for (std::size_t step = first; step < steps.size(); ++step) {
    const auto add = [&](CommunicationTime& sum, const CommunicationTime& time) {
      sum += {.on_its_way = time.on_its_way / count, .hidden = time.hidden / count};
    };
    add(mean.tensor, steps[step].within.tensor);
    add(mean.data, steps[step].within.data);
  }
  if (mean.tensor.on_its_way > Seconds{}) summary.by_axis->tensor_within = mean.tensor;
  if (mean.data.on_its_way > Seconds{}) summary.by_axis->data_within = mean.data;
}

// `rank`: of the pipeline. `first`: of the steps, that is measured.
RankSummary summarise(const Plan& plan, int rank, const std::vector<RankStep>& steps, std::size_t first) {
  RankSummary summary;
  const std::vector<int> versions = weight_versions_kept(plan.schedule);
  for (const int stage : stages_of_rank(plan.schedule, rank)) {
    const ComputeCost& cost = plan.costs.stages[static_cast<std::size_t>(stage)];
    summary.parameter_bytes += cost.parameter_bytes * versions[static_cast<std::size_t>(stage)];
    summary.gradient_bytes += cost.gradient_bytes;
    summary.optimizer_bytes += cost.optimizer_bytes;
  }
  summary.host_bytes = on_host(plan.costs.stages, plan.schedule, rank).kept;
  for (const RankStep& step : steps) {
    summary.host_copied_bytes = std::max(summary.host_copied_bytes, copied_to_host(step));
    summary.peak_bytes = std::max(summary.peak_bytes, step.peak_bytes);
    if (summary.by_axis && step.received_bytes <= summary.received_bytes) continue;
    summary.received_bytes = step.received_bytes;
    AxisTraffic& axes = summary.by_axis.emplace();
    axes.tensor = step.received_in_tensor;
    axes.data = step.received_in_data;
    axes.pipeline = step.received_bytes - step.received_in_tensor - step.received_in_data;
  }
  add_within(summary, steps, first);
  const Bytes states = summary.parameter_bytes + summary.gradient_bytes + summary.optimizer_bytes;
  summary.activation_bytes = std::max(Bytes{0}, summary.peak_bytes - states);
  return summary;
}

void place_receives(const Together& together, std::vector<Event>& events) {
  std::map<LaneAction, const Event*> sends;
  for (const Event& event : events) {
    if (is_send(event.action.kind)) sends[together.in_lane(event.rank, receive_of(event.action))] = &event;
  }
  for (Event& event : events) {
    if (!is_receive(event.action.kind)) continue;
    const auto sent = sends.find(together.in_lane(event.rank, receive_of(event.action)));
    if (sent == sends.end()) {
      throw RunError("rank " + std::to_string(event.rank), to_string(event.action) + " has no send in any rank's log");
    }
    const Seconds waiting_since = event.start;
    event.start = sent->second->start;
    // Two cores' clock readings may differ by less than the hand-over takes.
    event.end = std::max(event.end, event.start);
    event.waited = std::max(Seconds{0}, event.end - std::max(event.start, waiting_since));
  }
}

// An eviction is its receiving half, as in a prediction: it cannot start before either rank has come to it. The sending
// half, which only hands over, goes.
void place_evictions(const Schedule& lowered, const Together& together, std::vector<Event>& events) {
  const auto is_sent = [&](const Event& event) {
    return is_eviction(event.action.kind) &&
           sends_activations(lowered, together.pipeline_rank(event.rank), event.action);
  };
  std::map<LaneAction, Seconds> sent;
  for (const Event& event : events) {
    if (is_sent(event)) sent[together.in_lane(event.rank, event.action)] = event.start;
  }
  std::erase_if(events, is_sent);
  for (Event& event : events) {
    if (!is_eviction(event.action.kind)) continue;
    const auto sending = sent.find(together.in_lane(event.rank, event.action));
    if (sending == sent.end()) {
      throw RunError("rank " + std::to_string(event.rank), to_string(event.action) + " was sent by no rank");
    }
    // The partner's list says when it may look; where there is room for EVICT the evicting rank alone knows.
    const bool evicts = event.action.kind == ActionKind::evict;
    event.start = evicts ? sending->second : std::max(event.start, sending->second);
    event.end = std::max(event.end, event.start);
  }
}

// All ranks of a collective see it from when the last one came until the last one left.
void place_collectives(const Together& together, std::vector<Event>& events) {
  struct Interval {
    Seconds start;
    Seconds end;
    Seconds first;  // when its first bucket could start on all of them
  };
  const auto is_one = [](const Event& event) {
    return is_collective(event.action.kind) || joins_parts(event.action.kind);
  };
  std::map<LaneAction, Interval> of_all;
  for (const Event& event : events) {
    if (!is_one(event)) continue;
    Interval& interval = of_all[together.collective(event)];
    interval.end = std::max(interval.end, event.end);
    if (!together.is_waited_for(event)) continue;
    interval.start = std::max(interval.start, event.start);
    interval.first = std::max(interval.first, event.start - event.beside);
  }
  for (Event& event : events) {
    if (!is_one(event)) continue;
    const Interval& interval = of_all.at(together.collective(event));
    event.waited = std::max(Seconds{0}, interval.end - event.start);
    event.start = interval.start;
    event.end = interval.end;
    event.beside = interval.start - interval.first;
  }
}

struct MergedStep {
  StepTimeline timeline;
  Seconds start;  // on rank 0's clock
};

MergedStep merge_step(const Schedule& lowered, const Together& together, const std::vector<RankLog>& logs,
                      std::size_t index) {
  std::vector<Event> events;
  Seconds start = logs.front().steps.at(index).start;
  for (const RankLog& log : logs) {
    start = std::max(start, log.steps.at(index).start);
    events.insert(events.end(), log.steps[index].events.begin(), log.steps[index].events.end());
  }
  place_receives(together, events);
  place_evictions(lowered, together, events);
  place_collectives(together, events);
  // How unevenly the ranks leave the barrier is no part of the step.
  for (const Event& event : events) start = std::min(start, event.start);
  for (Event& event : events) {
    event.start -= start;
    event.end -= start;
  }
  return {.timeline = ordered_step(std::move(events)), .start = start};
}

// Where it changes.
std::vector<MemoryPoint> memory_of(const RankStep& step, Seconds start) {
  std::vector<MemoryPoint> points;
  Seconds time{0};
  for (std::size_t i = 0; i < step.held.size(); ++i) {
    time = std::max(time, step.events.at(i).end - start);  // a message may have come before its receive
    if (points.empty() || points.back().bytes != step.held[i]) points.push_back({.time = time, .bytes = step.held[i]});
  }
  return points;
}

}  // namespace

std::string describe_last(const RankStep& step) {
  constexpr std::size_t most = 6;
  std::string text;
  const std::size_t count = std::min(most, step.events.size());
  for (std::size_t i = step.events.size() - count; i < step.events.size(); ++i) {
    const Event& event = step.events[i];
    text += fmt::format("{}{} ({:.2f} ms)", text.empty() ? "before it: " : ", ", to_string(event.action),
                        std::max(0.0, (event.end - event.start).value) * 1e3);
  }
  return text;
}

namespace {

CommunicationTime time_from(const json& value) {
  return {.on_its_way = {value.at(0).get<double>()}, .hidden = {value.at(1).get<double>()}};
}

}  // namespace

std::string to_text(const RankLog& log) {
  json steps = json::array();
  for (const RankStep& step : log.steps) {
    json events = json::array();
    for (const Event& event : step.events) {
      events.push_back({to_string(event.action), event.peer, event.start.value, event.end.value, event.waited.value,
                        event.bytes.value, event.beside.value});
    }
    json held = json::array();
    for (const Bytes bytes : step.held) held.push_back(bytes.value);
    steps.push_back({{"start", step.start.value},
                     {"peak_bytes", step.peak_bytes.value},
                     {"received_bytes", step.received_bytes.value},
                     {"received_in_tensor", step.received_in_tensor.value},
                     {"received_in_data", step.received_in_data.value},
                     {"within_tensor", {step.within.tensor.on_its_way.value, step.within.tensor.hidden.value}},
                     {"within_data", {step.within.data.on_its_way.value, step.within.data.hidden.value}},
                     {"loss", step.loss},
                     {"gradient_norm", step.gradient_norm},
                     {"held", std::move(held)},
                     {"events", std::move(events)}});
  }
  return json{{"rank", log.rank},
              {"arena_bytes", log.arena_bytes.value},
              {"receives_beside", log.receives_beside},
              {"steps", std::move(steps)}}
      .dump();
}

RankLog parse_rank_log(std::string_view text) {
  try {
    const json root = json::parse(text);
    RankLog log{.rank = root.at("rank").get<int>(),
                .steps = {},
                .arena_bytes = {root.at("arena_bytes").get<std::int64_t>()},
                .receives_beside = root.at("receives_beside").get<std::int64_t>()};
    for (const json& step : root.at("steps")) {
      RankStep& read = log.steps.emplace_back();
      read.start = {step.at("start").get<double>()};
      read.peak_bytes = {step.at("peak_bytes").get<std::int64_t>()};
      read.received_bytes = {step.at("received_bytes").get<std::int64_t>()};
      read.received_in_tensor = {step.at("received_in_tensor").get<std::int64_t>()};
      read.received_in_data = {step.at("received_in_data").get<std::int64_t>()};
      read.within = {.tensor = time_from(step.at("within_tensor")), .data = time_from(step.at("within_data"))};
      // JSON has no NaN: a loss that diverged comes as null.
      const auto number = [&](const char* key) {
        return step.at(key).is_null() ? std::numeric_limits<double>::quiet_NaN() : step[key].get<double>();
      };
      read.loss = number("loss");
      read.gradient_norm = number("gradient_norm");
      for (const json& bytes : step.at("held")) read.held.push_back({bytes.get<std::int64_t>()});
      for (const json& event : step.at("events")) {
        read.events.push_back({.action = parse_action(event.at(0).get<std::string>()),
                               .rank = log.rank,
                               .peer = event.at(1).get<int>(),
                               .start = {event.at(2).get<double>()},
                               .end = {event.at(3).get<double>()},
                               .waited = {event.at(4).get<double>()},
                               .bytes = {event.at(5).get<std::int64_t>()},
                               .beside = {event.at(6).get<double>()}});
      }
    }
    return log;
  } catch (const json::exception& error) {
    throw RunError("a rank's log", std::string("is not what plumb-exec writes: ") + error.what());
  }
}

void turn_to_rank_0(RankLog& log, const HostClock& clock) {
  for (RankStep& step : log.steps) {
    step.start = on_rank_0(clock, step.start);
    for (Event& event : step.events) {
      event.start = on_rank_0(clock, event.start);
      event.end = on_rank_0(clock, event.end);
    }
  }
}

std::vector<double> losses_of(const Plan& plan, const Schedule& lowered, const std::vector<RankLog>& logs) {
  // Ranks of a grid have the mean loss of their own sequences, as data-parallel ones do; others of a tensor group all
  // have the same.
  std::vector<Lane> lanes;
  for (const Lane& lane : lanes_of(plan.layout)) {
    const int first = lane.ranks.front();
    const int position = coordinates(plan.layout, first).at(static_cast<std::size_t>(MeshAxis::tensor));
    if (position == 0 || is_grid(plan.layout.tensor)) lanes.push_back(lane);
  }
  std::vector<double> losses(logs.front().steps.size(), 0);
  for (const Lane& lane : lanes) {
    for (int replica = 0; replica < replicas(lowered); ++replica) {
      const auto last = static_cast<std::size_t>(rank_in_replica(lowered, replica, stages(lowered) - 1));
      const RankLog& log = logs[static_cast<std::size_t>(lane.ranks[last])];
      for (std::size_t step = 0; step < losses.size(); ++step) losses[step] += log.steps[step].loss;
    }
  }
  for (double& loss : losses) loss /= static_cast<double>(lanes.size());
  return losses;
}

Timeline merge_logs(const Plan& plan, const Schedule& lowered, const std::vector<RankLog>& logs,
                    const std::string& producer, std::size_t first) {
  Timeline timeline = timeline_head(plan, lowered, TimelineSource::measured, producer);
  if (ranks(plan.layout) > lowered.ranks) timeline.layout = plan.layout;
  const Together together(plan);
  for (const RankLog& log : logs) {
    timeline.ranks.push_back(summarise(plan, together.pipeline_rank(log.rank), log.steps, first));
  }
  for (std::size_t index = 0; index < logs.front().steps.size(); ++index) {
    MergedStep step = merge_step(lowered, together, logs, index);
    timeline.steps.push_back(std::move(step.timeline));
    if (index != first) continue;
    for (const RankLog& log : logs) timeline.memory.push_back(memory_of(log.steps[index], step.start));
  }
  return timeline;
}

}  // namespace plumb::exec
