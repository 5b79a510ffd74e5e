#include "common/layout/sharding.hpp"

#include <string>

namespace plumb {

const std::string& name_of(Sharding sharding) { return sharding_names().at(static_cast<std::size_t>(sharding)); }

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
}

InputError cannot_be_planned(Sharding sharding, const std::string& with, const std::string& hint) {
  return {"layout", "sharding " + name_of(sharding) + " cannot be planned yet with " + with, hint};
}

InputError cannot_be_planned_by_stage(Sharding sharding) {
  return cannot_be_planned(sharding, "stages of different data degrees",
                           "data: {degree: …} without by_stage, or sharding: none");
}

std::optional<Layout> settled_sharding(Layout layout, const ShardingAsked& asked) {
  DataLayout& data = layout.data;
  if (data.sharding == Sharding::hsdp) {
    data.shard = asked.shard ? *asked.shard : data.degree / asked.replicate.value_or(1);
    data.replicate = asked.replicate ? *asked.replicate : data.degree / data.shard;
    if (std::int64_t{data.shard} * data.replicate != data.degree) return std::nullopt;
  }
  const bool shares = state_shards(layout) > 1;
  const bool alone = layout.pipeline == 1;
  const bool weights = shares && may_reshard(data.sharding);
  const bool gradients = shares && may_reduce_each_microbatch(data.sharding);
  data.reshard_after_forward = weights && asked.reshard_after_forward.value_or(alone);
  data.reduces_each_microbatch =
      gradients && asked.reduces_each_microbatch.value_or(alone || data.sharding == Sharding::zero2);
  return layout;
}

std::string gathers_in_words(const Layout& layout) {
  if (state_shards(layout) == 1) return "";
  const std::string weights = gathers_in_actions(layout) ? "gathered in each action"
                              : shards_weights(layout)   ? "gathered before a stage's first F"
                                                         : "gathered behind the step";
  std::string text =
      "weights " + weights + ", gradients reduced " + (reduces_in_actions(layout) ? "each microbatch" : "once a step");
  const bool copies = layout.data.sharding == Sharding::hsdp && layout.data.replicate > 1;
  return text + (copies ? ", then over the copies" : "");
}

}  // namespace plumb
