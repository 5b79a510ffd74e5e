// A plan's step through SimGrid, of one rank for each stage and of all.
#pragma once

#include "sim/predict.hpp"

namespace plumb::tests {

inline double folded_seconds(const Plan& plan) {
  return sim::find_engine("simgrid")(plan).steps.front().duration.value;
}

inline double unfolded_seconds(const Plan& plan) {
  return sim::predict_unfolded(plan, "simgrid").steps.front().duration.value;
}

}  // namespace plumb::tests
