// All schedules by name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

struct ScheduleEntry {
  std::string name;         // as in a scenario: "zb-h1"
  std::string title;        // as in the paper: "ZB-H1"
  std::string source;       // paper and section
  std::string requirement;  // what the shape must satisfy, in words
  // As formulas, in the letters of common/schedule/generators/generators.hpp; the generator says for which shapes they
  // hold.
  std::string bubble = {};  // of the makespan unless said; stages alike, messages free
  std::string memory = {};  // of the fullest rank, in activations of one rank's share of a microbatch
  // The same with a vocabulary divided over the ranks, with b barriers, where w is W of a rank's part of the head; of
  // the bubble empty where no form is known.
  std::string divided_bubble = {};
  std::string divided_memory = {};
  bool splits_backward = false;  // uses I and W instead of B
  bool uses_chunks = false;      // several stages on a rank
  int fixed_chunks = 0;          // 2 where it must be two; 0: any number that uses_chunks allows
  int chunk_multiple = 1;        // their number must be a multiple of it
  bool uses_slices = false;      // cuts sequences
  bool uses_group = false;
  bool uses_overlap = false;        // runs overlapped pairs if asked to
  bool updates_within = false;      // several optimizer steps per step: asynchronous
  bool uses_times = false;          // made for the stages' times (zb-auto): `generate` takes all stages alike
  bool divides_vocabulary = false;  // over the ranks, if asked to
  bool trains_replicas = false;     // two copies of the model, one in each direction
  // What searches make use of, where the order alone tells it, whatever actions take; none: it does not, or nobody has
  // needed it yet. Microbatches that a rank holds at its fullest, each from its F until its I or B:
  std::function<int(const ScheduleShape& shape, int rank)> most_held = {};
  // Microbatches of one turn of its steady state; 0: this shape has none. Its lists for more microbatches are those for
  // fewer with more turns in the middle, so that one graph stands for many.
  std::function<int(const ScheduleShape& shape)> steady_turn = {};
  bool has_warm_up = true;  // before and behind that state; false: every microbatch is a turn
  std::function<Schedule(const ScheduleShape&)> generate;  // throws InputError when the requirement does not hold
};

// Slices of a sequence where the user gives no number.
inline constexpr int default_slices = 4;

// Every schedule, in the order in which `plumb schedule list` prints them.
[[nodiscard]] const std::vector<ScheduleEntry>& schedule_entries();

// The names of those of which it is true, as a list in words: schedules_with(&ScheduleEntry::uses_chunks).
[[nodiscard]] std::string schedules_with(bool ScheduleEntry::*use);

// Throws InputError (where = "schedule") with a did-you-mean for an unknown name.
[[nodiscard]] const ScheduleEntry& find_schedule(std::string_view name);

[[nodiscard]] Schedule generate_schedule(std::string_view name, const ScheduleShape& shape);

}  // namespace plumb
