#include "common/plan/plan.hpp"

#include <algorithm>

#include "common/base/digest.hpp"
#include "common/base/error.hpp"
#include "common/cost/costs_json.hpp"
#include "common/layout/layout_json.hpp"
#include "common/layout/shared_ports.hpp"
#include "common/model/files/model_json.hpp"
#include "common/plan/parts_json.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/interchange/schedule_json.hpp"

namespace plumb {

bool recomputes_by_action(const Plan& plan) {
  return plan.training.recompute.mode == RecomputeMode::full && plan.software.recompute_unit == RecomputeUnit::stage;
}

std::vector<Slice> slices_of(const Plan& plan) { return slices_of(plan.schedule, plan.training.sequence); }

BoundaryManifest plan_boundary(const Plan& plan) {
  return boundary_manifest(plan.model, plan.training, longest(slices_of(plan)));
}

Bytes sent_of(const Plan& plan, Bytes boundary) {
  const TensorLayout& tensor = plan.layout.tensor;
  return sends_parts(plan.software, tensor) ? boundary / tensor.degree : boundary;
}

Bytes sent_boundary_bytes(const Plan& plan) { return sent_of(plan, bytes(plan.boundary)); }

int pipeline_ranks_per_machine(const Layout& layout, const Machine& machine) {
  if (has_stage_data(layout)) return 1;  // a rank of a stage stands for ranks of any number of machines
  return std::max(1, machine.devices / pipeline_stride(layout));
}

int cores_per_pipeline_rank(const Layout& layout, const Machine& machine) {
  if (machine.cores == 0 || has_stage_data(layout)) return 1;
  return std::min(stage_ranks_on_machine(layout, machine), machine.cores);
}

bool trains_tied_table(const Plan& plan) { return plan.model.tied_embeddings && !plan.training.lora; }

bool tied_over_ranks(const Plan& plan) {
  return trains_tied_table(plan) && plan.layout.vocabulary_barriers == 0 && ends_on_two_ranks(plan.schedule);
}

WeightGathering weight_gathering(const Layout& layout) {
  if (state_shards(layout) == 1) return WeightGathering::none;
  if (!shards_weights(layout)) return WeightGathering::behind_steps;
  return gathers_in_actions(layout) ? WeightGathering::none : WeightGathering::before_forward;
}

Schedule lowered_schedule(const Plan& plan) {
  return lower(plan.schedule, {.optimizer = true,
                               .data_parallel = plan.layout.data.degree > 1,
                               .clips_gradients = plan.training.gradient_clipping > 0,
                               .tied_embeddings = trains_tied_table(plan) && plan.layout.vocabulary_barriers == 0,
                               .gathering = weight_gathering(plan.layout)});
}

std::string plan_digest(const Plan& plan) {
  std::string text =
      to_line(arithmetic_json(plan.model)) + to_line(to_json(plan.training)) + to_line(to_json(plan.layout));
  for (const int layers : plan.split.layers) text += " " + std::to_string(layers);
  Json schedule = to_json(plan.schedule);
  schedule.erase("name");
  return digest(text + to_line(schedule));
}

std::string costs_digest(const PipelineCosts& costs) { return digest(to_line(to_json(costs))); }

}  // namespace plumb
