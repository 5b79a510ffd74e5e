#include "common/scenario/vocabulary_refusal.hpp"

#include "common/layout/sharding.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb {

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
        NotPlanned{layout.tensor.degree > 1, "with tensor parallelism", "tensor: {degree: 1}"},
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
  if (model.vocabulary % layout.pipeline == 0) return std::nullopt;
  return VocabularyRefusal{"a vocabulary of " + std::to_string(model.vocabulary) + " does not divide over " +
                               std::to_string(layout.pipeline) + " pipeline ranks",
                           "another pipeline degree, or a model whose vocabulary is padded"};
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
