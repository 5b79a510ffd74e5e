#include "sim/commands/schedule_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <sstream>

#include "common/base/document/number_check.hpp"
#include "common/base/error.hpp"
#include "common/graph/memory.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/generators.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/schedule/weight_versions.hpp"
#include "common/schedule/zb_auto/zb_auto.hpp"

namespace plumb::sim {
namespace {

constexpr int most = 1 << 20;

// 2, or the next number that the schedule takes.
int default_chunks(const ScheduleEntry& entry) {
  if (entry.fixed_chunks > 0) return entry.fixed_chunks;
  if (!entry.uses_chunks) return 1;
  return (2 + entry.chunk_multiple - 1) / entry.chunk_multiple * entry.chunk_multiple;
}

}  // namespace

void add_shape(CLI::App& command, ShapeOptions& options, bool required) {
  command.add_option("--ranks", options.ranks, "Pipeline ranks.")->required(required)->check(whole_number(1, most));
  command.add_option("--microbatches", options.microbatches, "Microbatches of a step.")
      ->required(required)
      ->check(whole_number(1, most));
  command.add_option("--chunks", options.chunks, "Stages per rank; default: 2 if the schedule has several.")
      ->check(whole_number(1, most_chunks));
  command
      .add_option("--slices", options.slices,
                  fmt::format("Slices of each sequence; default: {} if the schedule cuts sequences.", default_slices))
      ->check(whole_number(1, most_chunks));
  command
      .add_option("--group", options.group,
                  "Microbatches that a chunk runs before the next one (interleaved); default: the schedule's own.")
      ->check(whole_number(1, most_chunks));
  command
      .add_option("--update-every", options.update_every,
                  "Microbatches per optimizer step (asynchronous); default: the schedule's own.")
      ->check(whole_number(1, most_chunks));
  command.add_flag("--overlap", options.overlap,
                   "Runs forwards and backwards of the steady state as overlapped pairs (interleaved-1f1b).");
  command
      .add_option("--vocabulary", options.vocabulary,
                  "Shards head and embedding over the ranks by vocabulary, with this number of barriers (" +
                      schedules_with(&ScheduleEntry::divides_vocabulary) + ").")
      ->check(whole_number(1, 2));
}

ScheduleShape shape_for(const ScheduleEntry& entry, const ShapeOptions& options) {
  return {.ranks = options.ranks,
          .microbatches = options.microbatches,
          .chunks = options.chunks > 0 ? options.chunks : default_chunks(entry),
          .slices = options.slices > 0 ? options.slices : (entry.uses_slices ? default_slices : 1),
          .group = options.group,
          .update_every = options.update_every,
          .overlap = options.overlap,
          .vocabulary_barriers = options.vocabulary};
}

ScheduleShape usable_shape_for(const ScheduleEntry& entry, const ShapeOptions& options) {
  ShapeOptions usable = options;
  if (!entry.uses_chunks || entry.fixed_chunks > 0) usable.chunks = 0;
  if (!entry.uses_slices) usable.slices = 0;
  if (!entry.uses_group) usable.group = 0;
  if (!entry.uses_overlap) usable.overlap = false;
  if (!entry.updates_within) usable.update_every = 0;
  return shape_for(entry, usable);
}

void add_times(CLI::App& command, TimesOptions& options) {
  command
      .add_option(
          "--times", options.times,
          "F,I,W[,HOP]: forward, input and weight gradient of one rank's share of a microbatch, and the latency "
          "between ranks. Or the times of each stage, separated by ':', as in 1,1,1:2,2,2. Default: 1,1,1.")
      ->type_name("TIMES");
  command
      .add_option("--head-times", options.head_times,
                  "F,I,W of a vocabulary shard of the head, with --vocabulary. Default: a quarter of --times.")
      ->type_name("TIMES");
  command
      .add_option("--hidden", options.hidden,
                  "Fraction of an overlapped pair's shorter action that the longer one hides.")
      ->check(number_from(0, 1))
      ->capture_default_str();
}

namespace {

std::vector<double> parse_numbers(const std::string& text, const std::string& option, const std::string& expected) {
  std::vector<double> numbers;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    double number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc() || end != item.data() + item.size() || !(number >= 0) || number > longest_time.value) {
      throw InputError(option, "'" + item + "' is not a time", "expected " + expected + ", each from zero to 1e9");
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

ShareTimes parse_times(const TimesOptions& options) {
  std::vector<std::vector<double>> entries;
  std::istringstream texts(options.times.empty() ? "1,1,1" : options.times);
  for (std::string text; std::getline(texts, text, ':');) {
    entries.push_back(parse_numbers(text, "--times", "F,I,W or F,I,W,HOP"));
    const std::size_t count = entries.back().size();
    if (count == 3 || (count == 4 && entries.size() == 1)) continue;
    throw InputError("--times",
                     entries.size() == 1
                         ? fmt::format("expected F,I,W or F,I,W,HOP, found {} numbers", count)
                         : fmt::format("expected F,I,W of stage {}, found {} numbers", entries.size() - 1, count),
                     "for example --times 1,1,1 or --times 1,1,1,0.1 or, of two stages, --times 1,1,1:2,2,2");
  }
  const std::vector<double>& numbers = entries.front();
  std::vector<double> head{numbers[0] / 4, numbers[1] / 4, numbers[2] / 4};
  if (!options.head_times.empty()) head = parse_numbers(options.head_times, "--head-times", "F,I,W");
  if (head.size() != 3) {
    throw InputError("--head-times", fmt::format("expected F,I,W, found {} numbers", head.size()),
                     "for example --head-times 0.2,0.2,0.2");
  }
  ShareTimes times{numbers[0],     numbers[1], numbers[2], numbers.size() == 4 ? numbers[3] : 0,
                   options.hidden, head[0],    head[1],    head[2]};
  if (entries.size() == 1) return times;
  for (const std::vector<double>& entry : entries) times.stages.push_back({entry[0], entry[1], entry[2]});
  return times;
}

void require_head(const TimesOptions& options, bool divides_vocabulary) {
  if (options.head_times.empty() || divides_vocabulary) return;
  throw InputError("--head-times", "belongs to a sharded vocabulary, and here the head is whole",
                   "add --vocabulary 1, or leave it out");
}

Schedule generate(const ScheduleEntry& entry, const ScheduleShape& shape, const ShareTimes& times) {
  if (!entry.uses_times) return entry.generate(shape);
  const Schedule schedule = empty_schedule(entry.name, shape);
  const PipelineCosts costs = share_costs(schedule, times);
  AutoProblem problem{.ranks = schedule.ranks,
                      .microbatches = schedule.microbatches,
                      .rank_of_stage = {},
                      .stages = {},
                      .hop = std::vector<Seconds>(costs.stages.size() - 1, Seconds{times.hop}),
                      .limit = {}};
  for (const ComputeCost& stage : costs.stages) {
    problem.stages.push_back({.forward = stage.forward,
                              .input_gradient = stage.input_gradient,
                              .weight_gradient = stage.weight_gradient,
                              .kept = {1},
                              .kept_for_weight = {1}});
  }
  problem.limit.assign(static_cast<std::size_t>(schedule.ranks), Bytes{std::int64_t{schedule.ranks} * schedule.chunks});
  return schedule_zb_auto(std::move(problem), auto_placements(shape.ranks, shape.chunks), shape.chunks);
}

PipelineCosts share_costs(const Schedule& schedule, const ShareTimes& times) {
  PipelineCosts costs = even_costs(all_stages(schedule), {.forward = {times.forward},
                                                          .input_gradient = {times.input_gradient},
                                                          .weight_gradient = {times.weight_gradient},
                                                          .hop = {times.hop},
                                                          .hidden_in_pairs = times.hidden});
  std::vector<double> parts_of_rank;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    parts_of_rank.push_back(static_cast<double>(chunks_of_rank(schedule, rank)) * schedule.slices);
  }
  if (!times.stages.empty() && std::ssize(times.stages) != stages(schedule)) {
    throw InputError(
        "--times",
        fmt::format("{} has {} stages, found times of {}", schedule.name, stages(schedule), times.stages.size()),
        "F,I,W of each stage, separated by ':', or of one rank's share");
  }
  for (int stage = 0; stage < stages(schedule); ++stage) {
    if (!times.stages.empty()) {
      const StageTimes& own = times.stages[static_cast<std::size_t>(stage)];
      ComputeCost& cost = costs.stages[static_cast<std::size_t>(stage)];
      cost.forward = Seconds{own.forward} / schedule.slices;
      cost.input_gradient = Seconds{own.input_gradient} / schedule.slices;
      cost.weight_gradient = Seconds{own.weight_gradient} / schedule.slices;
      continue;
    }
    const double parts = parts_of_rank[static_cast<std::size_t>(rank_in_replica(schedule, 0, stage))];
    ComputeCost& cost = costs.stages[static_cast<std::size_t>(stage)];
    cost.forward = cost.forward / parts;
    cost.input_gradient = cost.input_gradient / parts;
    cost.weight_gradient = cost.weight_gradient / parts;
  }
  if (schedule.vocabulary_barriers == 0) return costs;
  const JoinCost hop{.latency = {times.hop}, .alone = {times.hop}};
  costs.vocabulary = {.parts = schedule.ranks};
  for (const auto& [name, join] : vocabulary_joins) costs.vocabulary.*join = hop;
  for (int stage = stages(schedule); stage < all_stages(schedule); ++stage) {
    ComputeCost& part = costs.stages[static_cast<std::size_t>(stage)] = {};
    if (sort_of_stage(schedule, stage) == StageSort::embedding) continue;
    part.forward = {times.head_forward};
    part.input_gradient = {times.head_input_gradient};
    part.weight_gradient = {times.head_weight_gradient};
  }
  return costs;
}

MeasuredSchedule measure(Schedule schedule, const ShareTimes& times,
                         const std::function<void(std::string_view)>& begins) {
  const auto begin = [&](std::string_view what) {
    if (begins) begins(what);
  };
  MeasuredSchedule measured{
      .schedule = std::move(schedule), .step = {}, .bubbles = {}, .peaks = {}, .weight_versions = {}};
  begin("messages");
  const Schedule lowered = is_lowered(measured.schedule)
                               ? measured.schedule
                               : lower(measured.schedule, {.optimizer = false, .tied_embeddings = false});
  begin("the graph");
  const ScheduleGraph graph = build_graph(lowered, share_costs(lowered, times));
  begin("the longest path");
  const Evaluation evaluation = evaluate(graph);
  begin("the order of all events");
  std::vector<Event> events;
  events.reserve(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    events.push_back({.action = node.action,
                      .rank = node.rank,
                      .peer = node.peer,
                      .start = evaluation.start[i],
                      .end = evaluation.end[i],
                      .waited = {},
                      .bytes = node.bytes});
  }
  measured.step = ordered_step(std::move(events));
  measured.bubbles = bubbles(graph, evaluation);
  begin("memory");
  measured.peaks = peak_activations(measured.schedule);
  const std::vector<int> versions = weight_versions_kept(measured.schedule);
  measured.weight_versions.assign(static_cast<std::size_t>(measured.schedule.ranks), 1);
  for (std::size_t stage = 0; stage < versions.size(); ++stage) {
    int& most_here = measured.weight_versions[static_cast<std::size_t>(measured.schedule.rank_of_stage[stage])];
    most_here = std::max(most_here, versions[stage]);
  }
  return measured;
}

}  // namespace plumb::sim
