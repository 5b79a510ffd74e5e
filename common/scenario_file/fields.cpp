#include "common/scenario_file/fields.hpp"

#include "common/capability/framework.hpp"
#include "common/cluster/machine_ranges.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "common/cost/software_yaml.hpp"
#include "common/model/files/model_block.hpp"
#include "common/model/model_limits.hpp"
#include "common/scenario/scenario.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {

const FieldBlock& recompute_block() {
  static const FieldBlock block{
      .name = "recompute",
      .title = "Recompute by layers",
      .description = "Exactly one of the two keys.",
      .fields = {{.key = "layers",
                  .shape = shapes::whole(1),
                  .description = "Recomputes the first layers of each stage, whole.",
                  .example = "2"},
                 {.key = "every",
                  .shape = shapes::whole(1),
                  .description = "Recomputes every n-th layer of a rank, whole, counted from 1 through its stages, as "
                                 "torchtitan's selective mode by layers does.",
                  .example = "2"}},
      .bare = "layers"};
  return block;
}

const FieldBlock& lora_block() {
  static const FieldBlock block{
      .name = "lora",
      .title = "LoRA",
      .description =
          "Fine-tuning with low-rank adapters (arXiv 2106.09685): all weights are frozen, A and B of each "
          "target are trained.",
      .fields = {{.key = "rank",
                  .shape = shapes::whole(1, limits::hidden),
                  .description = "Rank of A and B, at most the model's `hidden`.",
                  .default_text = std::to_string(Lora{}.rank),
                  .example = "16"},
                 {.key = "alpha",
                  .shape = {NumberShape{.least = 0, .most = 1e6, .above_least = true}},
                  .description = "Scales the adapters by alpha / rank.",
                  .default_text = "the rank",
                  .example = "32"},
                 {.key = "targets",
                  .shape = shapes::any_of({shapes::text("a projection, or all", lora_target_words()),
                                           shapes::list(shapes::text("a projection", lora_target_words()))}),
                  .description =
                      "Projections that have adapters; names of PEFT and Megatron-LM too. `all` is every one "
                      "but the router.",
                  .default_text = "[query, value]",
                  .example = "[query, value]"}},
      .bare = "rank"};
  return block;
}

// NOLINTNEXTLINE(readability-function-size): a table
const FieldBlock& training_block() {
  static const FieldBlock block{
      .name = "training",
      .title = "Training",
      .description =
          "Sizes of a step, precision, and memory that is traded for time. Batches are counted in sequences. "
          "With several layouts, the default batch is four microbatches for each rank.",
      .fields = {
          {.key = "sequence",
           .shape = shapes::tokens(longest_sequence),
           .description = "Tokens of a sequence.",
           .default_text = "4096, or the model's `max_positions` if that is less",
           .example = "8k"},
          {.key = "global_batch",
           .shape = shapes::whole(1, largest_batch),
           .description = "Sequences of a step.",
           .default_text = "four microbatches for each pipeline rank and data-parallel rank",
           .example = "512"},
          {.key = "microbatch",
           .shape = shapes::open(shapes::whole(1, largest_batch)),
           .description =
               "Sequences of a microbatch on one data-parallel rank. `auto` tries the powers of two up to 64 "
               "that divide the batch.",
           .default_text = "1, or the profile's",
           .example = "2"},
          {.key = "precision",
           .shape = shapes::choice(training_precision_names()),
           .description = "Type of weights and activations in matmuls.",
           .default_text = "bf16, or fp16 on GPUs without it; fp32 on a CPU",
           .example = "bf16"},
          {.key = "recompute",
           .shape = shapes::open(
               shapes::any_of({shapes::choice({"none", "selective", "full"}), shapes::block(recompute_block())})),
           .description = "Activations that the backward recomputes. `selective` is attention without its projections "
                          "(arXiv 2205.05198); `full` is whole stages, or single layers (`recompute_unit` of the "
                          "software).",
           .default_text = "none",
           .example = "full"},
          {.key = "offload",
           .shape = shapes::open(shapes::text("none, optimizer, activations, parameters, or several joined by +",
                                              offload_names(), "[a-z]+( *\\+ *[a-z]+)+")),
           .description = "Parts that are stored in the host's memory. `auto` tries all but parameters.",
           .default_text = "none",
           .example = "optimizer+activations"},
          {.key = "optimizer",
           .shape = shapes::choice(optimizer_names()),
           .description = "Optimizer.",
           .default_text = optimizer_names()[static_cast<std::size_t>(Training{}.optimizer)],
           .example = "adamw"},
          {.key = "learning_rate",
           .shape = shapes::number(0, most_learning_rate),
           .description = "Learning rate of a run.",
           .default_text = "0.001",
           .example = "0.0003"},
          {.key = "gradient_clipping",
           .shape = shapes::number(0, most_gradient_norm),
           .description = "Largest norm of the whole gradient, as torch's clip_grad_norm_ has it. 0 never clips.",
           .default_text = "0",
           .example = "1.0"},
          {.key = "seed",
           .shape = shapes::whole(0, largest_seed),
           .description = "Seed of the initial weights and of dropout.",
           .default_text = std::to_string(Training{}.seed),
           .example = "1"},
          {.key = "lora",
           .shape = shapes::any_of({shapes::block(lora_block()), shapes::word("none")}),
           .description = "Trains low-rank adapters in place of all weights.",
           .default_text = "none",
           .example = "{rank: 16, alpha: 32}"}}};
  return block;
}

namespace {

const FieldBlock& outside_block() {
  static const FieldBlock block{.name = "outside",
                                .title = "Link to other machines",
                                .description = "Replaces the machine's own numbers, both or one of them.",
                                .fields = {{.key = "latency",
                                            .shape = shapes::seconds(),
                                            .description = "Latency of one message through one port or NIC.",
                                            .default_text = "the machine's",
                                            .example = "5 us"},
                                           {.key = "bandwidth",
                                            .shape = shapes::bytes_per_second(),
                                            .description = "Bandwidth of one port or NIC.",
                                            .default_text = "the machine's",
                                            .example = "50 GB/s"}}};
  return block;
}

const FieldBlock& sites_block() {
  static const FieldBlock block{.name = "sites",
                                .title = "Sites",
                                .description = "Machines of one site, and the one link between each two sites.",
                                .fields = {{.key = "nodes",
                                            .shape = shapes::whole(1, most_nodes),
                                            .description = "Machines of one site.",
                                            .example = "8",
                                            .required = true},
                                           {.key = "bandwidth",
                                            .shape = shapes::bytes_per_second(),
                                            .description = "Bandwidth of the link between two sites.",
                                            .example = "10 GB/s",
                                            .required = true},
                                           {.key = "latency",
                                            .shape = shapes::seconds(),
                                            .description = "Latency of the link between two sites.",
                                            .example = "10 ms",
                                            .required = true}}};
  return block;
}

}  // namespace

const FieldBlock& cluster_block() {
  static const FieldBlock block{
      .name = "cluster",
      .title = "Cluster",
      .description = "The machine, how many there are, and the network between them.",
      .fields = {{.key = "machine",
                  .shape = shapes::any_of({shapes::text("the name or file of a machine", machine_names(), file_pattern),
                                           shapes::own(machine_block())}),
                  .description = "A shipped machine, a file, or a block of a machine's keys.",
                  .default_text = "local-cpu",
                  .example = "dgx-h100"},
                 {.key = "nodes",
                  .shape = shapes::any_of({shapes::whole(1, most_nodes), shapes::choice({"auto"})}),
                  .description = "Number of machines. `auto`: those of a fixed layout; if the layout is open, `plumb "
                                 "plan` doubles them until a plan fits.",
                  .default_text = "1",
                  .example = "8"},
                 {.key = "ranks",
                  .shape = shapes::whole(1, most_cluster_ranks),
                  .description = "Number of ranks, if fewer than there are devices.",
                  .default_text = "the ranks of the layout, or all devices",
                  .example = "64"},
                 {.key = "cores",
                  .shape = shapes::whole(1, most_cores),
                  .description = "Cores of a CPU machine, which its ranks share.",
                  .default_text = "the machine's",
                  .example = "16"},
                 {.key = "memory",
                  .shape = shapes::bytes(),
                  .description = "Memory that one rank may use, in place of the machine's.",
                  .default_text = "the machine's",
                  .example = "70 GiB"},
                 {.key = "outside",
                  .shape = shapes::block(outside_block()),
                  .description = "Link of one port or NIC to other machines, in place of the machine's.",
                  .default_text = "the machine's",
                  .example = "{bandwidth: 50 GB/s}"},
                 {.key = "nodes_per_leaf",
                  .shape = shapes::whole(1, most_nodes),
                  .description = "Machines under one leaf switch of a fat tree.",
                  .default_text = "all",
                  .example = "16"},
                 {.key = "oversubscription",
                  .shape = shapes::number(1, most_oversubscription),
                  .description = "Bandwidth of a leaf's ports over that of its uplinks. It needs `nodes_per_leaf`.",
                  .default_text = "1",
                  .example = "2"},
                 {.key = "sites",
                  .shape = shapes::block(sites_block()),
                  .description = "Sites with a slow link between each two.",
                  .default_text = "one site"}},
      .bare = "ranks"};
  return block;
}

const FieldBlock& scenario_block() {
  static const FieldBlock block{
      .name = "scenario",
      .title = "Scenario",
      .description = "A model, a cluster, and how to train the one on the other.",
      .fields = {
          {.key = "model",
           .shape = shapes::any_of({shapes::own(model_block()), shapes::text("the file of a model")}),
           .description = "A block of a model's keys, a YAML file, or a Hugging Face `config.json`.",
           .example = "models/llama-3-8b.yaml",
           .required = true},
          {.key = "cluster",
           .shape = shapes::any_of({shapes::own(cluster_block()), shapes::text("a file")}),
           .description = "Machine, number of machines, and network.",
           .default_text = "{machine: local-cpu}",
           .example = "{machine: dgx-h100, nodes: 8}"},
          {.key = "training",
           .shape = shapes::any_of({shapes::own(training_block()), shapes::text("a file")}),
           .description = "Batch, sequence, precision, optimizer, recompute, offload.",
           .default_text = "{}",
           .example = "{sequence: 4096, global_batch: 512}"},
          {.key = "layout",
           .shape = shapes::any_of({shapes::own(layout_block()), shapes::word("auto"), shapes::text("a file")}),
           .description = "Parallel degrees, and what each axis shards.",
           .default_text = "every rank a pipeline stage",
           .example = "{pipeline: 4, tensor: 2}"},
          {.key = "schedule",
           .shape = schedule_shape(),
           .description = "Order of a rank's forwards and backwards; `plumb schedule list` has the names.",
           .default_text = ScheduleChoice{}.name,
           .example = "1f1b"},
          {.key = "split",
           .shape = split_shape(),
           .description = "Layers of each stage: a method, numbers of layers, or a Megatron-LM layout string.",
           .default_text = std::string(name_of(SplitChoice{}.method)),
           .example = "[6, 7, 7, 5]"},
          {.key = "software",
           .shape = shapes::any_of({shapes::text("the name or file of a software", software_names(), file_pattern),
                                    shapes::own(software_block())}),
           .description = "Kernels, overlaps and exchanges of the training system.",
           .default_text = Software{}.name + ", on GPUs with data_overlap",
           .example = "megatron-2024"},
          {.key = "profile",
           .shape = shapes::text("a file"),
           .description = "A file that `plumb-exec calibrate` wrote: measured costs in place of counted ones.",
           .default_text = "none",
           .example = "profile.yaml"},
          {.key = "for",
           .shape = shapes::choice(framework_names()),
           .description = "Keeps only what this framework runs.",
           .default_text = "none",
           .example = "megatron"}}};
  return block;
}

void check_block(const FieldBlock& block, const YamlValue& value) { check_fields(block, value, &scenario_block()); }

}  // namespace plumb
