// What a rule of sharding may say beside its name, and what it is where nobody says it.
#pragma once

#include <optional>
#include <string>

#include "common/base/error.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// Of sharding_names.
[[nodiscard]] const std::string& name_of(Sharding sharding);

// Whether the rule shares out the weights, so that actions may gather them for themselves; and the gradients, so that
// they may be reduced for each microbatch.
[[nodiscard]] constexpr bool may_reshard(Sharding sharding) { return sharding >= Sharding::zero3; }
[[nodiscard]] constexpr bool may_reduce_each_microbatch(Sharding sharding) { return sharding >= Sharding::zero2; }

// Whether the rule has the parts of ZeRO++. In HSDP's copies gathers stay near already, and sums go over the copies.
[[nodiscard]] constexpr bool may_quantize(Sharding sharding) {
  return sharding == Sharding::zero3 || sharding == Sharding::fsdp;
}

// Whether there is any of them.
[[nodiscard]] constexpr bool has_zero_plus_plus(const DataLayout& data) {
  return data.quantized_weights || data.secondary_shard != 0 || data.quantized_gradients != 0;
}

// More than there are layers to gather ahead, or as one.
inline constexpr int most_gathered = 1000;

// Throws InputError unless a flag is set only where the rule has it, only weights that are resharded are gathered other
// than one block ahead and in units of several layers, at most `most_gathered` of either, `shard` and `replicate` are
// those of hsdp alone and multiply to the data degree, `shard` is several where that is, and the groups of ZeRO++ are
// of one size, which divides the data degree.
void require_consistent_sharding(const Layout& layout);

// In the place of a size of ZeRO++'s groups: the data-parallel ranks of one machine.
inline constexpr int of_one_machine = -1;

// What is said of it; none: nothing.
struct ShardingAsked {
  std::optional<int> shard = {};  // of hsdp
  std::optional<int> replicate = {};
  std::optional<bool> reshard_after_forward = {};
  std::optional<bool> reduces_each_microbatch = {};
  std::optional<int> prefetch = {};  // where actions gather, as the next
  std::optional<int> layers_per_unit = {};
  std::optional<bool> quantized_weights = {};  // of ZeRO++, as the next two; 0: not
  std::optional<int> secondary_shard = {};
  std::optional<int> quantized_gradients = {};
  bool operator==(const ShardingAsked&) const = default;
};

// The layout with all of it settled, its degrees being settled. HSDP's other degree is what the data degree leaves to
// the one that is given; of one shard it is no sharding. Each of zero2's gradients is reduced for each microbatch
// (arXiv 1910.02054, section 7.2.1). So are those of zero3, fsdp and hsdp without a pipeline, and each action gathers
// the weights for itself: FSDP2's defaults. Under a pipeline they are gathered once a step and reduced with the last
// backward, as torchtitan (`fsdp_reshard_after_forward: default`) and torch.distributed.pipelining have it: each
// microbatch would gather again. Where one rank has all, nothing is gathered; a second copy of weights is for those
// that each action gathers, also under a pipeline, and none is kept where it would be among all ranks anyway. None:
// HSDP's degrees do not multiply to the data degree, or the groups of ZeRO++ do not divide it.
[[nodiscard]] std::optional<Layout> settled_sharding(Layout layout, const ShardingAsked& asked);

// "weights gathered in each action, gradients reduced each microbatch": when; empty where nothing is shared out.
[[nodiscard]] std::string gathers_in_words(const Layout& layout);

}  // namespace plumb
