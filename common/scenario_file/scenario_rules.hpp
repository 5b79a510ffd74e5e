// Rules that the blocks of a scenario keep together. The reader applies each at the key that breaks it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/layout.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

// Bounds of a schedule from the other blocks.
struct ScheduleBounds {
  int pipeline = 1;
  int layers = 1;
  std::vector<std::int64_t> microbatches = {};  // per step, one for each size left open
  std::int64_t sequences_per_microbatch = 1;    // of the first size, over all data-parallel ranks
  bool open = false;                            // true if other layouts are open: a schedule need not suit this one
};
[[nodiscard]] ScheduleBounds schedule_bounds(const Scenario& scenario);

// Returns the batch of a scenario that names none, for a largest microbatch of this size.
[[nodiscard]] std::int64_t default_batch(const Scenario& scenario, std::int64_t microbatch);

// "slices: 2 or 4": the divisors of `whole` on both sides of `wanted`, for a hint.
[[nodiscard]] std::string nearest_divisors(const std::string& key, std::int64_t whole, std::int64_t wanted);

// Each throws InputError. A rule about one layout passes where several are open: the planner refuses those that break
// it. A rule about stages passes if some layout and schedule keep it.
void require_divided_batch(const Scenario& scenario);
void require_divided_shares(const Scenario& scenario);
void require_divided_vocabulary(const Scenario& scenario);
void require_stages_fit(const Scenario& scenario);
void require_split_fits(const Scenario& scenario, const SplitChoice& split);
// `where` of the error is "slices" or "schedule".
void require_slices_fit(const ScheduleChoice& choice, std::int64_t sequence);
void require_schedule_fits(const Scenario& scenario, const ScheduleBounds& bounds);
void require_countable_messages(const Scenario& scenario);

// Throws InputError unless a file that says what this scenario has, with one layout, would be read. Everything that
// changes a scenario in memory calls it before it plans.
void require_valid(const Scenario& asked);

}  // namespace plumb
