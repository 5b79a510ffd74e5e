#include <algorithm>
#include <numeric>
#include <string>

#include "common/cluster/machine_ranges.hpp"
#include "common/layout/shared_ports.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb {
namespace {

// A name, or the number of DeepSpeed's stage. ZeRO++ is stage 3 with all that it adds.
void read_kind(const YamlValue& value, ShardingBlock& block) {
  if (value.is_number()) {
    block.kind = static_cast<Sharding>(value.integer());
    return;
  }
  std::vector<std::string> names = sharding_names();
  names.emplace_back("zero++");
  const std::size_t found = value.choice(names);
  const bool plus = found == sharding_names().size();
  block.kind = plus ? Sharding::zero3 : static_cast<Sharding>(found);
  if (!plus) return;
  block.asked.quantized_weights = true;
  block.asked.secondary_shard = block.asked.quantized_gradients = of_one_machine;
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
    *degree = given->small_integer();
  }
}

ShardingBlock read_rule(const YamlValue& value) {
  ShardingBlock block{.place = value};
  if (value.is_map()) {
    const auto kind = value.find("kind");
    if (kind) read_kind(*kind, block);
    if (!kind) block.kind = Sharding::hsdp;  // no other has degrees of its own
    read_copies(value, block);
  } else {
    read_kind(value, block);
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

// A size, or whether there are such groups: those of one machine.
int read_group(const YamlValue& value) {
  if (value.is_number()) return value.small_integer();
  return value.boolean() ? of_one_machine : 0;
}

// What ZeRO++ adds, each alone or with the others; `reshard_after_forward: 8` is FSDP2's word for a second copy.
void read_zero_plus_plus(const YamlValue& data, std::vector<ShardingBlock>& rules) {
  const auto set = [&](const YamlValue& place, const auto& change) {
    bool some = false;
    for (ShardingBlock& rule : rules) {
      if (!may_quantize(rule.kind)) continue;
      change(rule.asked);
      some = true;
    }
    if (some) return;
    place.fail("sharding " + names_of(rules) +
                   " has no part of ZeRO++ (quantized_weights, secondary_shard, "
                   "quantized_gradients)",
               "sharding: zero3 or fsdp");
  };
  if (const auto flag = data.find("quantized_weights")) {
    set(*flag, [&](ShardingAsked& asked) { asked.quantized_weights = flag->boolean(); });
  }
  if (const auto size = data.find("quantized_gradients")) {
    set(*size, [&](ShardingAsked& asked) { asked.quantized_gradients = read_group(*size); });
  }
  const auto reshard = data.find("reshard_after_forward");
  const auto copy = data.find("secondary_shard");
  for (const auto& size : {copy, reshard && reshard->is_number() ? reshard : std::nullopt}) {
    if (size) set(*size, [&](ShardingAsked& asked) { asked.secondary_shard = read_group(*size); });
  }
  if (!copy || !reshard || read_group(*copy) == 0) return;
  if (reshard->is_number() ? read_group(*reshard) == read_group(*copy) : reshard->boolean()) return;
  copy->fail(
      "secondary_shard is of weights that are resharded after the forward, by reshard_after_forward: true or the "
      "same number",
      "leave one of them out");
}

[[noreturn]] void refuse_at_use(const YamlValue& given, const std::string& which) {
  given.fail(given.path() + " is of weights that actions gather, but " + which + " gathers none in actions",
             "reshard_after_forward: true with sharding fsdp, zero3 or hsdp, or without this key");
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
    const bool reshards = flag->is_number() || flag->boolean();
    for (ShardingBlock& rule : rules) rule.asked.reshard_after_forward = reshards;
  }
  for (const auto& [key, number] :
       {std::pair("prefetch", &ShardingAsked::prefetch), {"layers_per_unit", &ShardingAsked::layers_per_unit}}) {
    const auto given = data.find(key);
    if (!given) continue;
    const auto gathers = [](const ShardingBlock& rule) {
      return may_reshard(rule.kind) && rule.asked.reshard_after_forward.value_or(true);
    };
    if (std::ranges::none_of(rules, gathers)) refuse_at_use(*given, "sharding " + names_of(rules));
    for (ShardingBlock& rule : rules) rule.asked.*number = given->small_integer();
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
  for (const auto& [key, size] :
       {std::pair("secondary_shard", asked.secondary_shard), {"quantized_gradients", asked.quantized_gradients}}) {
    if (size.value_or(0) > 0) text += (text.empty() ? "" : " and ") + (key + (" " + std::to_string(*size)));
  }
  return text;
}

// Groups of one machine in ranks: as many as it has in whole groups.
ShardingAsked with_groups(ShardingAsked asked, const Layout& layout, int devices) {
  if (layout.data.degree == 1) return asked;
  const int machine = std::gcd(fewest_on_a_machine(layout, MeshAxis::data, devices), layout.data.degree);
  if (asked.secondary_shard == of_one_machine) asked.secondary_shard = machine > 1 ? machine : 0;
  if (asked.quantized_gradients == of_one_machine) {
    const int second = asked.secondary_shard.value_or(0);
    asked.quantized_gradients = second > 0 ? second : machine;
  }
  return asked;
}

std::optional<Layout> settled_by(Layout layout, const ShardingBlock& rule, int devices) {
  layout.data.sharding = rule.kind;
  return settled_sharding(layout, with_groups(rule.asked, layout, devices));
}

[[noreturn]] void fail_degrees(const ShardingBlock& rule, int degree) {
  if (rule.kind != Sharding::hsdp) {
    rule.place->fail(degrees_of(rule.asked) +
                         (rule.asked.secondary_shard && rule.asked.quantized_gradients
                              ? " are not groups of the same neighbours, or do not divide"
                              : " does not divide") +
                         " a data degree of " + std::to_string(degree),
                     "groups of a number that divides it, such as the ranks of one machine");
  }
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
  } else {
    choices.rules = {read_rule(*given)};
  }
  choices.at_use = data.find("prefetch");
  if (!choices.at_use) choices.at_use = data.find("layers_per_unit");
  read_flags(data, choices.rules);
  read_zero_plus_plus(data, choices.rules);
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
      std::optional<Layout> one = settled_by(layout, rule, devices);
      if (!one) continue;
      if (choices.rules.size() > 1 && state_shards(*one) == 1) one->data = {.degree = one->data.degree};
      if (std::ranges::find(settled, *one) == settled.end()) settled.push_back(*std::move(one));
    }
  }
  if (choices.at_use && std::ranges::any_of(settled, shards_weights) &&
      std::ranges::none_of(settled, gathers_in_actions)) {
    refuse_at_use(*choices.at_use, "under a pipeline " + names_of(choices.rules));
  }
  if (!settled.empty() || layouts.empty()) return settled;
  const ShardingBlock& rule = choices.rules.front();
  if (layouts.size() == 1) fail_degrees(rule, layouts.front().data.degree);
  rule.place->fail("no layout that is left open has a data degree of " + degrees_of(rule.asked),
                   "fewer ranks in such a group, or data: auto with other degrees left open");
}

}  // namespace plumb
