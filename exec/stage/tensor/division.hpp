// What one rank of a tensor-parallel group holds of a block: the shapes of its part, and which part of each weight.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/model.hpp"
#include "common/model/parameters.hpp"
#include "common/placement/placed_block.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb::exec {

// Parts of weights and values follow from the layout's table (common/placement), of every layout. That heads, widths
// and rows of the vocabulary are what is divided within a layer is known by `local`, and by who makes modules of these.
class Division {
 public:
  // Of block `block` in a tensor layout; `position` is that of the rank in its group. Throws InputError as place_block.
  Division(const Model& model, int block, const TensorLayout& tensor, const Training& training, int position = 0);

  [[nodiscard]] const PlacedBlock& placed() const { return placed_; }

  // Parameters by their global names; RunError for one that no site has.
  // The part of `whole` that this rank holds: its shape, and which of the elements, in the order of their memory.
  [[nodiscard]] std::vector<std::int64_t> local_shape(const Parameter& whole) const;
  [[nodiscard]] std::vector<IndexRange> owned(const std::string& name) const;
  [[nodiscard]] std::int64_t elements(const std::string& name) const;  // of the whole
  [[nodiscard]] std::vector<std::string> names() const;                // of all that its sites have
  // Whose summands its gradient is to be added up of: positions in the group, ascending; empty: it is whole.
  [[nodiscard]] std::vector<int> summands(const std::string& name) const;

  // The block as it is from this rank: local heads, widths and rows of the vocabulary.
  [[nodiscard]] Layer local(Layer layer) const;
  // Of an embedding or a head: rows of the vocabulary that are stored; the first that it looks up, or whose logit its
  // loss reads; and of which sequences of a microbatch it reads the tokens, or the targets.
  [[nodiscard]] std::int64_t vocabulary() const;
  [[nodiscard]] std::int64_t first_of_vocabulary() const;
  [[nodiscard]] IndexRange sequences() const;
  // Sizes of the hidden states that come into the block, or that an embedding makes: [sequences, tokens, channels].
  [[nodiscard]] std::vector<std::int64_t> hidden_states() const;

 private:
  [[nodiscard]] const PlacedWeight& weight(const std::string& name) const;
  [[nodiscard]] std::int64_t local_size(std::string_view site, Dim dim) const;
  [[nodiscard]] const PlacedSite& end_of_model() const;
  [[nodiscard]] Shape stored_input(const PlacedSite& site) const;
  [[nodiscard]] IndexRange range_of(const PlacedTensor& tensor, Dim dim) const;

  PlacedBlock placed_;
  std::map<std::string, PlacedWeight> weights_;  // by global name
  int position_;
};

// The weights of a block of which a rank before `position` in the tensor group holds the very same elements.
[[nodiscard]] std::set<std::string> copies_of_lower_ranks(const Model& model, int block, const TensorLayout& tensor,
                                                          const Training& training, int position);

}  // namespace plumb::exec
