// Options that the commands of `plumb schedule` share: a shape and times, and a schedule measured by them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/evaluate.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/timeline/timeline.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {

// 0: not given.
struct ShapeOptions {
  int ranks = 0;
  int microbatches = 0;
  int chunks = 0;  // then 2 where the schedule has several, else 1
  int slices = 0;  // then 2 where the schedule cuts sequences, else 1
  int group = 0;   // this and the next: then the schedule's own
  int update_every = 0;
  bool overlap = false;
  int vocabulary = 0;  // barriers of one that the ranks divide; then none
};

// Both also bound to ranks and microbatches if these are `required`; else the caller checks.
void add_shape(CLI::App& command, ShapeOptions& options, bool required = true);

// The shape as asked for: the generator refuses options that the schedule has no use for.
[[nodiscard]] ScheduleShape shape_for(const ScheduleEntry& entry, const ShapeOptions& options);
// Of several schedules each takes what it has a use for; not so a divided vocabulary, without which a head's time would
// stand beside none.
[[nodiscard]] ScheduleShape usable_shape_for(const ScheduleEntry& entry, const ShapeOptions& options);

// Times of one stage for one microbatch, in the user's own unit.
struct StageTimes {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
};

// Times of one rank's share of one microbatch (a slice takes its part of that), in the user's own unit.
struct ShareTimes {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double hop = 0;
  double hidden = 0;  // fraction of an overlapped pair's shorter action that the longer one hides
  // Vocabulary shard of the head; the embedding's lookup takes no time.
  double head_forward = 0;
  double head_input_gradient = 0;
  double head_weight_gradient = 0;
  std::vector<StageTimes> stages = {};  // by stage; empty if all ranks have the same share
};
// Bound as --times, --head-times and --hidden.
struct TimesOptions {
  std::string times;  // empty: 1,1,1
  std::string head_times;
  double hidden = 0;
};
void add_times(CLI::App& command, TimesOptions& options);
[[nodiscard]] ShareTimes parse_times(const TimesOptions& options);
// Throws InputError where --head-times is given and nothing is divided that they could be of.
void require_head(const TimesOptions& options, bool divides_vocabulary);

// A schedule that is made for times is made for these.
[[nodiscard]] Schedule generate(const ScheduleEntry& entry, const ScheduleShape& shape, const ShareTimes& times);

// Divides a rank's share evenly over the stages that the rank holds of one replica; a stage with times of its own takes
// those. Throws InputError if the number of times is not the number of stages.
[[nodiscard]] PipelineCosts share_costs(const Schedule& schedule, const ShareTimes& times);

// By the longest path.
struct MeasuredSchedule {
  Schedule schedule;  // compute only
  StepTimeline step;
  Bubbles bubbles;
  std::vector<double> peaks;         // activations per rank, in one rank's share
  std::vector<int> weight_versions;  // per rank, of the stage that has most
};
// `begins` is told what comes next, `parts_of_measuring` times.
inline constexpr int parts_of_measuring = 5;
[[nodiscard]] MeasuredSchedule measure(Schedule schedule, const ShareTimes& times,
                                       const std::function<void(std::string_view)>& begins = {});

void add_schedule_list(CLI::App& parent, Body& body);
void add_schedule_show(CLI::App& parent, Body& body);
void add_schedule_compare(CLI::App& parent, Body& body);

}  // namespace plumb::sim
