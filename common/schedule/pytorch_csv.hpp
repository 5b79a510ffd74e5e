// Schedules as the compute-only CSV of torch.distributed.pipelining (torchtitan: pipeline_parallel_schedule_csv).
#pragma once

#include <string>
#include <string_view>

#include "common/schedule/schedule.hpp"

namespace plumb {

// No header, a row per rank, a cell per step, blank where a rank is idle; a cell is stage, letter and microbatch with
// F forward, B full backward, I input gradient, W weight gradient. Every action takes one step and stands where its
// inputs allow. Throws InputError (where = "schedule NAME") for a schedule that is not valid, and for recompute, which
// PyTorch has in the model.
[[nodiscard]] std::string to_pytorch_csv(const Schedule& schedule);

// The inverse; blanks may stand anywhere. The rank of a stage is the one whose row it stands in. `file` is named in
// errors: InputError with line and column (in characters) for a cell that cannot be read, a stage on two rows, a stage
// that stands nowhere, rows with different numbers of stages. Says nothing on order: `validate` does.
[[nodiscard]] Schedule parse_pytorch_csv(std::string_view text, const std::string& file);

}  // namespace plumb
