// Where a tensor's values live: which axes of the mesh split which of its dimensions, and over which they are partial.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/placement/mesh.hpp"

namespace plumb {

// What a dimension of a tensor counts. A tensor has each at most once.
enum class Dim : std::uint8_t {
  batch,       // sequences
  sequence,    // tokens of a sequence; as the queries of an attention
  rows,        // (token, expert) pairs that a router has chosen
  hidden,      // channels of the residual stream
  heads,       // query heads, or heads of a recurrence
  kv_heads,    // heads of keys and values where several query heads share one
  channels,    // elements of a head
  width,       // columns of an MLP or an expert; inner channels of a recurrence without heads
  vocabulary,  // tokens of the vocabulary, or classes
  experts,
  low_rank,  // of a factored projection
  features,  // anything else; nothing splits it
  elements,  // of a weight, in the order of its memory
};
[[nodiscard]] std::string_view name_of(Dim dim);
[[nodiscard]] constexpr bool counts_tokens(Dim dim) {
  return dim == Dim::batch || dim == Dim::sequence || dim == Dim::rows;
}

// A whole dimension. Where several tensors stand one after the other in it (q, k, v in one convolution), `segments` are
// their sizes: each is split on its own.
struct Extent {
  Dim dim = Dim::features;
  std::int64_t size = 1;
  std::vector<std::int64_t> segments = {};
  bool operator==(const Extent&) const = default;
};
using Shape = std::vector<Extent>;
struct NamedShape {
  std::string name;
  Shape shape;
  bool operator==(const NamedShape&) const = default;
};
[[nodiscard]] std::int64_t elements(const Shape& shape);
[[nodiscard]] bool has(const Shape& shape, Dim dim);
// Tokens, or rows of experts: the product of batch, sequence and rows.
[[nodiscard]] std::int64_t rows_of(const Shape& shape);

// How one dimension is split.
struct DimSplit {
  Dim dim = Dim::features;
  std::vector<Axis> by = {};  // major to minor
  // Of n ranks the i-th has parts i and 2n−1−i of 2n: equal work where attention is causal (arXiv 2310.01889's
  // imbalance; as Megatron-LM's context parallelism and Llama 3, arXiv 2407.21783, section 3.3.2, cut it).
  bool zigzag = false;
  bool operator==(const DimSplit&) const = default;
};

// Axes that neither split nor are partial hold equal copies.
struct Placement {
  std::vector<DimSplit> splits = {};  // a dimension at most once, in the order of Dim; none without axes
  Axes partial = {};                  // each rank along these has a summand
  bool operator==(const Placement&) const = default;
};
// With one more split, of a dimension that is split by the minor axes of more; the same where there is no axis. Throws
// std::logic_error where one of both is zigzag and the other is not: parts of such parts are no ranges.
[[nodiscard]] Placement with_split(Placement placement, Dim dim, std::vector<Axis> by, bool zigzag = false);
[[nodiscard]] Placement with_partial(Placement placement, Axes over);
[[nodiscard]] const DimSplit* find_split(const Placement& placement, Dim dim);
[[nodiscard]] Axes split_axes(const Placement& placement);
// Splits of the dimensions that a shape has.
[[nodiscard]] Placement restricted(const Placement& placement, const Shape& shape);

// What every rank holds of `whole`. Throws InputError (where = `name`) for a dimension, or a segment of it, that the
// axes do not divide, with what to set; along `elements` and the vocabulary, which
// programs pad, the parts may be uneven and the largest counts.
[[nodiscard]] Shape local_shape(const Mesh& mesh, const NamedShape& whole, const Placement& placement);
[[nodiscard]] std::int64_t local_elements(const Mesh& mesh, const NamedShape& whole, const Placement& placement);

// Indices from `begin` up to but without `end`.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const IndexRange&) const = default;
};
// Which of a whole dimension a rank holds, in the order in which it holds them. Where parts are
// uneven the last ones are shorter, or empty.
[[nodiscard]] std::vector<IndexRange> owned(const Mesh& mesh, const Extent& whole, const Placement& placement,
                                            int rank);

// The same of all elements of a whole tensor, in the order of its memory: the last dimension is the innermost.
[[nodiscard]] std::vector<IndexRange> owned_elements(const Mesh& mesh, const Shape& whole, const Placement& placement,
                                                     int rank);

// "sequence by tensor; partial over data", "copies".
[[nodiscard]] std::string describe(const Mesh& mesh, const Placement& placement);
// "batch 2 × sequence 4096 × hidden 512".
[[nodiscard]] std::string describe(const Shape& shape);

}  // namespace plumb
