// Table of the fields of a software's file.
#include <fmt/format.h>

#include "common/cost/software_yaml.hpp"

namespace plumb {
namespace {

std::string text_of(bool flag) { return flag ? "true" : "false"; }

const FieldBlock& bucket_block() {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  static const FieldBlock block{
      .name = "data_bucket",
      .title = "Bucket of gradients",
      .description = "Either `bytes`, or the larger of the two numbers of parameters.",
      .fields = {
          {.key = "bytes", .shape = shapes::bytes(), .description = "Bytes of main gradients.", .example = "25 MiB"},
          {.key = "parameters", .shape = shapes::whole(1, most), .description = "Parameters.", .example = "40000000"},
          {.key = "parameters_per_rank",
           .shape = shapes::whole(1, most),
           .description = "Parameters for each data-parallel rank.",
           .example = "1000000"},
          {.key = "first_stage_only",
           .shape = shapes::flag(),
           .description = "Other stages reduce all at once after their backward.",
           .default_text = text_of(GradientBucket{}.first_stage_only),
           .example = "true"}}};
  return block;
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
const FieldBlock& software_block() {
  const Software usual{.composed = false};  // as a block of its own has it
  static const FieldBlock block{
      .name = "software",
      .title = "Software",
      .description = "Fusions, overlaps and exchanges of the training system.",
      .fields =
          {{.key = "like",
            .shape = shapes::text("the name or file of a software", software_names(), file_pattern),
            .description = "Software whose keys count where this one has none.",
            .default_text = "none",
            .example = "megatron-2024"},
           {.key = "name",
            .shape = shapes::text("text"),
            .description = "Name of the software.",
            .default_text = "with `like` the name there, changed",
            .example = "ours",
            .required = true},
           {.key = "source",
            .shape = shapes::text("text"),
            .description = "Where these facts are from.",
            .default_text = "with `like` the source there",
            .example = "profiled",
            .required = true},
           {.key = "attention",
            .shape = shapes::choice({"flash", "unfused"}),
            .description = "Fused attention, or one that writes all scores.",
            .default_text = usual.flash_attention ? "flash" : "unfused",
            .example = "flash"},
           {.key = "composed",
            .shape = shapes::flag(),
            .description = "Recurrences and expert routing are made of a framework's operations, which save more than "
                           "fused kernels.",
            .default_text = text_of(usual.composed),
            .example = "true"},
           {.key = "eager",
            .shape = shapes::flag(),
            .description = "Activation functions, rotary embeddings and copies of key-value heads run as single "
                           "operations, without compilation.",
            .default_text = text_of(usual.eager),
            .example = "true"},
           {.key = "eager_norms",
            .shape = shapes::flag(),
            .description = "RMSNorm runs as single operations too.",
            .default_text = text_of(usual.eager_norms),
            .example = "true"},
           {.key = "dropout",
            .shape = shapes::flag(),
            .description = "Dropout on embedding, attention and branches.",
            .default_text = text_of(usual.dropout),
            .example = "true"},
           {.key = "fused_projections",
            .shape = shapes::flag(),
            .description = "Matmuls that read the same input are one: queries, keys and values; gate and up.",
            .default_text = text_of(usual.fused_projections),
            .example = "true"},
           {.key = "fused_weight_gradient",
            .shape = shapes::flag(),
            .description = "The weight gradient's matmul adds to the main gradient.",
            .default_text = text_of(usual.fused_weight_gradient),
            .example = "true"},
           {.key = "tensor_overlap",
            .shape = shapes::flag(),
            .description = "The backward's tensor-parallel collectives overlap with its matmuls.",
            .default_text = text_of(usual.tensor_overlap),
            .example = "true"},
           {.key = "scattered_messages",
            .shape = shapes::flag(),
            .description = "Each rank of a tensor group sends its part of a message, gathered on arrival.",
            .default_text = text_of(usual.scattered_messages),
            .example = "true"},
           {.key = "data_overlap",
            .shape = shapes::flag(),
            .description = "Gradients are reduced while the last microbatch's backward runs.",
            .default_text = text_of(usual.data_overlap),
            .example = "true"},
           {.key = "data_bucket",
            .shape = shapes::block(bucket_block()),
            .description = "Gradients that are reduced at once with `data_overlap`.",
            .default_text = fmt::format("{{bytes: {} MiB}}", GradientBucket{}.bytes.value >> 20),
            .example = "{bytes: 25 MiB}"},
           {.key = "copies_overlap",
            .shape = shapes::flag(),
            .description = "HSDP's reductions over copies overlap too, each after its own bucket.",
            .default_text = text_of(usual.copies_overlap),
            .example = "true"},
           {.key = "optimizer_bytes",
            .shape = shapes::number(0, 1000),
            .description = "Bytes that the optimizer's kernels move for each parameter; 0 is each state once each way.",
            .default_text = fmt::format("{}", usual.optimizer_bytes),
            .example = "34"},
           {.key = "gradients",
            .shape = shapes::choice(training_precision_names()),
            .description = "Type of main gradients.",
            .default_text = std::string(name_of(usual.gradients)),
            .example = "bf16"},
           {.key = "exchange",
            .shape = shapes::choice(exchange_names()),
            .description = "With synchronous exchange a rank waits for its messages after each step of its schedule.",
            .default_text = exchange_names()[static_cast<std::size_t>(usual.exchange)],
            .example = "synchronous"},
           {.key = "recompute_unit",
            .shape = shapes::choice(recompute_unit_names()),
            .description = "Forward that is recomputed at once: the stage before its backward, or layer by layer.",
            .default_text = recompute_unit_names()[static_cast<std::size_t>(usual.recompute_unit)],
            .example = "layer"},
           {.key = "hidden_in_pairs",
            .shape = shapes::number(0, 1),
            .description = "Fraction of the shorter action of an overlapped pair that the longer one hides.",
            .default_text = fmt::format("{}", usual.hidden_in_pairs),
            .example = "0.5"},
           {.key = "post_validation",
            .shape = shapes::flag(),
            .description = "Ranks step without waiting for each other; only in rows of published tables.",
            .default_text = text_of(usual.post_validation),
            .example = "true"},
           {.key = "step_overhead",
            .shape = shapes::seconds(),
            .description = "Time of each step that nothing else counts: data loading, logging.",
            .default_text = "0 s",
            .example = "10 ms"}},
      .base = "like"};
  return block;
}

}  // namespace plumb
