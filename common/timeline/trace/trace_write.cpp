#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <unordered_map>

#include "common/base/error.hpp"
#include "common/cost/costs_json.hpp"
#include "common/layout/layout_json.hpp"
#include "common/schedule/interchange/schedule_json.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/timeline/trace/trace.hpp"
#include "common/timeline/trace/trace_format.hpp"

namespace plumb {
Json to_json(const AxisTraffic& traffic) {
  Json json{{"tensor_bytes", traffic.tensor.value},
            {"data_bytes", traffic.data.value},
            {"pipeline_bytes", traffic.pipeline.value}};
  const auto add = [&](const char* axis, const std::optional<CommunicationTime>& time) {
    if (!time) return;
    json[std::string(axis) + "_time_s"] = exposed(*time).value;
    json[std::string(axis) + "_hidden_s"] = time->hidden.value;
  };
  add("tensor", traffic.tensor_within);
  add("data", traffic.data_within);
  return json;
}

namespace {

// Colours by the names that chrome://tracing reserves; Perfetto picks its own by the event's name.
std::string_view colour_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "rail_response";
    case ActionKind::backward:
      return "rail_animation";
    case ActionKind::input_gradient:
      return "thread_state_running";
    case ActionKind::weight_gradient:
      return "rail_load";
    case ActionKind::recompute:
      return "olive";
    case ActionKind::optimizer_step:
      return "generic_work";
    default:
      return "grey";
  }
}

// Whole nanoseconds, clamped to what 64 bits hold.
std::int64_t nanoseconds(Seconds time) {
  constexpr double most = 9e18;
  return static_cast<std::int64_t>(std::llround(std::clamp(time.value * 1e9, -most, most)));
}

template <class Number>
void append_number(std::string& out, Number number) {
  std::array<char, 32> digits{};
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), result.ptr);
}

// Shortest digits that read back as the same double.
void append_seconds(std::string& out, std::string_view key, Seconds time) {
  if (!std::isfinite(time.value)) throw InputError("timeline", "holds a time that is not a finite number");
  out += key;
  append_number(out, time.value);
}

// Nanoseconds as microseconds with three decimals.
void append_microseconds(std::string& out, std::string_view key, std::int64_t time) {
  const std::int64_t fraction = time % 1000;
  out += key;
  append_number(out, time / 1000);
  out += '.';
  out += static_cast<char>('0' + fraction / 100);
  out += static_cast<char>('0' + fraction / 10 % 10);
  out += static_cast<char>('0' + fraction % 10);
}

std::uint64_t compute_key(int rank, int stage, int microbatch, bool backward) {
  const auto bits = [](int value) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(value)); };
  return (bits(rank) << 48) ^ (bits(stage) << 33) ^ (bits(backward ? 1 : 0) << 32) ^ bits(microbatch);
}

Json to_json(const PeakMoment& peak) {
  return {{"kept_bytes", peak.held.kept.value},
          {"message_bytes", peak.held.messages.value},
          {"workspace_bytes", peak.held.workspace.value},
          {"time_s", peak.time.value},
          {"action", to_string(peak.action)}};
}

// Where an event is drawn: Perfetto wants the events of one track one after another.
struct Drawn {
  std::int64_t start = 0;
  std::int64_t end = 0;
};

class TraceWriter {
 public:
  explicit TraceWriter(const Timeline& timeline) : timeline_(timeline) {}

  std::string write() {
    std::size_t events = 0;
    for (const StepTimeline& step : timeline_.steps) events += step.events.size();
    out_.reserve(4096 + events * 420);
    // The events come first: Perfetto's reader stops at the first key that it does not know.
    out_ = "{\n\"traceEvents\":[";
    write_track_names();
    std::int64_t offset = 0;
    for (std::size_t step = 0; step < timeline_.steps.size(); ++step) {
      write_step(static_cast<int>(step), offset);
      offset += nanoseconds(timeline_.steps[step].duration);
    }
    write_memory();
    out_ += "\n],\n\"plumb\":";
    out_ += plumb_object().dump(-1, ' ', false, Json::error_handler_t::replace);
    out_ += "\n}\n";
    return std::move(out_);
  }

 private:
  [[nodiscard]] int ranks() const {
    int ranks = ranks_of(timeline_);
    for (const StepTimeline& step : timeline_.steps) {
      for (const Event& event : step.events) ranks = std::max(ranks, event.rank + 1);
    }
    return ranks;
  }

  [[nodiscard]] Json plumb_object() const;
  void write_track_names();
  void write_step(int index, std::int64_t offset);
  void write_memory();
  void write_event(const Event& event, int step, const Drawn& drawn);
  void write_arrows(const StepTimeline& step, const std::vector<Drawn>& drawn);

  void next_line() {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
  }

  const Timeline& timeline_;
  std::string out_;
  bool first_ = true;
  std::int64_t arrows_ = 0;
};

Json TraceWriter::plumb_object() const {
  const Schedule& schedule = timeline_.schedule;
  Json summaries = Json::array();
  for (const RankSummary& rank : timeline_.ranks) {
    summaries.push_back({{"parameter_bytes", rank.parameter_bytes.value},
                         {"gradient_bytes", rank.gradient_bytes.value},
                         {"optimizer_bytes", rank.optimizer_bytes.value},
                         {"activation_bytes", rank.activation_bytes.value},
                         {"peak_bytes", rank.peak_bytes.value},
                         {"received_bytes", rank.received_bytes.value}});
    if (rank.peak) summaries.back()["peak"] = to_json(*rank.peak);
    if (rank.host_bytes > Bytes{}) {
      summaries.back()["host_bytes"] = rank.host_bytes.value;
      summaries.back()["host_copied_bytes"] = rank.host_copied_bytes.value;
    }
    if (rank.by_axis) summaries.back()["by_axis"] = to_json(*rank.by_axis);
  }
  Json steps = Json::array();
  for (const StepTimeline& step : timeline_.steps) {
    steps.push_back({{"duration_s", step.duration.value}, {"events", step.events.size()}});
  }
  Json head{{"version", trace_version},
            {"source", source_name(timeline_.source)},
            {"producer", timeline_.producer},
            {"plan_name", timeline_.plan_name},
            {"plan_digest", timeline_.plan_digest},
            {"costs_digest", timeline_.costs_digest},
            {"tokens_per_step", timeline_.tokens_per_step},
            {"model_flops", timeline_.model_flops.value},
            {"schedule", to_json(schedule)},
            {"costs", to_json(timeline_.costs)},
            {"ranks", std::move(summaries)},
            {"steps", std::move(steps)}};
  if (timeline_.layout) head["layout"] = to_json(*timeline_.layout);
  if (timeline_.clock_uncertainty > Seconds{0}) {
    head["clock_uncertainty_s"] = timeline_.clock_uncertainty.value;
    if (!timeline_.clock_of_rank.empty()) head["clock_of_rank"] = timeline_.clock_of_rank;
  }
  if (timeline_.memory_limit > Bytes{}) head["memory_limit_bytes"] = timeline_.memory_limit.value;
  if (timeline_.peak_flops > FlopsPerSecond{}) head["peak_flops_per_s"] = timeline_.peak_flops.value;
  if (!timeline_.layout_name.empty()) head["layout_name"] = timeline_.layout_name;
  if (!timeline_.split.empty()) head["split"] = timeline_.split;
  return head;
}

void TraceWriter::write_track_names() {
  const int count = ranks();
  std::vector<bool> used(static_cast<std::size_t>(count) * track_count);
  for (const StepTimeline& step : timeline_.steps) {
    for (const Event& event : step.events) {
      if (event.rank < 0) throw InputError("timeline", "holds an event on rank " + std::to_string(event.rank));
      used[static_cast<std::size_t>(event.rank) * track_count + static_cast<std::size_t>(track_of(event.action.kind))] =
          true;
    }
  }
  for (int rank = 0; rank < count; ++rank) {
    const std::string pid = "\"pid\":" + std::to_string(rank);
    next_line();
    out_ += R"({"ph":"M","name":"process_name",)" + pid + R"(,"args":{"name":"rank )" + std::to_string(rank) + "\"}}";
    next_line();
    out_ +=
        R"({"ph":"M","name":"process_sort_index",)" + pid + R"(,"args":{"sort_index":)" + std::to_string(rank) + "}}";
    for (int track = 0; track < track_count; ++track) {
      if (!used[static_cast<std::size_t>(rank) * track_count + static_cast<std::size_t>(track)]) continue;
      const std::string tid = pid + ",\"tid\":" + std::to_string(track);
      next_line();
      out_ += R"({"ph":"M","name":"thread_name",)" + tid + R"(,"args":{"name":")" +
              std::string(track_name(static_cast<Track>(track))) + "\"}}";
      next_line();
      out_ +=
          R"({"ph":"M","name":"thread_sort_index",)" + tid + R"(,"args":{"sort_index":)" + std::to_string(track) + "}}";
    }
  }
}

void TraceWriter::write_step(int index, std::int64_t offset) {
  const StepTimeline& step = timeline_.steps[static_cast<std::size_t>(index)];
  std::vector<std::int64_t> track_end(static_cast<std::size_t>(ranks()) * track_count, offset);
  std::vector<Drawn> drawn;
  drawn.reserve(step.events.size());
  for (const Event& event : step.events) {
    std::int64_t& previous_end = track_end[static_cast<std::size_t>(event.rank) * track_count +
                                           static_cast<std::size_t>(track_of(event.action.kind))];
    const std::int64_t start = std::max(previous_end, offset + nanoseconds(event.start));
    const std::int64_t end = std::max(start, offset + nanoseconds(event.end));
    previous_end = end;
    drawn.push_back({start, end});
    write_event(event, index, drawn.back());
  }
  write_arrows(step, drawn);
}

// A counter beside the rank's tracks, in the first step.
void TraceWriter::write_memory() {
  for (std::size_t rank = 0; rank < timeline_.memory.size(); ++rank) {
    for (const MemoryPoint& point : timeline_.memory[rank]) {
      next_line();
      out_ += R"({"ph":"C","name":"memory","pid":)";
      append_number(out_, rank);
      append_microseconds(out_, ",\"ts\":", nanoseconds(point.time));
      out_ += R"(,"args":{"bytes":)";
      append_number(out_, point.bytes.value);
      out_ += "}}";
    }
  }
}

void TraceWriter::write_event(const Event& event, int step, const Drawn& drawn) {
  next_line();
  out_ += R"({"ph":"X","name":"PP:)";
  out_ += to_string(event.action);
  out_ += R"(","cat":")";
  out_ += track_name(track_of(event.action.kind));
  out_ += R"(","pid":)";
  append_number(out_, event.rank);
  out_ += ",\"tid\":";
  append_number(out_, static_cast<int>(track_of(event.action.kind)));
  append_microseconds(out_, ",\"ts\":", drawn.start);
  append_microseconds(out_, ",\"dur\":", drawn.end - drawn.start);
  out_ += R"(,"cname":")";
  out_ += colour_name(event.action.kind);
  out_ += R"(","args":{"step":)";
  append_number(out_, step);
  out_ += R"(,"kind":")";
  out_ += letters(event.action.kind);
  out_ += R"(","stage":)";
  append_number(out_, event.action.stage);
  const std::string_view part = part_name(timeline_.schedule, event.action.stage);
  if (!part.empty()) out_ += fmt::format(R"(,"part":"{}")", part);
  if (event.action.microbatch != no_microbatch) {
    out_ += ",\"microbatch\":";
    append_number(out_, event.action.microbatch);
  }
  append_seconds(out_, ",\"start_s\":", event.start);
  append_seconds(out_, ",\"end_s\":", event.end);
  if (event.waited != Seconds{}) append_seconds(out_, ",\"waited_s\":", event.waited);
  if (event.beside != Seconds{}) append_seconds(out_, ",\"beside_s\":", event.beside);
  if (event.peer != -1) {
    out_ += ",\"peer\":";
    append_number(out_, event.peer);
  }
  if (event.bytes != Bytes{}) {
    out_ += ",\"bytes\":";
    append_number(out_, event.bytes.value);
  }
  out_ += "}}";
}

// From the compute that made a message to the compute that needs it.
void TraceWriter::write_arrows(const StepTimeline& step, const std::vector<Drawn>& drawn) {
  std::unordered_map<std::uint64_t, std::size_t> computes;
  computes.reserve(step.events.size());
  const auto key_of = [](const Event& event, int rank, int stage) {
    const ActionKind kind = event.action.kind;
    const bool backward = kind != ActionKind::forward && kind != ActionKind::receive_forward;
    return compute_key(rank, stage, event.action.microbatch, backward);
  };
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const Event& event = step.events[i];
    const ActionKind kind = event.action.kind;
    if (kind != ActionKind::forward && kind != ActionKind::backward && kind != ActionKind::input_gradient) continue;
    computes[key_of(event, event.rank, event.action.stage)] = i;
  }
  for (const Event& event : step.events) {
    if (!is_receive(event.action.kind)) continue;
    const auto producer = computes.find(key_of(event, event.peer, producer_stage(event.action)));
    const auto consumer = computes.find(key_of(event, event.rank, event.action.stage));
    if (producer == computes.end() || consumer == computes.end()) continue;
    const Drawn& from = drawn[producer->second];
    const auto write_end = [&](std::string_view head, int rank, std::int64_t time) {
      next_line();
      out_ += head;
      append_number(out_, arrows_);
      out_ += R"(,"tid":0,"pid":)";
      append_number(out_, rank);
      append_microseconds(out_, R"(,"ts":)", time);
      out_ += '}';
    };
    // One nanosecond before its end, so that the arrow leaves this slice and not the next one.
    write_end(R"({"ph":"s","name":"message","cat":"message","id":)", event.peer, std::max(from.start, from.end - 1));
    write_end(R"({"ph":"f","bp":"e","name":"message","cat":"message","id":)", event.rank,
              drawn[consumer->second].start);
    ++arrows_;
  }
}

}  // namespace

std::string to_trace(const Timeline& timeline) { return TraceWriter(timeline).write(); }

}  // namespace plumb
