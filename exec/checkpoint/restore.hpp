// Puts a checkpoint into the stages of a rank, whatever the layout of the run that wrote it: of each file only the
// blocks that have something for this rank are read.
#pragma once

#include <memory>
#include <vector>

#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/stage/stage.hpp"

namespace plumb::exec {

// Weights, states and the number of optimizer steps. Of a checkpoint that require_fits has let pass. It needs memory
// for one tensor of the rank at a time. Every block that is read is checked. Throws InputError that names the file:
// missing, cut short, altered, or other than the index says; or with a value that is not finite, as a training leaves
// behind whose loss was lost before it saved.
void restore(const Checkpoint& checkpoint, const std::vector<std::unique_ptr<Stage>>& stages);

}  // namespace plumb::exec
