// Schedules as CSV files of torch.distributed.pipelining: a row per rank, a cell per step, an empty cell where it
// idles.
#pragma once

#include <filesystem>
#include <string>

#include "common/schedule/schedule.hpp"

namespace plumb {

// PyTorch's `compute_only` form, without transfers, which PyTorch adds itself; torchtitan's option
// pipeline_parallel_schedule_csv runs it. Takes compute-only schedules; recomputes, which PyTorch does not know, are
// left out.
[[nodiscard]] std::string to_pytorch_csv(const Schedule& schedule);

// Either form, `compute_only` or `compute_comms`. Each stage belongs to the first rank that has an action of it. Throws
// InputError with file, line and column for what is no action, and where a stage stands on no rank.
[[nodiscard]] Schedule read_pytorch_csv(const std::filesystem::path& path);

}  // namespace plumb
