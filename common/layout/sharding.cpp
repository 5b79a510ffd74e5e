#include "common/layout/sharding.hpp"

#include <string>
#include <tuple>

namespace plumb {

const std::string& name_of(Sharding sharding) { return sharding_names().at(static_cast<std::size_t>(sharding)); }

namespace {

void require_consistent_groups(const DataLayout& data) {
  const auto fail = [](const std::string& problem) { throw InputError("layout", problem); };
  if (!has_zero_plus_plus(data)) return;
  const std::string& name = name_of(data.sharding);
  if (!may_quantize(data.sharding) || data.degree == 1) {
    fail("quantized_weights, secondary_shard and quantized_gradients are of zero3 and fsdp of several ranks, not of " +
         name + " of " + std::to_string(data.degree));
  }
  for (const auto& [key, size, least] :
       {std::tuple("secondary_shard", data.secondary_shard, 2), {"quantized_gradients", data.quantized_gradients, 1}}) {
    if (size == 0) continue;
    if (size < least) fail(std::string(key) + " must be at least " + std::to_string(least));
    if (data.degree % size != 0) {
      fail(std::string(key) + " " + std::to_string(size) + " does not divide a data degree of " +
           std::to_string(data.degree));
    }
  }
  if (data.secondary_shard == 0) return;
  if (data.secondary_shard == data.degree) fail("secondary_shard is all ranks, which share the weights out already");
  if (!data.reshard_after_forward) fail("secondary_shard is of weights that are resharded after the forward");
  if (data.quantized_gradients != 0 && data.quantized_gradients != data.secondary_shard) {
    fail("secondary_shard " + std::to_string(data.secondary_shard) + " and quantized_gradients " +
         std::to_string(data.quantized_gradients) + " are groups of the same neighbours: one number");
  }
}

}  // namespace

void require_consistent_sharding(const Layout& layout) {
  const DataLayout& data = layout.data;
  const std::string& name = name_of(data.sharding);
  const auto fail = [](const std::string& problem) { throw InputError("layout", problem); };
  if (data.reshard_after_forward && !may_reshard(data.sharding)) {
    fail("sharding " + name + " keeps whole weights: reshard_after_forward is of zero3, fsdp and hsdp");
  }
  if (data.reduces_each_microbatch && !may_reduce_each_microbatch(data.sharding)) {
    fail("sharding " + name + " keeps whole gradients: reducing each microbatch is of zero2, zero3, fsdp and hsdp");
  }
  for (const auto& [key, number, least] :
       {std::tuple("prefetch", data.prefetch, 0), {"layers_per_unit", data.layers_per_unit, 1}}) {
    if (number < least || number > most_gathered) {
      fail(std::string(key) + " " + std::to_string(number) + " is not a number from " + std::to_string(least) + " to " +
           std::to_string(most_gathered));
    }
    if (number == 1 || data.reshard_after_forward) continue;
    fail(std::string(key) + " is of weights that each action gathers, with reshard_after_forward of zero3, fsdp, hsdp");
  }
  require_consistent_groups(data);
  if (data.sharding != Sharding::hsdp) {
    if (data.shard != 1 || data.replicate != 1) fail("shard and replicate are degrees of hsdp, not of " + name);
    return;
  }
  if (data.shard < 1 || data.replicate < 1) fail("the degrees shard and replicate of hsdp must be at least 1");
  if (std::int64_t{data.shard} * data.replicate != data.degree) {
    fail("hsdp of shard " + std::to_string(data.shard) + " and replicate " + std::to_string(data.replicate) +
         " is of a data degree of " + std::to_string(std::int64_t{data.shard} * data.replicate) + ", not of " +
         std::to_string(data.degree));
  }
  if (data.shard == 1 && data.degree > 1) fail("hsdp of shard 1 has a copy on each rank: sharding none");
}

std::optional<Layout> settled_sharding(Layout layout, const ShardingAsked& asked) {
  DataLayout& data = layout.data;
  if (data.sharding == Sharding::hsdp) {
    data.shard = asked.shard ? *asked.shard : data.degree / asked.replicate.value_or(1);
    data.replicate = asked.replicate ? *asked.replicate : data.degree / data.shard;
    if (std::int64_t{data.shard} * data.replicate != data.degree) return std::nullopt;
    if (data.shard == 1) data = {.degree = data.degree};  // a copy on each rank
  }
  const bool shares = state_shards(layout) > 1;
  const bool alone = layout.pipeline == 1;
  if (shares && may_quantize(data.sharding)) {
    data.quantized_weights = asked.quantized_weights.value_or(false);
    data.secondary_shard = asked.secondary_shard.value_or(0);
    data.quantized_gradients = asked.quantized_gradients.value_or(0);
    const int second = data.secondary_shard;
    const int first = data.quantized_gradients;
    if (second > 0 && first > 0 && second != first) return std::nullopt;
    if (data.degree % inside_shards(data) != 0) return std::nullopt;
    if (data.secondary_shard == data.degree || asked.reshard_after_forward == false) data.secondary_shard = 0;
  }
  const bool weights = shares && may_reshard(data.sharding);
  const bool gradients = shares && may_reduce_each_microbatch(data.sharding);
  data.reshard_after_forward = weights && asked.reshard_after_forward.value_or(alone || data.secondary_shard > 0);
  if (data.reshard_after_forward) {
    data.prefetch = asked.prefetch.value_or(1);
    data.layers_per_unit = asked.layers_per_unit.value_or(1);
  }
  data.reduces_each_microbatch =
      gradients && asked.reduces_each_microbatch.value_or(alone || data.sharding == Sharding::zero2);
  return layout;
}

std::string gathers_in_words(const Layout& layout) {
  if (state_shards(layout) == 1) return "";
  std::string weights = gathers_in_actions(layout) ? "gathered in each action"
                        : shards_weights(layout)   ? "gathered before a stage's first F"
                                                   : "gathered behind the step";
  const DataLayout& data = layout.data;
  if (data.quantized_weights) weights += " as int8";
  const bool units = data.layers_per_unit > 1;
  if (units) weights += ", " + std::to_string(data.layers_per_unit) + " layers as one";
  if (data.prefetch == 0) weights += ", none ahead";
  if (data.prefetch > 1) weights += ", " + std::to_string(data.prefetch) + (units ? " units ahead" : " blocks ahead");
  if (data.secondary_shard > 0) {
    weights += ", but for F from a second copy in groups of " + std::to_string(data.secondary_shard);
  }
  std::string text =
      "weights " + weights + ", gradients reduced " + (reduces_in_actions(layout) ? "each microbatch" : "once a step");
  if (data.quantized_gradients > 0) {
    text += " as int4, in groups of " + std::to_string(data.quantized_gradients) + " first";
  }
  return text + (data.replicate > 1 ? ", then over the copies" : "");
}

}  // namespace plumb
