#include "common/schedule/generators.hpp"

#include <fmt/format.h>

#include "common/base/error.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/registry.hpp"

namespace plumb {

Schedule empty_schedule(const std::string& name, const ScheduleShape& shape, bool uses_chunks) {
  const std::string where = "schedule " + name;
  if (shape.ranks < 1 || shape.microbatches < 1 || shape.chunks < 1) {
    throw InputError(where, fmt::format("{} ranks, {} microbatches, {} chunks: each must be at least 1", shape.ranks,
                                        shape.microbatches, shape.chunks));
  }
  if (!uses_chunks && shape.chunks != 1) {
    throw InputError(where, fmt::format("{} chunks per rank, but it has one stage per rank", shape.chunks),
                     schedules_with_chunks() + " can have several");
  }
  // Each factor is checked on the way, so that the product cannot overflow.
  std::int64_t pairs = 1;
  for (const int factor : {shape.ranks, shape.microbatches, shape.chunks}) {
    pairs *= factor;
    if (pairs > largest_schedule) {
      throw InputError(where, fmt::format("{} ranks × {} chunks × {} microbatches is more than {}", shape.ranks,
                                          shape.chunks, shape.microbatches, largest_schedule));
    }
  }
  return {.name = name,
          .ranks = shape.ranks,
          .microbatches = shape.microbatches,
          .chunks = shape.chunks,
          .rank_of_stage = loop_placement(shape.ranks, shape.chunks),
          .actions = std::vector<std::vector<Action>>(static_cast<std::size_t>(shape.ranks))};
}

}  // namespace plumb
