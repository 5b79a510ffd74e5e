#include "common/plan/timeline_head.hpp"

#include "common/model/lora.hpp"

namespace plumb {

Flops trained_flops(const Plan& plan) {
  const Training& training = plan.training;
  return training.lora ? model_flops(plan.model, training.sequence, training.global_batch, *training.lora)
                       : model_flops(plan.model, training.sequence, training.global_batch);
}

Timeline timeline_head(const Plan& plan, const Schedule& lowered, TimelineSource source, const std::string& producer) {
  const DeviceProfile& device = plan.cluster.machine.device;
  return {.source = source,
          .producer = producer,
          .plan_name = plan.name,
          .plan_digest = plan_digest(plan),
          .costs_digest = costs_digest(plan.costs),
          .tokens_per_step = plan.training.global_batch * plan.training.sequence,
          .model_flops = trained_flops(plan),
          .schedule = lowered,
          .costs = plan.costs,
          .ranks = {},
          .steps = {},
          .memory_limit = device.memory.value,
          .peak_flops = {device.peak.value.value * plan.cluster.ranks},
          .layout_name = describe(plan.layout),
          .split = describe(plan.split)};
}

}  // namespace plumb
