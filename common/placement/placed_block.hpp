// What follows from a table: of every site what one rank holds of its tensors, and every collective with its bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/placement/table.hpp"

namespace plumb {

struct PlacedTensor {
  NamedShape whole;
  Placement placement;
  Shape local;  // of one rank
};

struct PlacedMove {
  Phase phase = Phase::forward;
  Role role = Role::input;
  std::string site;    // of several that need the same, the first
  std::string tensor;  // value or weight
  Move move;
};

struct PlacedSite {
  std::string name;
  OperationKind kind = OperationKind::matmul;
  std::vector<PlacedTensor> inputs = {};   // as they are needed
  std::vector<PlacedTensor> outputs = {};  // as they are made, perhaps partial
  std::vector<PlacedTensor> kept = {};     // the outputs, as they are kept
  std::vector<PlacedTensor> weights = {};  // as they are needed
  // Among how many ranks its work is divided.
  int ways = 1;
};

// A weight as it is stored, and over which axes its gradient stays partial in the accumulators until the weights' rule
// reduces it: copies of data parallelism, but also norms under sequence parallelism and norms of divided heads.
struct PlacedWeight {
  PlacedTensor stored;
  Axes gradient_partial = {};
};

struct PlacedBlock {
  Mesh mesh;
  std::vector<PlacedSite> sites = {};
  std::vector<PlacedMove> moves = {};      // in the order in which F, then I, then W meet them
  std::vector<PlacedWeight> weights = {};  // as they come in the sites
};

// Of what the table gives: an input's needed placement is that of its site's iteration space, and an output is partial
// over the axes that divide dimensions which it has not; I and W by transposition. Each value is gathered once for all
// sites that need it alike, and its gradient is reduced once. A move that the table has not declared is an error:
// throws InputError (where = layout and site) that names the tensor, the collective and the axes.
[[nodiscard]] PlacedBlock place_block(const Mesh& mesh, const LayoutTable& table, const std::vector<Site>& sites);

// A block of a model (0: the embedding, then the layers, then the head) in a tensor layout, of one data-parallel rank's
// microbatch. Throws as above, and InputError that names a dimension which the degree does not divide.
[[nodiscard]] PlacedBlock place_block(const Model& model, std::size_t block, const TensorLayout& tensor,
                                      const Tokens& tokens);

// Among how many ranks each of a matmul's dimensions is divided: those that its output has of the weight, those that it
// contracts, and those that count tokens.
struct MatmulWays {
  int outputs = 1;
  int inputs = 1;
  int tokens = 1;
};
[[nodiscard]] MatmulWays matmul_ways(const Mesh& mesh, const PlacedSite& site);
// Among how many ranks a tensor is divided.
[[nodiscard]] int ways_of(const Mesh& mesh, const PlacedTensor& tensor);

// What part of all that a site reads and makes one rank has: 1 / ways, and more of heads of keys that several have.
[[nodiscard]] double share_of(const Mesh& mesh, const PlacedSite& site);

// Elements of a weight that a rank stores, as it is allocated: of a vocabulary that the ranks do not divide evenly, as
// of the rank that has most. Throws std::logic_error for a weight that the block has not.
[[nodiscard]] std::int64_t stored_elements(const PlacedBlock& block, std::string_view weight);

// Of a value, a weight or a site's statistics, in one phase and role: the first collective, which in the 1d layout is
// the only one; null: nothing moves.
[[nodiscard]] const PlacedMove* find_move(const PlacedBlock& block, Phase phase, Role role, std::string_view tensor);

// What a site reads, or else makes, under this name; null: neither, as of weights and statistics.
[[nodiscard]] const PlacedTensor* find_value(const PlacedSite& site, std::string_view name);

// Throws std::logic_error for a name that the block has not.
[[nodiscard]] const PlacedSite& site_of(const PlacedBlock& block, std::string_view name);

// In which type a move carries its elements: statistics and the shares of a router's choice in fp32, as all executors
// keep them; all else in the training's precision. And what it brings to a rank in one microbatch.
[[nodiscard]] ElementType moved_type(const PlacedMove& each, ElementType precision);
[[nodiscard]] double received_bytes(const PlacedBlock& block, const PlacedMove& each, ElementType precision);

}  // namespace plumb
