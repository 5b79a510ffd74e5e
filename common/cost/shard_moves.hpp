// The collectives that move weights and gradients among data-parallel ranks which share them out, and their bytes.
#pragma once

#include "common/base/units.hpp"
#include "common/cost/collective_time.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// Where the ranks stand that share one copy of the states; and in groups of their own, of ZeRO++.
struct ShardGroups {
  GroupPlacement all = {};
  GroupPlacement inside = {};
  GroupPlacement across = {};
  bool operator==(const ShardGroups&) const = default;
};

// In which types they are, and what sums the gradients.
struct MovedTypes {
  ElementType weights = ElementType::bf16;
  ElementType gradients = ElementType::fp32;
  Collective reduction = Collective::all_reduce;
};

// Of a stage's or a block's bytes, as whole weights or gradients. What is quantised takes kernels that stream, counted
// as the latency of the phase that they are for: of a gather one before it, over the own part, and one behind it; of
// the reduction the same around each all-to-all, of which the first leaves sums in fp32 (section 3.3 of arXiv
// 2306.10209). Where F leaves a second copy that is one more.
class ShardMoves {
 public:
  // `machine` must outlive this.
  ShardMoves(const Machine& machine, const DataLayout& data, MovedTypes types, ShardGroups groups)
      : machine_(machine), data_(data), types_(types), groups_(groups) {}

  [[nodiscard]] CollectivePlan gathering(Bytes weights) const;        // of F, or of all once a step
  [[nodiscard]] CollectivePlan gathering_again(Bytes weights) const;  // of R, and I or B
  [[nodiscard]] CollectivePlan reduction(Bytes gradients) const;

 private:
  // An all-to-all of so many bytes of gradients on every rank, quantised, whose sum over so many ranks is in fp32.
  [[nodiscard]] CollectivePhase exchange(double bytes, ElementType type, const GroupPlacement& group) const;

  const Machine& machine_;
  DataLayout data_;
  MovedTypes types_;
  ShardGroups groups_;
};

// Bytes that a rank receives, of whole weights or gradients: in F, or once a step; in R, and I or B; and where its
// gradients are reduced. All but its own part, n ranks: (n−1)/n of what travels, also of two all-to-alls,
// (k−1)/k + (n/k−1)/(n/k)/k. Where the ranks' parts differ in size, the mean of all. Quantised parts end with a block
// begun (block_quantisation.hpp): what travels quantised is asked for weight by weight, the rest may be summed before.
[[nodiscard]] double received_in_gather(const Layout& layout, ElementType type, Bytes weights);
[[nodiscard]] double received_in_second_gather(const Layout& layout, ElementType type, Bytes weights);
[[nodiscard]] double received_in_reduction(const Layout& layout, ElementType type, Bytes gradients);

}  // namespace plumb
