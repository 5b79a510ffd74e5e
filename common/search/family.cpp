#include "common/search/family.hpp"

#include "common/schedule/registry.hpp"

namespace plumb {

Scenario settled(const Scenario& scenario, const Family& family) {
  Scenario result = scenario;
  result.layout = family.layout;
  result.training.microbatch = family.microbatch;
  result.training.recompute = family.recompute;
  result.layouts = {family.layout};
  result.recomputes = {family.recompute};
  result.microbatches = {family.microbatch};
  result.schedules = {family.schedule};
  return result;
}

bool is_made_for_times(const ScheduleChoice& schedule) {
  return !schedule.given && find_schedule(schedule.name).uses_times;
}

}  // namespace plumb
