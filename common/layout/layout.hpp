// How the ranks are arranged: the mesh of pipeline, data, context, expert and tensor parallelism.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

enum class MeshAxis : std::uint8_t { tensor, context, expert, data, pipeline };

enum class TensorKind : std::uint8_t { one_d, two_d, two_and_half_d, three_d };
// By kind: "1d", "2d", "2.5d", "3d".
[[nodiscard]] const std::vector<std::string>& tensor_kind_names();
enum class Sharding : std::uint8_t { none, zero1, zero2, zero3, fsdp, hsdp };
// By the value of the enumeration, as in scenarios and files.
[[nodiscard]] const std::vector<std::string>& sharding_names();

struct TensorLayout {
  int degree = 1;
  TensorKind kind = TensorKind::one_d;
  int depth = 1;  // of 2.5D
  bool sequence_parallel = false;
  bool asynchronous = false;           // of 1d with sequence parallelism, 2d and 2.5d: moves in pieces beside products
  bool reshard_after_forward = false;  // of 3d: what F has gathered is let go of, and gathered again by I and W
  bool operator==(const TensorLayout&) const = default;
};

// On a grid (2d, 2.5d) or a cube (3d) of ranks, perhaps of one.
[[nodiscard]] constexpr bool is_grid(const TensorLayout& tensor) { return tensor.kind != TensorKind::one_d; }

// Between the divided parts each rank has its part of the tokens (arXiv 2205.05198).
[[nodiscard]] constexpr bool divides_tokens(const TensorLayout& tensor) {
  return tensor.sequence_parallel && tensor.degree > 1;
}

struct DataLayout {
  int degree = 1;
  Sharding sharding = Sharding::none;
  int shard = 1;      // HSDP: ranks that share one copy
  int replicate = 1;  // HSDP: copies
  // Of zero3, fsdp and hsdp: F, I or B, and R gather each block's weights for themselves and let go of them behind it
  // (FSDP2); else each stage gathers its own once a step, before its first F, until its optimizer has the gradients.
  bool reshard_after_forward = false;
  // Of weights that actions gather: of so many units ahead of the one at work, where the software overlaps. 0: each
  // unit gathers when it is its turn, and reduces before the next one does.
  int prefetch = 1;
  int layers_per_unit = 1;  // of these weights, so many neighbouring layers are gathered, and reduced, as one
  // Of zero2, zero3, fsdp and hsdp: each microbatch's gradients are reduced behind W of their block, and each rank adds
  // up its part of them; else whole sums are, once a step (set_requires_gradient_sync of FSDP2).
  bool reduces_each_microbatch = false;
  // ZeRO++ (arXiv 2306.10209), of zero3 and fsdp: weights that all ranks gather travel as int8 (qwZ). Of so many
  // neighbours each keeps its part of a second copy, which F leaves; I or B, and R, gather from there (hpZ; 0: no such
  // copy). Gradients travel as int4, among so many neighbours first, then across (qgZ; 0: as they are).
  bool quantized_weights = false;
  int secondary_shard = 0;
  int quantized_gradients = 0;
  bool operator==(const DataLayout&) const = default;
};

// Degrees of each axis and their nesting. The product of the degrees is the number of ranks. Ranks that differ on the
// expert axis hold different experts and train on different sequences, as ranks of the data axis do: what Megatron-LM
// calls expert parallelism of E inside data parallelism of D is here expert: E and data: D / E.
struct Layout {
  std::array<MeshAxis, 5> order = {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data,
                                   MeshAxis::pipeline};  // innermost first
  int pipeline = 1;
  TensorLayout tensor;
  DataLayout data;
  int context = 1;
  int expert = 1;
  // Data degrees of the pipeline's ranks where they differ, as in PipeDream's "15-1" (arXiv 1806.03377) and DAPPLE's
  // replicated stages (arXiv 2007.01045); empty: `data.degree` is that of all. Else that is the largest of them, the
  // number of ranks is their sum times the other degrees, and ranks stand in the order of the stages, in each stage as
  // `order` says, where the pipeline is outermost. Each microbatch is divided among the replicas of every stage.
  std::vector<int> stage_data = {};
  int vocabulary_barriers = 0;  // of one divided over the pipeline (common/schedule/vocabulary_parts.hpp); 0: it is not
  bool operator==(const Layout&) const = default;
};

[[nodiscard]] std::string_view axis_name(MeshAxis axis);  // "tensor": as in a scenario

// Throws InputError unless the order names every axis once, every degree is at least 1 and the ranks fit an int; data
// degrees by stage as above: one for each rank of the pipeline, not all alike, the pipeline outermost; sharding as
// require_consistent_sharding of common/layout/sharding.hpp says, a grid as require_grid of
// common/layout/tensor_grid.hpp; asynchronous only what divides tokens or has panels, unless its group is of one.
void require_consistent(const Layout& layout);

// The product of the degrees, each at least 1; the largest 64-bit number stands for all that do not fit that.
[[nodiscard]] std::int64_t rank_product(const Layout& layout);

// The functions below take a consistent layout; they throw InputError where a number of ranks does not fit an int.
[[nodiscard]] int degree(const Layout& layout, MeshAxis axis);
[[nodiscard]] int ranks(const Layout& layout);
// Among how many ranks the states of a weight are shared out, each updating its part (ZeRO, arXiv 1910.02054,
// section 5.1; cross-replica sharding of the update, arXiv 2004.13336).
[[nodiscard]] int state_shards(const Layout& layout);
// Whether they share out the weights, too (arXiv 1910.02054, section 5.3; arXiv 2304.11277): zero3, fsdp, hsdp.
[[nodiscard]] bool shards_weights(const Layout& layout);
// Of these, whether each action gathers them for itself; and of zero2 and these, whether each W or B reduces gradients.
[[nodiscard]] bool gathers_in_actions(const Layout& layout);
[[nodiscard]] bool reduces_in_actions(const Layout& layout);
// Neighbours on the data axis that move weights or gradients among themselves, apart from the others (ZeRO++); 1: none.
[[nodiscard]] int inside_shards(const DataLayout& data);
// Among how many the sequences of a batch are divided: the data and expert degrees.
[[nodiscard]] std::int64_t batch_shards(const Layout& layout);

// Whether the stages have different data degrees; and that of one rank of the pipeline, its first rank, how many ranks
// hold what it does.
[[nodiscard]] inline bool has_stage_data(const Layout& layout) { return !layout.stage_data.empty(); }
[[nodiscard]] int data_degree(const Layout& layout, int pipeline_rank);
[[nodiscard]] int first_rank(const Layout& layout, int pipeline_rank);  // with the pipeline outermost
[[nodiscard]] int stage_width(const Layout& layout, int pipeline_rank);

// Of one pipeline rank, as if all had its data degree: of a layout without different ones itself.
[[nodiscard]] Layout as_all(const Layout& layout, int pipeline_rank);

// The layout with these data degrees; without different ones where they are alike.
[[nodiscard]] Layout with_stage_data(Layout layout, const std::vector<int>& degrees);

// Position of a rank on each axis, indexed by MeshAxis.
using MeshCoordinates = std::array<int, 5>;
[[nodiscard]] MeshCoordinates coordinates(const Layout& layout, int rank);
[[nodiscard]] int rank_at(const Layout& layout, const MeshCoordinates& coordinates);

// Neighbours of the pipeline stand so many ranks apart, all at the same stage. Not for data degrees by stage.
[[nodiscard]] int pipeline_stride(const Layout& layout);

// The ranks that differ from `rank` only on `axis`, in the order of that axis, `rank` included; along a pipeline with
// data degrees by stage those that there are.
[[nodiscard]] std::vector<int> group(const Layout& layout, int rank, MeshAxis axis);

// The rank's data-parallel ranks, ascending, that share one copy of the states with it: all of them, but for hsdp
// `shard` neighbours on the data axis; and those that have the same part in other copies: itself alone, but for hsdp.
[[nodiscard]] std::vector<int> shard_group(const Layout& layout, int rank);
[[nodiscard]] std::vector<int> replicate_group(const Layout& layout, int rank);

// Of the shard group's ranks `inside_shards` neighbours, and those that stand where it does among other neighbours;
// both with it, ascending.
[[nodiscard]] std::vector<int> inside_group(const Layout& layout, int rank);
[[nodiscard]] std::vector<int> across_group(const Layout& layout, int rank);

// "pp8·tp4·dp2" with the degrees above one, "tp4·2d" and "tp8·2.5d·depth2" of grids, "pp2·dp15-1" with those by stage,
// "pp8·vocabulary1" with barriers, "dp8·zero1" where states are shared out, "dp8·hsdp4x2" with HSDP's own two degrees,
// "dp8·zero3·qwZ·hpZ4·qgZ4" with what there is of ZeRO++, "single" if there is none.
[[nodiscard]] std::string describe(const Layout& layout);

}  // namespace plumb
