// What the plans of a table are set against, and by what measure.
#pragma once

#include <string>

#include "common/planner/planner.hpp"

namespace plumb::sim {

// The one measure of a gain: by what part of the reference's time a step is longer, shorter if negative.
[[nodiscard]] double change_from(const Candidate& reference, const Candidate& candidate);

// What a candidate's split is set against: the uniform one with the same layout, schedule and microbatch; none if that
// is this one or could not be built. Equal numbers of layers on stages of unequal data degrees are no reference: there
// it is the fastest uniform split that is here of a layout with one degree.
[[nodiscard]] const Candidate* uniform_of(const Candidate& candidate, const PlanningResult& result);

// The change from it as text, empty if there is none; marked "(too large)" where it does not fit in memory.
[[nodiscard]] std::string against_uniform(const Candidate& candidate, const PlanningResult& result);

// The fastest uniform split that fits, of any schedule and layout that was weighed; none: nullptr.
[[nodiscard]] const Candidate* fitting_uniform(const PlanningResult& result);

// Why the table has no data degrees by stage although they are asked for; empty: it has, or they are not.
[[nodiscard]] std::string no_stage_data(const Scenario& scenario);

}  // namespace plumb::sim
