// Tables of the fields of a layout, a schedule and a split.
#include "common/cluster/machine_ranges.hpp"
#include "common/layout/sharding.hpp"
#include "common/scenario/scenario.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/slices.hpp"
#include "common/split/split.hpp"

namespace plumb {
namespace {

constexpr int most_barriers = 2;

std::vector<std::string> sharding_words() {
  std::vector<std::string> names = sharding_names();
  names.emplace_back("zero++");
  return names;
}

// Neighbours in a group: true for those of one machine.
FieldShape group_size() { return shapes::any_of({shapes::flag(), shapes::whole(2, most_cluster_ranks)}); }

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  for (const MeshAxis axis : Layout{}.order) names.emplace_back(axis_name(axis));
  return names;
}

}  // namespace

const FieldBlock& tensor_block() {
  static const FieldBlock block{
      .name = "tensor",
      .title = "Tensor parallelism",
      .description = "A number alone is the degree, `auto` alone is any degree with and without sequence parallelism.",
      .fields = {{.key = "degree",
                  .shape = shapes::open(shapes::whole(1, most_cluster_ranks)),
                  .description = "Ranks of a tensor group.",
                  .default_text = "1",
                  .example = "8"},
                 {.key = "kind",
                  .shape = shapes::open(shapes::choice(tensor_kind_names())),
                  .description = "Grid of the group: 1d of any degree, 2d of q², 2.5d of depth·q², 3d of q³ ranks.",
                  .default_text = "1d",
                  .example = "2d"},
                 {.key = "depth",
                  .shape = shapes::open(shapes::whole(1, most_cluster_ranks)),
                  .description = "Layers of a 2.5d grid.",
                  .default_text = "1; of several kinds auto",
                  .example = "2"},
                 {.key = "sequence_parallel",
                  .shape = shapes::open(shapes::flag()),
                  .description = "Shards norms and residuals by tokens, of kind 1d.",
                  .default_text = "false",
                  .example = "true"},
                 {.key = "asynchronous",
                  .shape = shapes::open(shapes::flag()),
                  .description =
                      "Overlaps gathers and scatters with the matmuls beside them; 1d needs sequence parallelism.",
                  .default_text = "false",
                  .example = "true"},
                 {.key = "reshard_after_forward",
                  .shape = shapes::open(shapes::flag()),
                  .description =
                      "Frees gathered weights and inputs after the forward, of kind 3d alone; 2d and 2.5d always do.",
                  .default_text = "false",
                  .example = "true"}},
      .bare = "degree"};
  return block;
}

const FieldBlock& sharding_block() {
  static const FieldBlock block{
      .name = "sharding",
      .title = "Sharding with degrees of its own",
      .description = "Hybrid sharding: one copy of the states on each group of neighbours.",
      .fields = {{.key = "kind",
                  .shape = shapes::any_of(
                      {shapes::choice(sharding_words()), shapes::whole(0, static_cast<int>(Sharding::zero3))}),
                  .description = "Sharding rule; `shard` and `replicate` belong to hsdp.",
                  .default_text = "hsdp",
                  .example = "hsdp"},
                 {.key = "shard",
                  .shape = shapes::whole(1, most_cluster_ranks),
                  .description = "Ranks that share one copy.",
                  .default_text = "the data degree over `replicate`",
                  .example = "8"},
                 {.key = "replicate",
                  .shape = shapes::whole(1, most_cluster_ranks),
                  .description = "Number of copies.",
                  .default_text = "the data degree over `shard`",
                  .example = "4"}}};
  return block;
}

// NOLINTNEXTLINE(readability-function-size): a table
const FieldBlock& data_block() {
  static const FieldBlock block{
      .name = "data",
      .title = "Data parallelism",
      .description =
          "A number alone is the degree, `auto` alone is any degree. `sharding: auto` tries all rules but "
          "zero3, which is fsdp; its hsdp has a copy on each machine.",
      .fields =
          {{.key = "degree",
            .shape = shapes::open(shapes::whole(1, most_cluster_ranks)),
            .description = "Data-parallel ranks of a stage.",
            .default_text = "1; with sharding the ranks that are left, or the product of hsdp's degrees",
            .example = "8"},
           {.key = "by_stage",
            .shape = shapes::any_of({shapes::word("auto"), shapes::list(shapes::whole(1, most_cluster_ranks))}),
            .description = "A degree for each pipeline rank, in place of `degree`. `auto` tries such layouts too.",
            .default_text = "one degree for all stages",
            .example = "[2, 1]"},
           {.key = "sharding",
            .shape = shapes::open(
                shapes::any_of({shapes::choice(sharding_words()), shapes::whole(0, static_cast<int>(Sharding::zero3)),
                                shapes::block(sharding_block())})),
            .description = "Optimizer states, gradients and weights that ranks shard; a number is DeepSpeed's stage, "
                           "zero++ is zero3 with qwZ, hpZ and qgZ.",
            .default_text = "none",
            .example = "fsdp"},
           {.key = "reshard_after_forward",
            .shape = group_size(),
            .description = "Frees gathered weights after each action, of zero3, fsdp and hsdp. A number is FSDP2's "
                           "second copy.",
            .default_text = "true without a pipeline, else false",
            .example = "true"},
           {.key = "prefetch",
            .shape = shapes::whole(0, most_gathered),
            .description = "Units that are gathered ahead.",
            .default_text = "1",
            .example = "2"},
           {.key = "layers_per_unit",
            .shape = shapes::whole(1, most_gathered),
            .description = "Layers that are gathered together.",
            .default_text = "1",
            .example = "4"},
           {.key = "reduce",
            .shape = shapes::choice({"last_microbatch", "each_microbatch"}),
            .description = "When sharded gradients are reduced, of zero2, zero3, fsdp and hsdp.",
            .default_text = "each_microbatch; with zero3, fsdp or hsdp under a pipeline last_microbatch",
            .example = "each_microbatch"},
           {.key = "quantized_weights",
            .shape = shapes::flag(),
            .description = "Gathers weights in 8 bits (ZeRO++), of zero3 and fsdp.",
            .default_text = "false",
            .example = "true"},
           {.key = "secondary_shard",
            .shape = group_size(),
            .description =
                "Ranks that share a second copy of weights for the backward; `true` is those of one machine.",
            .default_text = "false",
            .example = "8"},
           {.key = "quantized_gradients",
            .shape = group_size(),
            .description = "Ranks of the inner group that reduces gradients in 4 bits; `true` is those of one machine.",
            .default_text = "false",
            .example = "8"}},
      .bare = "degree"};
  return block;
}

const std::vector<std::string>& vocabulary_over_names() {
  static const std::vector<std::string> names = {"none", "pipeline"};
  return names;
}

const FieldBlock& vocabulary_block() {
  static const FieldBlock block{
      .name = "vocabulary",
      .title = "Vocabulary parallelism",
      .description =
          "Shards embedding and head over the pipeline's ranks by vocabulary, with 1f1b and zb-h1 "
          "(arXiv 2411.05288).",
      .fields = {{.key = "over",
                  .shape = shapes::open(shapes::choice(vocabulary_over_names())),
                  .description = "Ranks that shard the vocabulary.",
                  .default_text = "pipeline",
                  .example = "pipeline"},
                 {.key = "barriers",
                  .shape = shapes::open(shapes::whole(1, most_barriers)),
                  .description = "Barriers between the passes of the output layer.",
                  .default_text = "1",
                  .example = "2"}},
      .bare = "barriers"};
  return block;
}

const FieldBlock& layout_block() {
  const FieldShape degree = shapes::whole(1, most_cluster_ranks);
  static const FieldBlock block{
      .name = "layout",
      .title = "Layout",
      .description =
          "The product of the degrees is the number of ranks. Where degrees are open, only layouts with that "
          "product are candidates.",
      .fields = {{.key = "order",
                  .shape = shapes::any_of({shapes::list(shapes::choice(axis_names())), shapes::word("auto"),
                                           shapes::text("axes as Megatron-LM writes them, such as tp-cp-ep-dp-pp",
                                                        axis_names(), "(tp|cp|ep|dp|pp)(-(tp|cp|ep|dp|pp))*")}),
                  .description = "Nesting of the axes, innermost first. `auto` tries all that place ranks differently.",
                  .default_text = "[tensor, data, pipeline]",
                  .example = "[tensor, data, pipeline]"},
                 {.key = "pipeline",
                  .shape = shapes::open(degree),
                  .description = "Pipeline ranks.",
                  .default_text = "the ranks that the other degrees leave",
                  .example = "8"},
                 {.key = "tensor",
                  .shape = shapes::any_of({shapes::block(tensor_block()), shapes::word("auto"), degree}),
                  .description = "Shards matmuls. A number alone is the degree.",
                  .default_text = "1",
                  .example = "8"},
                 {.key = "data",
                  .shape = shapes::any_of({shapes::block(data_block()), shapes::word("auto"), degree}),
                  .description = "Shards the batch, and with `sharding` the states. A number alone is the degree.",
                  .default_text = "1",
                  .example = "{degree: 8, sharding: fsdp}"},
                 {.key = "context",
                  .shape = degree,
                  .description = "Context parallelism; not supported yet: 1.",
                  .default_text = "1",
                  .example = "1"},
                 {.key = "expert",
                  .shape = degree,
                  .description = "Expert parallelism; not supported yet: 1.",
                  .default_text = "1",
                  .example = "1"},
                 {.key = "vocabulary",
                  .shape = shapes::any_of({shapes::block(vocabulary_block()), shapes::word("auto")}),
                  .description = "Shards embedding and head over the pipeline.",
                  .default_text = "whole on the first and the last stage",
                  .example = "{over: pipeline}"}},
      .bare = "pipeline"};
  return block;
}

namespace {

std::vector<std::string> schedule_words() {
  std::vector<std::string> names;
  for (const ScheduleEntry& entry : schedule_entries()) names.push_back(entry.name);
  return names;
}

// A name, also as tables print it with its options: "interleaved-1f1b, 4 chunks".
FieldShape schedule_name() {
  std::string pattern;
  for (const std::string& name : schedule_words()) pattern += (pattern.empty() ? "(" : "|") + name;
  return shapes::text("the name of a schedule", schedule_words(), pattern + "), *[^ ].*");
}

}  // namespace

const FieldBlock& schedule_block() {
  static const FieldBlock block{
      .name = "schedule",
      .title = "Schedule",
      .description =
          "A schedule with its options. Keys that the schedule has no use for are refused. A name alone may "
          "have its options too, as tables print them: `interleaved-1f1b, 4 chunks`. `auto` tries all "
          "schedules that train exactly as one device would.",
      .fields = {{.key = "name",
                  .shape = shapes::open(schedule_name()),
                  .description = "Schedule, or several to choose from.",
                  .example = "interleaved-1f1b",
                  .required = true},
                 {.key = "chunks",
                  .shape = shapes::open(shapes::whole(1, most_chunks)),
                  .description = "Virtual stages of a rank.",
                  .default_text = "auto",
                  .example = "2"},
                 {.key = "slices",
                  .shape = shapes::any_of(
                      {shapes::whole(1, most_chunks), shapes::list(shapes::tokens(longest_sequence), 1, most_chunks)}),
                  .description = "Slices of a sequence, or the tokens of each slice, of seq-1f1b.",
                  .default_text = std::to_string(default_slices),
                  .example = "4"},
                 {.key = "slices_by",
                  .shape = shapes::choice(slices_by_names()),
                  .description = "Equal numbers of tokens, or equal work as Seq1F1B cuts them (arXiv 2406.03488).",
                  .default_text = "tokens",
                  .example = "work"},
                 {.key = "group",
                  .shape = shapes::whole(1, most_chunks),
                  .description = "Microbatches that a chunk runs before the next chunk.",
                  .default_text = "the schedule's own",
                  .example = "4"},
                 {.key = "update_every",
                  .shape = shapes::whole(1, most_chunks),
                  .description = "Microbatches for each optimizer step of an asynchronous schedule.",
                  .default_text = "the schedule's own",
                  .example = "4"},
                 {.key = "overlap",
                  .shape = shapes::flag(),
                  .description = "Runs a forward and a backward as an overlapped pair.",
                  .default_text = "false",
                  .example = "true"},
                 {.key = "in_flight",
                  .shape = shapes::whole(1, most_chunks),
                  .description = "Microbatches that a rank may hold, of a cost-driven schedule.",
                  .default_text = "as memory allows",
                  .example = "8"}},
      .bare = "name"};
  return block;
}

const FieldBlock& schedule_file_block() {
  static const FieldBlock block{.name = "schedule file",
                                .title = "Schedule from a file",
                                .description = "A schedule that another program wrote. plumb plans its messages anew.",
                                .fields = {{.key = "file",
                                            .shape = shapes::text("a file"),
                                            .description = "File with the schedule.",
                                            .example = "schedule.csv",
                                            .required = true},
                                           {.key = "alphabet",
                                            .shape = shapes::choice({"today", "2024"}),
                                            .description = "Letters of PyTorch's CSV, where the file could be either.",
                                            .default_text = "as the file shows",
                                            .example = "today"}}};
  return block;
}

const FieldShape& schedule_shape() {
  static const FieldShape one =
      shapes::any_of({schedule_name(), shapes::block(schedule_block()), shapes::block(schedule_file_block())});
  static const FieldShape shape = shapes::open(one);
  return shape;
}

const std::vector<std::string>& split_methods() {
  static const std::vector<std::string> names = {std::string(name_of(SplitMethod::uniform)),
                                                 std::string(name_of(SplitMethod::parameters)),
                                                 std::string(name_of(SplitMethod::dynamic))};
  return names;
}

const FieldShape& split_shape() {
  static const FieldShape layers = shapes::whole(0);
  static const FieldShape equal =
      shapes::text("layers × stages, such as 7 × 2", {}, R"( *[0-9]{1,6} *(×|x|\*) *[0-9]{1,6} *)");
  static const FieldShape megatron = shapes::text("a Megatron-LM layout string", {}, R"((E[\s\S]*|[\s\S]*\|[\s\S]*))");
  static const FieldShape one = shapes::any_of({shapes::choice(split_methods()), megatron});
  static const FieldShape shape =
      shapes::any_of({shapes::choice(split_methods()), megatron, shapes::word("auto"),
                      shapes::list(shapes::any_of({layers, equal, shapes::choice(split_methods()), megatron,
                                                   shapes::list(shapes::any_of({layers, equal}))}))});
  return shape;
}

}  // namespace plumb
