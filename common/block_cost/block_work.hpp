// What a block does and of what it is made, remembered: neither machine nor schedule nor split counts for it, so that
// most plans that are weighed one after the other have it in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/block_cost/block_shapes.hpp"
#include "common/program/block_program.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

// Of the scenario's microbatch, or of a slice of it, with experts that are all chosen alike.
struct BlockWork {
  BlockShapes shapes;
  BlockProgram program;
};

// By the scenario's model, tensor layout, training and software. What was made is kept for all threads, up to some
// number, so that the same question gives the same answer. What is made throws as shapes_of_block and block_program do.
[[nodiscard]] std::shared_ptr<const BlockWork> work_of_block(const Scenario& scenario, std::size_t block,
                                                             Slice slice = {});

// Elements of the embedding's table that one rank stores, which a tied head has, too; of a model without tokens none.
// Remembered likewise.
[[nodiscard]] std::int64_t table_of_rank(const Scenario& scenario);

}  // namespace plumb
