// What a block's program keeps of a microbatch.
#pragma once

#include <vector>

#include "common/program/block_program.hpp"

namespace plumb {

// Bytes on one rank.
struct ProgramMemory {
  double kept = 0;             // after F, until I
  double kept_for_weight = 0;  // after I, until W
  double redone = 0;           // of `kept`, what selective recompute frees and makes again
};
[[nodiscard]] ProgramMemory program_memory(const BlockProgram& program);

// What each operation keeps.
[[nodiscard]] std::vector<KeptValue> kept_values(const std::vector<Operation>& operations, const KernelContext& context,
                                                 const PlacedBlock& placed);

// The largest moments of single operations.
[[nodiscard]] Working largest_working(const std::vector<KeptValue>& kept);

}  // namespace plumb
