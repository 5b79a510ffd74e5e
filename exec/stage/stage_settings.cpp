#include "exec/stage/stage_settings.hpp"

#include "common/base/error.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/model/divided_vocabulary.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "common/schedule/weight_versions.hpp"
#include "common/split/gathered_units.hpp"

namespace plumb::exec {

Numerics numerics_of(ElementType precision, c10::Device device) {
  switch (precision) {
    case ElementType::fp32:
      return {.device = device};
    case ElementType::bf16:
      return {.compute = at::kBFloat16, .gradient = at::kFloat, .rounding = at::kBFloat16, .device = device};
    case ElementType::fp64:
      return {.compute = at::kDouble, .gradient = at::kDouble, .rounding = at::kDouble, .device = device};
    case ElementType::fp16:
    case ElementType::int64:
      break;
  }
  throw InputError("training.precision", "expected fp32 or bf16; this type is not executed yet");
}

namespace {

// Of a divided vocabulary, what of the model this stage has.
Model model_of_stage(const Plan& plan, int stage) {
  if (plan.schedule.vocabulary_barriers == 0) return plan.model;
  if (!is_part(plan.schedule, stage)) return without_vocabulary(plan.model);
  Model part = plan.model;
  part.part = sort_of_part(plan.layout);
  return part;
}

BlockRange blocks_of(const Plan& plan, int stage) {
  const int head = head_block(plan.model);
  switch (sort_of_stage(plan.schedule, stage)) {
    case StageSort::head:
      return {.first = head, .last = head + 1};
    case StageSort::embedding:
      return {.first = 0, .last = 1};
    case StageSort::layers:
      break;
  }
  return blocks_of_stage(plan.split, stage);
}

VocabularyPart part_of_stage(const Schedule& schedule, int stage) {
  if (!is_part(schedule, stage)) return {};
  return {.index = rank_in_replica(schedule, 0, stage), .count = schedule.ranks};
}

std::vector<std::int32_t> versions_of_stage(const Schedule& schedule, int stage) {
  if (schedule.update_every == 0) return {};
  const std::vector<std::int32_t> all = weight_versions(schedule);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(stage) * schedule.microbatches;
  return {first, first + schedule.microbatches};
}

}  // namespace

TorchStageSettings stage_settings(const Plan& plan, int stage, c10::Device device) {
  const BlockRange blocks = blocks_of(plan, stage);
  return {
      .model = model_of_stage(plan, stage),
      .training = plan.training,
      .blocks = blocks,
      .stage = stage,
      .microbatches = plan.schedule.microbatches,
      .slices = plan.schedule.slices,
      .slice_tokens = plan.schedule.slice_tokens,
      .recomputed = recomputed_stages(plan.schedule).at(static_cast<std::size_t>(stage)),
      .evicts = evicts(plan.schedule),
      .numerics = numerics_of(plan.training.precision, device),
      .update_every = plan.schedule.update_every,
      .versions = versions_of_stage(plan.schedule, stage),
      .share = {.index = 0, .count = plan.layout.data.degree},
      .states = {.index = 0, .count = state_shards(plan.layout)},
      .sharding = {.weights = shards_weights(plan.layout),
                   .by_block = gathers_in_actions(plan.layout),
                   .gradients = reduces_in_actions(plan.layout),
                   .units = unit_sizes(blocks, head_block(plan.model), plan.layout.data.layers_per_unit)},
      .part = part_of_stage(plan.schedule, stage),
      .has_table_of_embedding = plan.model.tied_embeddings && sort_of_stage(plan.schedule, stage) == StageSort::head};
}

TorchStageSettings whole_model_settings(const Plan& plan, const Numerics& numerics) {
  Training training = plan.training;
  training.offload = {};  // of which the bits do not depend
  return {.model = plan.model,
          .training = training,
          .blocks = {.first = 0, .last = head_block(plan.model) + 1},
          .stage = 0,
          .microbatches = plan.schedule.microbatches * plan.layout.data.degree,
          .slices = plan.schedule.slices,
          .slice_tokens = plan.schedule.slice_tokens,
          .recomputed = false,
          .evicts = false,
          .numerics = numerics};
}

}  // namespace plumb::exec
