#include "common/study/what_if_fields.hpp"

#include <algorithm>
#include <deque>

#include "common/cluster/machine_numbers.hpp"
#include "common/cluster/machine_ranges.hpp"
#include "common/cost/software_yaml.hpp"
#include "common/schedule/action.hpp"

namespace plumb {
namespace {

constexpr std::int64_t most_sequences = std::int64_t{1} << 31;

FieldShape shape_of(NumberUnit unit) {
  switch (unit) {
    case NumberUnit::fraction:
      return shapes::number(fraction_range.least, fraction_range.most);
    case NumberUnit::seconds:
      return shapes::seconds();
    case NumberUnit::bytes_per_second:
      return shapes::bytes_per_second();
    case NumberUnit::flops_per_second:
      return shapes::flops_per_second();
    default:
      return shapes::number(plain_range.least, plain_range.most);
  }
}

// Fields of the machine numbers whose names begin with `prefix`; a dot makes a block.
std::vector<Field> fields_below(const std::string& prefix) {
  static std::deque<FieldBlock> blocks;
  std::vector<Field> fields;
  for (const MachineNumber& number : machine_numbers()) {
    if (!number.name.starts_with(prefix)) continue;
    const std::string name = number.name.substr(prefix.size());
    const std::string key = name.substr(0, name.find('.'));
    if (std::ranges::find(fields, key, &Field::key) != fields.end()) continue;
    if (key == name) {
      fields.push_back({.key = key, .shape = shape_of(number.unit), .description = "Replaces `" + number.name + "`."});
      continue;
    }
    const std::string inner = prefix + key;
    blocks.push_back({.name = key,
                      .title = "Numbers of " + inner,
                      .description = "Replaces numbers of the machine's `" + inner + "`.",
                      .fields = fields_below(inner + ".")});
    fields.push_back(
        {.key = key, .shape = shapes::block(blocks.back()), .description = "Replaces numbers of `" + inner + "`."});
  }
  return fields;
}

std::vector<std::string> action_names() {
  std::vector<std::string> names;
  for (const ActionKind kind : compute_kinds) names.emplace_back(letters(kind));
  names.emplace_back(letters(ActionKind::optimizer_step));
  return names;
}

Field rank_field(std::string description) {
  return {.key = "rank",
          .shape = shapes::whole(std::numeric_limits<int>::min()),  // its reader says which ranks there are
          .description = std::move(description),
          .example = "1"};
}
Field machine_field(std::string description) {
  return {.key = "machine",
          .shape = shapes::whole(0, most_nodes - 1),
          .description = std::move(description),
          .example = "0"};
}
Field from_field() {
  return {.key = "from",
          .shape = shapes::seconds(),
          .description = "Time of the step when it begins.",
          .default_text = "0 s",
          .example = "1 ms"};
}
Field until_field() {
  return {.key = "until",
          .shape = shapes::seconds(),
          .description = "Time of the step when it ends.",
          .default_text = "never",
          .example = "3 ms"};
}

const FieldBlock& straggler_block() {
  static const FieldBlock block{
      .name = "straggler",
      .title = "Straggler",
      .description =
          "Computing that takes longer from the first action on, where all of rank, machine, stage and action "
          "hold. At least one is needed.",
      .fields = {
          {.key = "slower",
           .shape = shapes::number(1 / slowest_factor, slowest_factor),
           .description = "Time over the planned time.",
           .example = "1.2",
           .required = true},
          rank_field("Rank of the pipeline."),
          machine_field("Machine, counted along the pipeline."),
          {.key = "stage", .shape = shapes::whole(0, most_cluster_ranks), .description = "Stage.", .example = "0"},
          {.key = "action",
           .shape = shapes::choice(action_names()),
           .description = "Kind of action.",
           .example = "F"}}};
  return block;
}

const FieldBlock& jitter_block() {
  static const FieldBlock block{.name = "jitter",
                                .title = "Jitter",
                                .description = "Each computing action takes a lognormal factor of mean 1.",
                                .fields = {{.key = "spread",
                                            .shape = shapes::fraction(10),
                                            .description = "Standard deviation of the factor.",
                                            .example = "5%",
                                            .required = true},
                                           {.key = "seed",
                                            .shape = shapes::whole(0),
                                            .description = "Seed of the draws.",
                                            .default_text = "1",
                                            .example = "2"}},
                                .bare = "spread"};
  return block;
}

const FieldBlock& link_change_block() {
  static const FieldBlock block{
      .name = "link",
      .title = "Slow or broken link",
      .description = "One of rank, between, machine, switch and leaf; one of factor and fails.",
      .fields = {
          rank_field("Ports of this rank."),
          {.key = "between",
           .shape = shapes::list(shapes::whole(std::numeric_limits<int>::min()), 2, 2),
           .description = "Messages between two ranks.",
           .example = "[1, 2]"},
          machine_field("Links of this machine to others."),
          {.key = "switch",
           .shape = shapes::whole(0, most_cluster_ranks),
           .description = "Uplink of this PCIe switch, counted along the pipeline.",
           .example = "0"},
          {.key = "leaf",
           .shape = shapes::whole(0, most_cluster_ranks),
           .description = "Uplinks of this leaf switch, counted along the pipeline.",
           .example = "0"},
          {.key = "factor",
           .shape = shapes::number(0, 1),
           .description = "Bandwidth over the planned one: 0, or from 0.001 to 1.",
           .example = "0.5"},
          {.key = "fails", .shape = shapes::flag(), .description = "True: nothing passes any more.", .example = "true"},
          from_field(),
          until_field()}};
  return block;
}

const FieldBlock& host_change_block() {
  static const FieldBlock block{.name = "host",
                                .title = "Slow or failing host",
                                .description = "One of rank and machine; one of fails_at and slower.",
                                .fields = {rank_field("Rank of the pipeline."),
                                           machine_field("Machine, counted along the pipeline."),
                                           {.key = "fails_at",
                                            .shape = shapes::seconds(),
                                            .description = "Time of the step when it fails.",
                                            .example = "10 ms"},
                                           {.key = "slower",
                                            .shape = shapes::number(1, slowest_factor),
                                            .description = "Time over the planned time.",
                                            .example = "2"},
                                           from_field(),
                                           until_field()}};
  return block;
}

const FieldBlock& experts_change_block() {
  static const FieldBlock block{.name = "experts",
                                .title = "Skew of experts",
                                .description = "Uneven routing.",
                                .fields = {{.key = "skew",
                                            .shape = shapes::number(1, slowest_factor),
                                            .description = "Tokens of the busiest rank's experts over the mean.",
                                            .example = "1.5",
                                            .required = true}},
                                .bare = "skew"};
  return block;
}

const FieldBlock& training_change_block() {
  static const FieldBlock block{.name = "training",
                                .title = "Other batches",
                                .description = "The split stays, the schedule is made anew.",
                                .fields = {{.key = "global_batch",
                                            .shape = shapes::whole(1, most_sequences),
                                            .description = "Sequences of a step.",
                                            .default_text = "the plan's",
                                            .example = "512"},
                                           {.key = "microbatch",
                                            .shape = shapes::whole(1, most_sequences),
                                            .description = "Sequences of a microbatch.",
                                            .default_text = "the plan's",
                                            .example = "2"}},
                                .bare = "microbatch"};
  return block;
}

FieldShape one_or_more(const FieldBlock& block) {
  return shapes::any_of({shapes::block(block), shapes::list(shapes::block(block))});
}

}  // namespace

const FieldBlock& machine_changes_block() {
  static const FieldBlock block{.name = "machine",
                                .title = "Other machine numbers",
                                .description = "Numbers that replace the machine's own.",
                                .fields = fields_below("")};
  return block;
}

const FieldBlock& cluster_changes_block() {
  static const FieldBlock block = [] {
    FieldBlock made{.name = "cluster", .title = "Other links", .description = "Links that replace the machine's own."};
    for (const Field& field : machine_changes_block().fields) {
      if (field.key == "inside" || field.key == "outside") made.fields.push_back(field);
    }
    return made;
  }();
  return block;
}

const FieldBlock& variant_block() {
  static const FieldBlock block{
      .name = "variant",
      .title = "Variant",
      .description = "One change of a plan, or several at once.",
      .fields = {
          {.key = "name",
           .shape = shapes::text("text"),
           .description = "Name of the variant, on one line.",
           .example = "a slow rank",
           .required = true},
          {.key = "straggler",
           .shape = one_or_more(straggler_block()),
           .description = "Computing that takes longer from the start.",
           .example = "{rank: 0, slower: 1.2}"},
          {.key = "jitter", .shape = shapes::block(jitter_block()), .description = "Random variation of each action."},
          {.key = "link",
           .shape = one_or_more(link_change_block()),
           .description = "A slow or broken link.",
           .example = "{rank: 2, factor: 0.5}"},
          {.key = "host",
           .shape = one_or_more(host_change_block()),
           .description = "A host that slows down or fails at a time.",
           .example = "{rank: 3, slower: 2, from: 10 ms}"},
          {.key = "experts",
           .shape = shapes::block(experts_change_block()),
           .description = "Uneven routing of tokens to experts."},
          {.key = "training",
           .shape = shapes::block(training_change_block()),
           .description = "Another batch or microbatch."},
          {.key = "cluster",
           .shape = shapes::block(cluster_changes_block()),
           .description = "Other links.",
           .example = "{outside: {bandwidth: 42.5 GB/s}}"},
          {.key = "machine",
           .shape = shapes::block(machine_changes_block()),
           .description = "Other numbers of the machine.",
           .example = "{matmul_efficiency: 0.5}"},
          {.key = "software",
           .shape = shapes::any_of({shapes::own(software_block()),
                                    shapes::text("the name or file of a software", software_names(), file_pattern)}),
           .description = "Another software, or keys that change the plan's.",
           .example = "megatron-2024"}}};
  return block;
}

}  // namespace plumb
