#include "common/schedule/generators.hpp"

#include <fmt/format.h>

#include "common/base/error.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/registry.hpp"

namespace plumb {

Schedule empty_schedule(const std::string& name, const ScheduleShape& shape) {
  const std::string where = "schedule " + name;
  const ScheduleEntry& entry = find_schedule(name);
  if (shape.ranks < 1 || shape.microbatches < 1 || shape.chunks < 1 || shape.slices < 1) {
    throw InputError(where, fmt::format("{} ranks, {} microbatches, {} chunks, {} slices: each must be at least 1",
                                        shape.ranks, shape.microbatches, shape.chunks, shape.slices));
  }
  if (shape.group < 0 || shape.update_every < 0) {
    throw InputError(where, fmt::format("a group of {} and an update every {} microbatches: neither may be negative",
                                        shape.group, shape.update_every));
  }
  if (!entry.uses_chunks && shape.chunks != 1) {
    throw InputError(where, fmt::format("{} chunks per rank, but it has one stage per rank", shape.chunks),
                     schedules_with_chunks() + " can have several");
  }
  if (entry.fixed_chunks > 0 && shape.chunks != entry.fixed_chunks) {
    throw InputError(where, fmt::format("{} chunks per rank, but it has {}", shape.chunks, entry.fixed_chunks));
  }
  if (!entry.uses_slices && shape.slices != 1) {
    throw InputError(where, fmt::format("{} slices, but it does not cut sequences", shape.slices));
  }
  if (!entry.uses_group && shape.group != 0) {
    throw InputError(where, fmt::format("a group of {}, but it has no groups of microbatches", shape.group));
  }
  if (!entry.uses_overlap && shape.overlap) {
    throw InputError(where, "it has no form with and without overlapped pairs", "interleaved-1f1b has");
  }
  if (!entry.updates_within && shape.update_every != 0) {
    throw InputError(where, fmt::format("an update every {} microbatches, but it updates weights once, at the end",
                                        shape.update_every));
  }
  // Each factor is checked on the way, so that the product cannot overflow.
  std::int64_t pairs = 1;
  for (const int factor : {shape.ranks, shape.chunks, shape.slices, shape.microbatches}) {
    pairs *= factor;
    if (pairs > largest_schedule) {
      throw InputError(where,
                       fmt::format("{} ranks × {} chunks × {} slices × {} microbatches is more than {}", shape.ranks,
                                   shape.chunks, shape.slices, shape.microbatches, largest_schedule));
    }
  }
  return {.name = name,
          .ranks = shape.ranks,
          .microbatches = shape.microbatches * shape.slices,
          .chunks = shape.chunks,
          .slices = shape.slices,
          .rank_of_stage = loop_placement(shape.ranks, shape.chunks),
          .actions = std::vector<std::vector<Action>>(static_cast<std::size_t>(shape.ranks))};
}

}  // namespace plumb
