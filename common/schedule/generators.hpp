// The schedules themselves: pure functions from a shape to one list of compute actions per rank. Callers go through the
// registry.
#pragma once

#include <string>

#include "common/schedule/schedule.hpp"

namespace plumb {

// In the formulas above each generator: p ranks, v chunks per rank, m microbatches, r the rank; F, I, W the times of
// one rank's share (all its chunks) of one microbatch, B = I + W. Bubble: makespan − busy. Memory: peak number of
// microbatches whose activations rank r holds, in one rank's share.
[[nodiscard]] Schedule generate_gpipe(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_one_f_one_b(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_interleaved_1f1b(const ScheduleShape& shape);
[[nodiscard]] Schedule generate_zb_h1(const ScheduleShape& shape);

// An empty schedule of that shape in loop placement. Throws InputError (where = "schedule NAME") when a number is below
// 1, the shape is absurdly large, or there are several chunks and the schedule has no use for them.
[[nodiscard]] Schedule empty_schedule(const std::string& name, const ScheduleShape& shape, bool uses_chunks);

}  // namespace plumb
