// Who talks to whom over a run: the communicators of a plan, declared before it starts, in one order on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/units.hpp"
#include "common/layout/layout.hpp"
#include "common/placement/collective.hpp"
#include "common/schedule/schedule.hpp"
#include "exec/device/payload.hpp"

namespace plumb::exec {

// Each has a stream of its own on each of its ranks; operations of one communicator follow each other there.
enum class CommunicatorUse : std::uint8_t {
  down,         // activations from stage to stage, of one pipeline
  up,           // their gradients
  evictions,    // activations that a partner keeps for a while, there and back
  tied,         // sum of a tied embedding's two gradients: the ranks of the first and the last stage
  replicas,     // sum of a stage's gradients over two ranks whose pipelines run in opposite directions
  tensor,       // ranks that differ on one axis of the mesh: tensor,
  tensor_part,  // some of these, who have the same head of keys and values,
  context,      // context,
  expert,       // expert,
  data,         // data: all of it or, of HSDP, one copy of the states, and all that have the same part in them
  gradients,    // ranks with the same dense weights, where they differ on more than one of data, context and expert
};
inline constexpr std::size_t communicator_uses = static_cast<std::size_t>(CommunicatorUse::gradients) + 1;

// Sums of two ranks' values, which go both ways: no messages.
[[nodiscard]] constexpr bool is_sum(CommunicatorUse use) {
  return use == CommunicatorUse::tied || use == CommunicatorUse::replicas;
}

// Collectives of ranks that hold the same stage in different pipelines: actions make them of themselves.
[[nodiscard]] constexpr bool is_of_group(CommunicatorUse use) { return use >= CommunicatorUse::tensor; }

// REDUCE_GRAD over two pipelines in opposite directions. Of data-parallel ranks a schedule has one: their sums are not
// its own.
[[nodiscard]] inline bool is_sum_of_replicas(const Schedule& lowered, const Action& action) {
  return action.kind == ActionKind::reduce_gradient && replicas(lowered) == 2;
}
// Whether the ranks that train a stage on other data do it together.
[[nodiscard]] inline bool is_of_data_ranks(const Schedule& schedule, const Action& action) {
  return action.kind == ActionKind::unshard ||
         (action.kind == ActionKind::reduce_gradient && !is_sum_of_replicas(schedule, action));
}

// "down", "tensor": as in messages.
[[nodiscard]] std::string_view name(CommunicatorUse use);

struct CommunicatorSpec {
  CommunicatorUse use = CommunicatorUse::down;
  std::vector<int> ranks;  // of the run; pipelines in the order of the pipeline's axis, others ascending
  auto operator<=>(const CommunicatorSpec&) const = default;
};

// "down (ranks 0-3)", "tensor (ranks 0, 4, 8)".
[[nodiscard]] std::string describe(const CommunicatorSpec& spec);

// All communicators of two ranks and more that a plan needs: what every rank makes, as far as it is a member, in this
// order. Two ranks never make two communicators of both in different orders, so making them cannot deadlock. Ascending
// by use, then by ranks. `lowered` is one pipeline's schedule; with layout.pipeline ranks, or one rank alone where all
// is one stage. `tensor_parts`: positions in a tensor group, of each part that has sums of its own
// (exec/stage/tensor/action_calls.hpp). Throws InputError when they do not fit.
[[nodiscard]] std::vector<CommunicatorSpec> plan_communicators(const Schedule& lowered, const Layout& layout,
                                                               const std::vector<std::vector<int>>& tensor_parts = {});

enum class Reduction : std::uint8_t { sum, maximum };

// A value in a device's memory, all elements behind each other.
struct CollectiveValue {
  std::byte* data = nullptr;
  std::size_t count = 0;
};

// Of every rank of a communicator, in the same order on all. NCCL adds in an order of its own, but an all-reduce hands
// the same bits to every rank.
struct CollectiveCall {
  Collective kind = Collective::all_reduce;
  Reduction reduction = Reduction::sum;         // of elements, by all_reduce and reduce_scatter
  CommunicatorUse use = CommunicatorUse::data;  // which communicator: as CommunicatorSpec has it,
  std::span<const int> group = {};              // with its ranks
  const std::byte* input = nullptr;             // may be `output` (all_reduce)
  std::byte* output = nullptr;
  // Elements of what one rank gives (all_reduce, all_gather), gets (reduce_scatter), or gives to each (all_to_all).
  std::size_t count = 0;
  ElementType type = ElementType::fp32;
  // Instead of those three: several whole values, each in place, that start and end as one. All of it is summed
  // (all_reduce); or of its parts, as near to equal as can be (equal_parts in exec/transport/collectives), the rank's
  // own goes to all (all_gather), or becomes the sum over all (reduce_scatter). `count` is then that of all values.
  std::span<const CollectiveValue> bucket = {};
  MomentPtr ready = {};  // from when input and output may be touched
};

}  // namespace plumb::exec
