#include "common/plan/timeline_head.hpp"

#include "common/model/operations.hpp"

namespace plumb {

Timeline timeline_head(const Plan& plan, const Schedule& lowered, TimelineSource source, const std::string& producer) {
  return {.source = source,
          .producer = producer,
          .plan_name = plan.name,
          .plan_digest = plan_digest(plan),
          .costs_digest = costs_digest(plan.costs),
          .tokens_per_step = plan.training.global_batch * plan.training.sequence,
          .model_flops = model_flops(plan.model, plan.training.sequence, plan.training.global_batch),
          .schedule = lowered,
          .costs = plan.costs,
          .ranks = {},
          .steps = {}};
}

}  // namespace plumb
