// A plan whose placement is settled.
#pragma once

#include <vector>

#include "common/plan/plan.hpp"
#include "common/schedule/zb_auto.hpp"

namespace plumb {

// `placement`: of a schedule that is made for times; none: the schedule's own. `room`: what each rank may keep beside
// what is left without the worst workspace and messages at once; empty: nothing.
[[nodiscard]] Plan plan_on(const Scenario& asked, const PlanChoice& choice, Placement placement,
                           const std::vector<Bytes>& room = {});

}  // namespace plumb
