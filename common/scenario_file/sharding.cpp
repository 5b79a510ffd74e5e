#include <string>

#include "common/cluster/machine_ranges.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb {
namespace {

std::string name_of(Sharding kind) { return sharding_names().at(static_cast<std::size_t>(kind)); }

// A name, or the number of DeepSpeed's stage.
Sharding read_kind(const YamlValue& value) {
  const bool number = value.is_scalar() && !value.is_text() && !value.is_null();
  if (number && value.text() != "true" && value.text() != "false") {
    return static_cast<Sharding>(value.integer(0, static_cast<int>(Sharding::zero3)));
  }
  return static_cast<Sharding>(value.choice(sharding_names()));
}

// The degrees of hsdp, where they stand.
void read_degrees(const YamlValue& value, ShardingBlock& block) {
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

// `each_microbatch` or `last_microbatch`.
bool read_reduce(const YamlValue& value) { return value.choice({"last_microbatch", "each_microbatch"}) == 1; }

std::string degrees_of(const ShardingAsked& asked) {
  std::string text;
  if (asked.shard) text += "shard " + std::to_string(*asked.shard);
  if (asked.replicate) text += (text.empty() ? "" : " and ") + ("replicate " + std::to_string(*asked.replicate));
  return text;
}

}  // namespace

ShardingBlock read_sharding(const YamlValue& data) {
  ShardingBlock block{.place = data.find("sharding")};
  if (block.place && block.place->is_map()) {
    block.place->check_keys({"kind", "shard", "replicate"});
    const auto kind = block.place->find("kind");
    block.kind = kind ? read_kind(*kind) : Sharding::hsdp;  // no other has degrees of its own
    read_degrees(*block.place, block);
  } else if (block.place) {
    block.kind = read_kind(*block.place);
  }
  if (block.kind == Sharding::hsdp && !block.asked.shard && !block.asked.replicate) {
    block.place->fail("hsdp needs shard, the number of ranks that share one copy, or replicate, that of copies",
                      "sharding: {kind: hsdp, shard: 8}, or fsdp, which has one copy");
  }
  if (const auto flag = data.find("reshard_after_forward")) {
    if (!may_reshard(block.kind)) {
      flag->fail("sharding " + name_of(block.kind) + " keeps whole weights, which nothing reshards",
                 "sharding: fsdp, zero3 or hsdp, or no reshard_after_forward");
    }
    block.asked.reshard_after_forward = flag->boolean();
  }
  if (const auto reduce = data.find("reduce")) {
    if (!may_reduce_each_microbatch(block.kind)) {
      reduce->fail("sharding " + name_of(block.kind) + " keeps whole gradients and reduces them once a step",
                   "sharding: zero2, zero3, fsdp or hsdp, or no reduce");
    }
    block.asked.reduces_each_microbatch = read_reduce(*reduce);
  }
  return block;
}

int ranks_of(const ShardingBlock& block) {
  const std::int64_t product = std::int64_t{1} * block.asked.shard.value_or(1) * block.asked.replicate.value_or(1);
  if (product > most_cluster_ranks) {
    block.place->fail("hsdp of " + degrees_of(block.asked) + " has " + std::to_string(product) + " ranks, at most " +
                      std::to_string(most_cluster_ranks) + " can be");
  }
  return static_cast<int>(product);
}

Layout settled_sharding(const Layout& layout, const ShardingBlock& block) {
  const std::optional<Layout> settled = settled_sharding(layout, block.asked);
  if (settled) return *settled;
  const int degree = layout.data.degree;
  const bool both = block.asked.shard && block.asked.replicate;
  const int product = ranks_of(block);
  block.place->fail("hsdp of " + degrees_of(block.asked) + (both ? " is not of" : " does not divide") +
                        " a data degree of " + std::to_string(degree),
                    (both ? "data: {degree: " : "a data degree that is a multiple of it, such as {degree: ") +
                        std::to_string(product) + "}");
}

std::vector<Layout> settled_sharding(const std::vector<Layout>& layouts, const ShardingBlock& block) {
  std::vector<Layout> settled;
  for (const Layout& layout : layouts) {
    if (auto one = settled_sharding(layout, block.asked)) settled.push_back(*std::move(one));
  }
  if (settled.empty() && !layouts.empty()) {
    block.place->fail("no layout that is left open has a data degree of " + degrees_of(block.asked),
                      "fewer ranks in shard or replicate, or data: auto with other degrees left open");
  }
  return settled;
}

}  // namespace plumb
