#include "common/search/family.hpp"

namespace plumb {

Scenario settled(const Scenario& scenario, const Family& family) {
  Scenario result = scenario;
  result.layout = family.layout;
  result.training.microbatch = family.microbatch;
  result.training.recompute = family.recompute;
  result.training.offload = family.offload;
  result.layouts = {family.layout};
  result.recomputes = {family.recompute};
  result.offloads = {family.offload};
  result.microbatches = {family.microbatch};
  result.schedules = {family.schedule};
  return result;
}

}  // namespace plumb
