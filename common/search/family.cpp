#include "common/search/family.hpp"

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

}  // namespace plumb
