// Holds a block's program against the placed block that it was written from: every collective, and as many bytes.
#pragma once

#include "common/placement/placed_block.hpp"
#include "common/program/step.hpp"

namespace plumb {

// Throws std::logic_error that names site, tensor and phase of a collective that the program has not as often as the
// placed block, or with which a rank receives other bytes. Of experts' rows, whose load may differ, not the bytes.
// Where operations are frozen (`trains_all` false) I and W may be without some.
void require_all_moves(const BlockProgram& program, const PlacedBlock& placed, ElementType precision, bool trains_all);

}  // namespace plumb
