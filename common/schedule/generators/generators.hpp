// The schedules themselves: pure functions from a shape to one list of compute actions per rank. Callers go through the
// registry.
#pragma once

#include <string>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// In the formulas above each generator: p ranks, v chunks per rank, m microbatches, r the rank; F, I, W the times of
// one rank's share (all its chunks) of one microbatch, B = I + W. Bubble: makespan − busy. Memory: peak number of
// microbatches whose activations rank r holds, in one rank's share.
[[nodiscard]] Schedule generate_gpipe(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_one_f_one_b(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_interleaved_1f1b(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_zb_h1(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_eager_1f1b(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_breadth_first(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_zb_h2(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_zb_v(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_zb_auto(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_interleaved_zb(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_v_half(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_v_min(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_dualpipe(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_dualpipe_v(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_chimera(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_hanayo(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_seq_1f1b(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_bpipe(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_pipedream(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_pipedream_2bw(const ScheduleShape& shape);

// 1F1B's lists with STEP u after the B that ends every `every` microbatches: what both PipeDreams run.
[[nodiscard]] std::vector<std::vector<Action>> one_f_one_b_with_updates(const ScheduleShape& shape, int every);

// An empty schedule of that shape in loop placement. Throws InputError (where = "schedule NAME") when a number is below
// 1 (`group` and `update_every`: below 0), the shape is absurdly large, or something is given (chunks, slices, a group,
// an update interval, overlap) that the schedule's entry in the registry has no use for.
[[nodiscard]] Schedule empty_schedule(const std::string& name, const ScheduleShape& shape);

}  // namespace plumb
