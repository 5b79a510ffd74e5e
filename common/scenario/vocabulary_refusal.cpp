#include "common/scenario/vocabulary_refusal.hpp"

#include "common/layout/sharding.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb {
namespace {

// Each pipeline rank's part has equal rows on all ranks of its tensor group.
std::optional<VocabularyRefusal> undivided_vocabulary(const Model& model, const Layout& layout) {
  const std::int64_t tensor = layout.tensor.degree;
  if (model.vocabulary % (layout.pipeline * tensor) == 0) return std::nullopt;
  const std::string over = std::to_string(layout.pipeline) + " pipeline ranks";
  const std::string each = tensor > 1 ? " of " + std::to_string(tensor) + " tensor ranks each" : "";
  return VocabularyRefusal{
      "a vocabulary of " + std::to_string(model.vocabulary) + " does not divide over " + over + each,
      std::string("another pipeline ") + (tensor > 1 ? "or tensor " : "") +
          "degree, or a model whose vocabulary is padded"};
}

}  // namespace

std::optional<VocabularyRefusal> vocabulary_refusal(const Model& model, const Layout& layout, const Training& training,
                                                    bool has_profile) {
  if (layout.vocabulary_barriers == 0) return std::nullopt;
  struct NotPlanned {
    bool found;
    std::string what;
    std::string instead;
  };
  const bool shards = layout.data.sharding != Sharding::none && layout.data.sharding != Sharding::zero1;
  for (const NotPlanned& each :
       {NotPlanned{model.vision.has_value(), "of a model that has classes instead", "a layout without vocabulary"},
        NotPlanned{is_grid(layout.tensor), "with a " + grid_text(layout.tensor), "tensor: {kind: 1d}"},
        NotPlanned{layout.tensor.asynchronous && layout.tensor.degree > 1, "with asynchronous tensor parallelism",
                   "tensor: {asynchronous: false}"},
        NotPlanned{has_stage_data(layout), "with data degrees by stage", "data: {degree: …}"},
        NotPlanned{shards, "with " + name_of(layout.data.sharding), "data: {sharding: zero1}"},
        NotPlanned{training.lora.has_value(), "with LoRA", "training without lora"},
        NotPlanned{training.offload != Offload{}, "with offload", "training without offload"},
        NotPlanned{has_profile, "by a profile, which is of whole heads", "leave the profile out"}}) {
    if (!each.found) continue;
    return VocabularyRefusal{"a vocabulary over the pipeline cannot be planned yet " + each.what, each.instead};
  }
  if (layout.pipeline < 2) {
    return VocabularyRefusal{"a vocabulary is divided over at least two ranks of a pipeline, not one",
                             "a larger pipeline degree, or a layout without vocabulary"};
  }
  return undivided_vocabulary(model, layout);
}

std::optional<VocabularyRefusal> vocabulary_refusal(const Schedule& schedule, const Layout& layout) {
  if (schedule.vocabulary_barriers == layout.vocabulary_barriers) return std::nullopt;
  return VocabularyRefusal{schedule.name + " has " + std::to_string(schedule.vocabulary_barriers) +
                               " barriers of a vocabulary over the pipeline, the layout " +
                               std::to_string(layout.vocabulary_barriers),
                           "layout: {vocabulary: {barriers: …}} as the schedule has them, or another schedule"};
}

std::optional<VocabularyRefusal> vocabulary_refusal(const ScheduleChoice& schedule, const Layout& layout) {
  if (schedule.given) return vocabulary_refusal(*schedule.given, layout);
  if (layout.vocabulary_barriers == 0 || find_schedule(schedule.name).divides_vocabulary) return std::nullopt;
  return VocabularyRefusal{"the ranks of " + schedule.name + " do not divide a vocabulary over the pipeline",
                           "schedule: one of " + schedules_with(&ScheduleEntry::divides_vocabulary)};
}

}  // namespace plumb
