// A layout as data: where each value and weight of a block lives, how each site is divided, which moves may happen.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/placement/moves.hpp"
#include "common/placement/site.hpp"

namespace plumb {

enum class Phase : std::uint8_t { forward, input_gradient, weight_gradient };

// What a move is for.
enum class Role : std::uint8_t {
  input,            // what a site reads
  output,           // what it makes
  statistics,       // sums inside a site
  input_gradient,   // what the sites that read a value give back
  output_gradient,  // what a site is given back
  weight,           // what a site multiplies with
  weight_gradient
};
[[nodiscard]] std::string_view name_of(Role role);
[[nodiscard]] std::string_view name_of(Phase phase);

// At which sites, told by the dimensions of what they read and make, and not by how a table divides them. Inner are
// heads, widths, the vocabulary, and rows of experts.
enum class At : std::uint8_t {
  entry,           // something of it is inner, and it reads what is not
  exit,            // something of it is inner, and it makes what is not
  shortening,      // makes one value of a sequence: of a class token
  product,         // multiplies with a weight, or looks it up
  entry_product,   // … and makes something inner of what is not
  exit_product,    // … and the other way round
  narrow,          // reads what is neither inner nor has hidden channels: low-rank projections, shares of experts
  narrow_product,  // a product that makes such a value
  norm,
  lookup,
  loss
};
[[nodiscard]] bool is_at(At at, const Site& site);  // it is one of these

struct DeclaredMove {
  Phase phase = Phase::forward;
  Role role = Role::input;
  At at = At::product;
  Collective collective = Collective::all_gather;
  Axes over = {};
  bool operator==(const DeclaredMove&) const = default;
};

struct LayoutTable {
  std::string name;                               // "1d, sp"
  std::map<std::string, Placement> values = {};   // as they are kept between sites
  std::map<std::string, Placement> weights = {};  // as they are stored
  // Values whose gradients stay summands over these axes: the site that makes them, which passes sums, passes them on.
  std::map<std::string, Axes> gradient_sums = {};
  // Of each site its iteration space: which axes divide which of its dimensions. One axis may divide several that no
  // tensor of the site has together (query heads and heads of keys).
  std::map<std::string, Placement> sites = {};
  std::vector<DeclaredMove> declared = {};
  // What F has gathered serves I and W, too; else it is gathered again where it is needed: weights in I, inputs in W.
  bool keeps_gathered = true;
};

// Tables of one block: `sites` are all of it. `mesh` is `mesh_of` a layout of this kind, in 1d perhaps
// `with_copied_heads`; axes of one rank do not count. None throws: what does not fit is found by place_block, shapes
// that the axes do not divide, too.

// The 1d layout (arXiv 1909.08053, section 3): heads, widths and the vocabulary by "tensor". With sequence parallelism
// (arXiv 2205.05198, section 4.2) the rest by tokens, gathered again for W.
[[nodiscard]] LayoutTable one_d(const Mesh& mesh, const std::vector<Site>& sites, bool sequence_parallel);
// SUMMA on a grid (arXiv 2104.05343, algorithms 1 to 3): sequences by row, features by column, a matrix [out, in] by
// column and row. With "tensor.depth" of 2.5d (arXiv 2105.14500, section 3.1): sequences also by depth, over which the
// matrices are copies.
[[nodiscard]] LayoutTable two_d(const Mesh& mesh, const std::vector<Site>& sites);
// On a cube (arXiv 2105.14450, section 3.2): hidden by column and sequences by row and depth, where heads and widths
// are, these by depth and sequences by row and column; a matrix [out, in] by both and the row.
// What F gathers is kept for the backward, or, to `reshard`, gathered again there: M·K and K·N of a product once more.
[[nodiscard]] LayoutTable three_d(const Mesh& mesh, const std::vector<Site>& sites, bool reshard = false);
// Of a layout; the axes "data", "shard", "replicate", "inside", "across" and "expert" divide the sequences of all
// values.
[[nodiscard]] LayoutTable layout_table(const Mesh& mesh, const TensorLayout& tensor, const std::vector<Site>& sites);

// Heads, widths and the vocabulary: what tensor parallelism divides inside a mixer, an MLP, the embedding and the head.
[[nodiscard]] constexpr bool is_inner(Dim dim) {
  return dim == Dim::heads || dim == Dim::kv_heads || dim == Dim::width || dim == Dim::vocabulary;
}
[[nodiscard]] bool is_inner(const Shape& shape);

}  // namespace plumb
