// Tables of the fields of a machine's file.
#include <deque>
#include <map>

#include "common/cluster/machine_numbers.hpp"
#include "common/cluster/machine_ranges.hpp"
#include "common/cluster/machine_yaml.hpp"

namespace plumb {
namespace {

// {value: …, source: …, uncertainty: …}, or the value alone. Equal shapes share a block.
FieldShape sourced(const FieldShape& shape) {
  static std::map<std::string, FieldBlock> blocks;
  const auto* quantity = std::get_if<QuantityShape>(&shape.form);
  const std::string key = describe(shape) + (quantity != nullptr && quantity->zero ? ", or zero" : "");
  if (!blocks.contains(key)) {
    blocks.emplace(
        key, FieldBlock{.name = "number",
                        .title = "Number and its source",
                        .description = "Uncertainty and source of a number.",
                        .fields = {{.key = "value", .shape = shape, .description = "The number.", .required = true},
                                   {.key = "source",
                                    .shape = shapes::text("text"),
                                    .description = "Where the number is from: measured, datasheet, or assumed.",
                                    .example = "datasheet",
                                    .required = true},
                                   {.key = "uncertainty",
                                    .shape = shapes::fraction(most_uncertainty),
                                    .description = "One standard deviation, relative to the value.",
                                    .default_text = "0; 20% if the source says assumed, guess or estimate",
                                    .example = "10%"}}});
  }
  return shapes::any_of({shape, shapes::block(blocks.at(key))});
}

FieldShape efficiency() { return sourced(shapes::number(fraction_range.least, fraction_range.most)); }
FieldShape plain() { return sourced(shapes::number(plain_range.least, plain_range.most)); }

const FieldBlock& peak_block() {
  static const FieldBlock block = [] {
    FieldBlock made{
        .name = "peak",
        .title = "Peak",
        .description = "Dense matmul peak of each precision; that of the training's precision is required."};
    for (const std::string& precision : training_precision_names()) {
      made.fields.push_back({.key = precision,
                             .shape = sourced(shapes::flops_per_second()),
                             .description = "Peak in " + precision + ".",
                             .example = "{value: … TFLOP/s, source: datasheet}"});
    }
    return made;
  }();
  return block;
}

// NOLINTNEXTLINE(readability-function-size): a table
const FieldBlock& device_block() {
  static const FieldBlock block{
      .name = "device",
      .title = "Device",
      .description = "One GPU, or one core of a CPU machine.",
      .fields = {
          {.key = "name",
           .shape = shapes::text("text"),
           .description = "Name of the device.",
           .example = "…",
           .required = true},
          {.key = "type",
           .shape = shapes::choice({"cpu", "cuda"}),
           .description = "Kind of device.",
           .example = "cuda",
           .required = true},
          {.key = "peak",
           .shape = shapes::block(peak_block()),
           .description = "Matmul peak by precision.",
           .example = "{bf16: {value: … TFLOP/s, source: datasheet}}",
           .required = true},
          {.key = "multiprocessors",
           .shape = shapes::whole(1, most_multiprocessors),
           .description = "Multiprocessors of a GPU: 108 of an A100, 132 of an H100. Tiles of a matmul run on them in "
                          "waves.",
           .default_text = "unknown",
           .example = "132"},
          {.key = "matmul_efficiency",
           .shape = efficiency(),
           .description = "Fraction of the peak that large matmuls reach over minutes.",
           .example = "{value: 0.…, source: …}",
           .required = true},
          {.key = "matmul_depth",
           .shape = plain(),
           .description = "Elements of the inner dimension that each tile of a matmul loses.",
           .default_text = "0",
           .example = "{value: 122, source: measured}"},
          {.key = "memory_bandwidth",
           .shape = sourced(shapes::bytes_per_second()),
           .description = "Memory bandwidth.",
           .example = "{value: … TB/s, source: datasheet}",
           .required = true},
          {.key = "memory_efficiency",
           .shape = efficiency(),
           .description = "Fraction of the bandwidth that streaming kernels reach.",
           .example = "{value: 0.…, source: …}",
           .required = true},
          {.key = "attention_efficiency",
           .shape = efficiency(),
           .description = "Fraction of the peak that fused attention and recurrences reach.",
           .default_text = "of a CPU `matmul_efficiency`",
           .example = "{value: 0.55, source: measured}"},
          {.key = "kernel_gap",
           .shape = sourced(shapes::seconds()),
           .description = "Time between two kernels on the device.",
           .default_text = "0 us",
           .example = "{value: 2 us, source: measured}"},
          {.key = "launch_time",
           .shape = sourced(shapes::seconds()),
           .description = "Time of the host to launch one kernel.",
           .default_text = "0 us",
           .example = "{value: 5 us, source: measured}"},
          {.key = "message_multiprocessors",
           .shape = plain(),
           .description = "Multiprocessors that messages take from matmuls that they overlap with.",
           .default_text = "0",
           .example = "{value: 4, source: assumed}"},
          {.key = "memory",
           .shape = sourced(shapes::bytes()),
           .description = "Memory of the device.",
           .example = "{value: … GiB, source: datasheet}",
           .required = true},
          {.key = "framework_memory",
           .shape = sourced(shapes::bytes(true)),
           .description = "Memory that contexts, communication libraries and fragmentation take.",
           .default_text = "0 GiB",
           .example = "{value: 2 GiB, source: measured}"}}};
  return block;
}

const FieldBlock& link_block() {
  static const FieldBlock block{.name = "link",
                                .title = "Link",
                                .description = "One message from port to port.",
                                .fields = {{.key = "latency",
                                            .shape = sourced(shapes::seconds()),
                                            .description = "Latency of one message.",
                                            .example = "{value: … us, source: …}",
                                            .required = true},
                                           {.key = "bandwidth",
                                            .shape = sourced(shapes::bytes_per_second()),
                                            .description = "Bandwidth that one message reaches.",
                                            .example = "{value: … GB/s, source: …}",
                                            .required = true}}};
  return block;
}

const FieldBlock& host_block() {
  static const FieldBlock block{
      .name = "host",
      .title = "Host",
      .description = "The host's memory, where offloaded states, weights and activations are.",
      .fields = {
          {.key = "link",
           .shape = shapes::block(link_block()),
           .description = "A device's port to its host, each way.",
           .example = "{latency: {value: … us, source: …}, bandwidth: {value: … GB/s, source: …}}  # of a device "
                      "to the host, each way",
           .required = true},
          {.key = "devices_per_link",
           .shape = shapes::whole(1, most_devices),
           .description = "Neighbouring devices that share one link.",
           .default_text = "1",
           .example = "2"},
          {.key = "memory",
           .shape = sourced(shapes::bytes()),
           .description = "Memory of the host for each device.",
           .example = "{value: … GiB, source: …}  # of the host, for each device",
           .required = true},
          {.key = "memory_bandwidth",
           .shape = sourced(shapes::bytes_per_second()),
           .description = "Bandwidth of the host for each device, while all devices' optimizers run there.",
           .example = "{value: … GB/s, source: …}  # of the host, for each device",
           .required = true}}};
  return block;
}

const FieldBlock& free_number_block() {
  static const FieldBlock block{.name = "free number",
                                .title = "Free number",
                                .description = "A number that a fit may change, with its prior if it has one.",
                                .fields = {{.key = "prior",
                                            .shape = shapes::number(1e-12, 1e18),
                                            .description = "Value that the fit starts from, in the base unit.",
                                            .example = "0.7"},
                                           {.key = "factor",
                                            .shape = shapes::number(1.0001, 1e6),
                                            .description = "One standard deviation of the prior, as a factor.",
                                            .example = "1.1",
                                            .with = "prior"},
                                           {.key = "source",
                                            .shape = shapes::text("text"),
                                            .description = "Where the prior is from.",
                                            .example = "datasheet",
                                            .with = "prior"}}};
  return block;
}

}  // namespace

const FieldBlock& free_numbers_block() {
  static const FieldBlock block = [] {
    FieldBlock made{.name = "free", .title = "Free numbers", .description = "Numbers that `plumb fit` may change."};
    for (const std::string& name : machine_number_names()) {
      made.fields.push_back({.key = name,
                             .shape = shapes::block(free_number_block()),
                             .description = "Refits `" + name + "`.",
                             .example = "{}"});
    }
    return made;
  }();
  return block;
}

const FieldBlock& fit_block() {
  static const FieldBlock block{.name = "fit",
                                .title = "Fit",
                                .description = "What `plumb fit` refits, from which tables.",
                                .fields = {{.key = "tables",
                                            .shape = shapes::list(shapes::text("a file")),
                                            .description = "Files of published tables.",
                                            .example = "[published/2104.04473-table-1.yaml]",
                                            .required = true},
                                           {.key = "free",
                                            .shape = shapes::block(free_numbers_block()),
                                            .description = "Numbers that may change.",
                                            .example = "{matmul_efficiency: {}}",
                                            .required = true}}};
  return block;
}

// NOLINTNEXTLINE(readability-function-size): a table
const FieldBlock& machine_block() {
  static const FieldBlock block{
      .name = "machine",
      .title = "Machine",
      .description =
          "One machine: its devices, and the links between them. A number may stand alone, or with its "
          "source and uncertainty.",
      .fields = {{.key = "like",
                  .shape = shapes::text("the name or file of a machine", machine_names(), file_pattern),
                  .description = "Machine whose keys count where this one has none.",
                  .default_text = "none",
                  .example = "dgx-h100"},
                 {.key = "name",
                  .shape = shapes::text("text"),
                  .description = "Name of the machine.",
                  .example = "…",
                  .required = true},
                 {.key = "device",
                  .shape = shapes::block(device_block()),
                  .description = "Each of the devices.",
                  .required = true},
                 {.key = "inside",
                  .shape = shapes::block(link_block()),
                  .description = "One message between neighbouring devices of the machine.",
                  .required = true},
                 {.key = "outside",
                  .shape = shapes::block(link_block()),
                  .description = "One message through one port or NIC to another machine.",
                  .required = true},
                 {.key = "devices",
                  .shape = shapes::whole(1, most_devices),
                  .description = "Ranks with a device of their own in one machine.",
                  .default_text = "of a CPU machine its cores",
                  .example = "8",
                  .required = true,
                  .unless = "cores"},
                 {.key = "cores",
                  .shape = shapes::any_of({shapes::whole(1, most_cores), shapes::word("usable")}),
                  .description = "Cores of a CPU machine; `usable` is those of this process.",
                  .default_text = "none",
                  .example = "16"},
                 {.key = "nics",
                  .shape = shapes::whole(1, most_devices),
                  .description = "NICs, which neighbouring devices share evenly.",
                  .default_text = "a port for each device",
                  .example = "4"},
                 {.key = "devices_per_switch",
                  .shape = shapes::whole(1, most_devices),
                  .description = "Neighbouring devices under one PCIe switch.",
                  .default_text = "all reach each other at full speed",
                  .example = "2"},
                 {.key = "uplink",
                  .shape = sourced(shapes::bytes_per_second()),
                  .description = "Bandwidth of a switch's uplink, each way.",
                  .example = "{value: … GB/s, source: …}  # of each switch: devices_per_switch demands it",
                  .with = "devices_per_switch"},
                 {.key = "collective_bandwidth",
                  .shape = sourced(shapes::bytes_per_second()),
                  .description = "Bus bandwidth of ring collectives in the machine, as nccl-tests prints it.",
                  .default_text = "of a CPU that of `inside`",
                  .example = "{value: 230 GB/s, source: measured}"},
                 {.key = "collective_latency",
                  .shape = sourced(shapes::seconds()),
                  .description = "Time of an all-reduce before its first byte.",
                  .default_text = "of a CPU that of `inside`",
                  .example = "{value: 20 us, source: measured}"},
                 {.key = "collective_latency_per_rank",
                  .shape = sourced(shapes::seconds()),
                  .description = "More of that time for each rank.",
                  .default_text = "0 us",
                  .example = "{value: 2 us, source: measured}"},
                 {.key = "switch_bandwidth",
                  .shape = sourced(shapes::bytes_per_second()),
                  .description = "Bus bandwidth of an all-reduce in the switch (NVLink SHARP).",
                  .default_text = "none",
                  .example = "{value: 480 GB/s, source: measured}"},
                 {.key = "host",
                  .shape = shapes::block(host_block()),
                  .description = "Needed to offload.",
                  .default_text = "none"},
                 {.key = "fit",
                  .shape = shapes::block(fit_block()),
                  .description = "What `plumb fit` refits.",
                  .default_text = "none"}},
      .base = "like"};
  return block;
}

}  // namespace plumb
