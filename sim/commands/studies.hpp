// Studies beside a prediction of `simulate`: variants, derivatives, uncertainty, and the order of two plans.
#pragma once

#include <string>
#include <vector>

#include "common/base/document/json.hpp"
#include "common/graph/disturbance.hpp"
#include "common/plan/plan.hpp"
#include "common/study/uncertainty.hpp"

namespace plumb::sim {

struct Study {
  Json json = {};         // keys of the command's object
  std::string text = {};  // lines behind the prediction's
};

// Rows with change to `planned`, the plan as it is. Throws InputError as `read_what_if`, and for disturbances that the
// engine does not know.
[[nodiscard]] Study what_if_study(const std::string& file, const Plan& plan, const StepEngine& engine);

[[nodiscard]] Study sensitivity_study(const Plan& plan, const StepEngine& engine);

// `iteration`: the prediction that the draws are fractions of.
[[nodiscard]] Study uncertainty_study(const Plan& plan, Seconds iteration, const DrawOptions& options);

[[nodiscard]] Study ranking_study(const Plan& plan, const Plan& other, const DrawOptions& options);

}  // namespace plumb::sim
