#include <algorithm>
#include <string>

#include "common/cluster/machine_ranges.hpp"
#include "common/layout/shared_ports.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb {
namespace {

// A name, or the number of DeepSpeed's stage.
Sharding read_kind(const YamlValue& value) {
  const bool number = value.is_scalar() && !value.is_text() && !value.is_null();
  if (number && value.text() != "true" && value.text() != "false") {
    return static_cast<Sharding>(value.integer(0, static_cast<int>(Sharding::zero3)));
  }
  return static_cast<Sharding>(value.choice(sharding_names()));
}

// The degrees of hsdp, where they stand.
void read_copies(const YamlValue& value, ShardingBlock& block) {
  for (const auto& [key, degree] : {std::pair("shard", &block.asked.shard), {"replicate", &block.asked.replicate}}) {
    const auto given = value.find(key);
    if (!given) continue;
    if (block.kind != Sharding::hsdp) {
      given->fail("shard and replicate are degrees of hsdp: " + name_of(block.kind) + " shares out over all ranks",
                  "kind: hsdp, or sharding: " + name_of(block.kind));
    }
    *degree = static_cast<int>(given->integer(1, most_cluster_ranks));
  }
}

ShardingBlock read_rule(const YamlValue& value) {
  ShardingBlock block{.place = value};
  if (value.is_map()) {
    value.check_keys({"kind", "shard", "replicate"});
    const auto kind = value.find("kind");
    block.kind = kind ? read_kind(*kind) : Sharding::hsdp;  // no other has degrees of its own
    read_copies(value, block);
  } else {
    block.kind = read_kind(value);
  }
  if (block.kind == Sharding::hsdp && !block.asked.shard && !block.asked.replicate) {
    value.fail("hsdp needs shard, the number of ranks that share one copy, or replicate, that of copies",
               "sharding: {kind: hsdp, shard: 8}, or fsdp, which has one copy");
  }
  return block;
}

// `each_microbatch` or `last_microbatch`.
bool read_reduce(const YamlValue& value) { return value.choice({"last_microbatch", "each_microbatch"}) == 1; }

std::string names_of(const std::vector<ShardingBlock>& rules) {
  std::string names;
  for (const ShardingBlock& rule : rules) names += (names.empty() ? "" : ", ") + name_of(rule.kind);
  return names;
}

void read_flags(const YamlValue& data, std::vector<ShardingBlock>& rules) {
  const auto some = [&](bool (*may)(Sharding)) {
    return std::ranges::any_of(rules, [&](const ShardingBlock& rule) { return may(rule.kind); });
  };
  if (const auto flag = data.find("reshard_after_forward")) {
    if (!some([](Sharding kind) { return may_reshard(kind); })) {
      flag->fail("sharding " + names_of(rules) + " keeps whole weights, which nothing reshards",
                 "sharding: fsdp, zero3 or hsdp, or no reshard_after_forward");
    }
    for (ShardingBlock& rule : rules) rule.asked.reshard_after_forward = flag->boolean();
  }
  if (const auto reduce = data.find("reduce")) {
    if (!some([](Sharding kind) { return may_reduce_each_microbatch(kind); })) {
      reduce->fail("sharding " + names_of(rules) + " keeps whole gradients and reduces them once a step",
                   "sharding: zero2, zero3, fsdp or hsdp, or no reduce");
    }
    for (ShardingBlock& rule : rules) rule.asked.reduces_each_microbatch = read_reduce(*reduce);
  }
}

std::string degrees_of(const ShardingAsked& asked) {
  std::string text;
  if (asked.shard) text += "shard " + std::to_string(*asked.shard);
  if (asked.replicate) text += (text.empty() ? "" : " and ") + ("replicate " + std::to_string(*asked.replicate));
  return text;
}

std::optional<Layout> settled_by(Layout layout, const ShardingBlock& rule) {
  layout.data.sharding = rule.kind;
  return settled_sharding(layout, rule.asked);
}

[[noreturn]] void fail_degrees(const ShardingBlock& rule, int degree) {
  const bool both = rule.asked.shard && rule.asked.replicate;
  rule.place->fail("hsdp of " + degrees_of(rule.asked) + (both ? " is not of" : " does not divide") +
                       " a data degree of " + std::to_string(degree),
                   (both ? "data: {degree: " : "a data degree that is a multiple of it, such as {degree: ") +
                       std::to_string(ranks_of(rule)) + "}");
}

}  // namespace

ShardingChoices read_shardings(const YamlValue& data) {
  ShardingChoices choices{.rules = {}};
  const auto given = data.find("sharding");
  if (!given) {
    choices.rules = {{}};
  } else if (given->is_text() && given->text() == "auto") {
    choices.any = true;
    for (const Sharding kind : {Sharding::none, Sharding::zero1, Sharding::zero2, Sharding::fsdp, Sharding::hsdp}) {
      choices.rules.push_back({.kind = kind, .place = given});
    }
  } else if (given->is_list()) {
    for (const YamlValue& item : given->items()) choices.rules.push_back(read_rule(item));
    if (choices.rules.empty()) given->fail("the list is empty", "[zero1, fsdp]");
  } else {
    choices.rules = {read_rule(*given)};
  }
  read_flags(data, choices.rules);
  return choices;
}

int ranks_of(const ShardingBlock& rule) {
  const std::int64_t product = std::int64_t{1} * rule.asked.shard.value_or(1) * rule.asked.replicate.value_or(1);
  if (product > most_cluster_ranks) {
    rule.place->fail("hsdp of " + degrees_of(rule.asked) + " has " + std::to_string(product) + " ranks, at most " +
                     std::to_string(most_cluster_ranks) + " can be");
  }
  return static_cast<int>(product);
}

std::vector<Layout> settled_sharding(const std::vector<Layout>& layouts, const ShardingChoices& choices, int devices) {
  std::vector<Layout> settled;
  for (const Layout& layout : layouts) {
    for (ShardingBlock rule : choices.rules) {
      if (choices.any && rule.kind == Sharding::hsdp) {  // a copy on each machine
        rule.asked.shard = fewest_on_a_machine(layout, MeshAxis::data, devices);
        if (*rule.asked.shard == 1 || *rule.asked.shard == layout.data.degree) continue;
      }
      std::optional<Layout> one = settled_by(layout, rule);
      if (!one) continue;
      if (choices.rules.size() > 1 && state_shards(*one) == 1) one->data = {.degree = one->data.degree};
      if (std::ranges::find(settled, *one) == settled.end()) settled.push_back(*std::move(one));
    }
  }
  if (!settled.empty() || layouts.empty()) return settled;
  const ShardingBlock& rule = choices.rules.front();
  if (layouts.size() == 1) fail_degrees(rule, layouts.front().data.degree);
  rule.place->fail("no layout that is left open has a data degree of " + degrees_of(rule.asked),
                   "fewer ranks in shard or replicate, or data: auto with other degrees left open");
}

}  // namespace plumb
