// Of a schedule that cuts sequences, the tokens of each slice: as many each, as written down, or of equal work.
#pragma once

#include <cstdint>
#include <vector>

#include "common/scenario/scenario.hpp"
#include "common/split/equal_work.hpp"

namespace plumb {

// Throws InputError where the choice's slices do not make up the scenario's sequence, or cannot be in its layout.
void require_slices_possible(const Scenario& scenario, const ScheduleChoice& choice);

// As a schedule has them: empty where all are equal. The scenario's layout and recompute are settled, the slices
// possible. Of equal work: of all blocks of the model together, F and B of the choice's microbatch, by their costs; in
// multiples of slice_multiple, or of twice, four times … as many tokens where the step is then shorter, by the longest
// path on equal stages: matmuls of other numbers of tokens may have to begin one more wave of tiles.
[[nodiscard]] std::vector<std::int64_t> slice_tokens(const Scenario& scenario, const PlanChoice& choice);

// Whether a plan has slices of equal work only where equal numbers of tokens are no better: there are such, and they
// are costed alike (a profile's are even parts).
[[nodiscard]] bool competes_with_equal_slices(const Scenario& scenario, const ScheduleChoice& choice);

// What slices of equal work have a multiple of: 128, which the tokens of tiles of fast matmuls are a multiple of or
// half of, and whole chunks of the model's recurrences; half and half again of that as long as slices would have fewer
// than eight multiples on average. With sequence parallelism of the tensor degree in any case.
[[nodiscard]] std::int64_t slice_multiple(const Scenario& scenario, int slices);

}  // namespace plumb
