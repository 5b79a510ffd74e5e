#include "common/schedule/generators/generators.hpp"

#include <fmt/format.h>

#include "common/base/error.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

std::string belongs_to_those_with(bool ScheduleEntry::*use) { return "that belongs to " + schedules_with(use); }

// Throws InputError for a number that is out of range, and for what this schedule does not use.
void require_shape(const std::string& where, const ScheduleEntry& entry, const ScheduleShape& shape) {
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
                     schedules_with(&ScheduleEntry::uses_chunks) + " can have several");
  }
  if (entry.fixed_chunks > 0 && shape.chunks != entry.fixed_chunks) {
    throw InputError(where, fmt::format("{} chunks per rank, but it has {}", shape.chunks, entry.fixed_chunks));
  }
  if (!entry.uses_slices && shape.slices != 1) {
    throw InputError(where, fmt::format("{} slices, but it does not cut sequences", shape.slices),
                     belongs_to_those_with(&ScheduleEntry::uses_slices));
  }
  if (!entry.uses_group && shape.group != 0) {
    throw InputError(where, fmt::format("a group of {}, but it has no groups of microbatches", shape.group),
                     belongs_to_those_with(&ScheduleEntry::uses_group));
  }
  if (!entry.uses_overlap && shape.overlap) {
    throw InputError(where, "it has no form with and without overlapped pairs", "interleaved-1f1b has");
  }
  if (!entry.updates_within && shape.update_every != 0) {
    throw InputError(
        where,
        fmt::format("an update every {} microbatches, but it updates weights once, at the end", shape.update_every),
        belongs_to_those_with(&ScheduleEntry::updates_within));
  }
  if (!entry.divides_vocabulary && shape.vocabulary_barriers != 0) {
    throw InputError(
        where,
        fmt::format("a vocabulary divided with {} barrier{}, but its {} ranks do not divide the vocabulary",
                    shape.vocabulary_barriers, shape.vocabulary_barriers == 1 ? "" : "s", shape.ranks),
        belongs_to_those_with(&ScheduleEntry::divides_vocabulary));
  }
}

}  // namespace

Schedule empty_schedule(const std::string& name, const ScheduleShape& shape) {
  const std::string where = "schedule " + name;
  require_shape(where, find_schedule(name), shape);
  const bool divides = shape.vocabulary_barriers != 0;
  // As floating point the product cannot overflow.
  const double pairs =
      static_cast<double>(shape.ranks) * (shape.chunks + (divides ? 2 : 0)) * shape.slices * shape.microbatches;
  if (pairs > static_cast<double>(largest_schedule)) {
    throw InputError(
        where, fmt::format("{} ranks × {} chunks × {} slices × {} microbatches = {:.10g}, more than {}", shape.ranks,
                           shape.chunks, shape.slices, shape.microbatches, pairs, largest_schedule));
  }
  Schedule schedule{.name = name,
                    .ranks = shape.ranks,
                    .microbatches = shape.microbatches * shape.slices,
                    .chunks = shape.chunks,
                    .slices = shape.slices,
                    .rank_of_stage = loop_placement(shape.ranks, shape.chunks + (divides ? 2 : 0)),
                    .actions = std::vector<std::vector<Action>>(static_cast<std::size_t>(shape.ranks)),
                    .vocabulary_barriers = shape.vocabulary_barriers};
  require_parts(schedule);
  return schedule;
}

}  // namespace plumb
