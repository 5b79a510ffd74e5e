// A plan whose placement is settled.
#pragma once

#include "common/plan/plan.hpp"
#include "common/schedule/zb_auto.hpp"

namespace plumb {

// `placement`: of a schedule that is made for times; none: the schedule's own.
[[nodiscard]] Plan plan_on(const Scenario& asked, const PlanChoice& choice, Placement placement);

}  // namespace plumb
