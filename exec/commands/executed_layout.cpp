#include "exec/commands/executed_layout.hpp"

namespace plumb::exec {
namespace {

void require_plain_gradients(const Plan& plan) {
  if (plan.layout.data.sharding == Sharding::none) return;
  throw InputError(plan.name,
                   "its data-parallel ranks share out their states: so far each keeps a whole copy, and gradients are "
                   "summed",
                   "plan with data: {sharding: none}");
}

// With a data degree above 1.
void require_one_sum(const Plan& plan) {
  if (replicas(plan.schedule) > 1) {
    throw InputError(plan.name,
                     "its schedule, " + plan.schedule.name +
                         ", trains two replicas in one pipeline: so far with a data degree of 1 only",
                     "plan with data: {degree: 1}, or with a schedule that trains one, such as zb-h1");
  }
  if (plan.schedule.update_every > 0) {
    throw InputError(plan.name,
                     "its schedule, " + plan.schedule.name +
                         ", updates weights within a step, where gradients of data-parallel ranks are not summed",
                     "plan with data: {degree: 1}, or with a schedule that updates once a step, such as 1f1b");
  }
}

}  // namespace

void require_executed_layout(const Plan& plan, const SessionOptions& options) {
  const Layout& layout = plan.layout;
  for (const MeshAxis axis : {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert}) {
    if (degree(layout, axis) == 1) continue;
    throw InputError(plan.name,
                     "its layout is " + describe(layout) + ": so far only pipelines and data parallelism are executed",
                     "plan with tensor, context and expert degrees of 1");
  }
  if (layout.data.degree == 1) return;
  if (has_stage_data(layout)) {
    throw InputError(plan.name, "its layout is " + describe(layout) + ": so far all stages have one data degree",
                     "plan with data: {degree: " + std::to_string(layout.data.degree) + "}");
  }
  require_plain_gradients(plan);
  require_one_sum(plan);
  if (options.transport == "nccl" || options.device != "cpu") {
    throw InputError(plan.name,
                     "its layout is " + describe(layout) + ": data parallelism is executed on the host only so far",
                     "--device cpu with --transport local or gloo, or plan with data: {degree: 1}");
  }
}

}  // namespace plumb::exec
