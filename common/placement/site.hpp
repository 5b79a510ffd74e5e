// A block of the model as a graph of sites: operations with named inputs and outputs, whose dimensions a layout
// divides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model.hpp"
#include "common/model/operations.hpp"
#include "common/placement/placement.hpp"

namespace plumb {

// What a microbatch holds; shapes of sites are of one microbatch.
struct Tokens {
  std::int64_t sequences = 1;
  std::int64_t sequence = 1;  // tokens of each
};

// A value that a site reads. Keys and values of an attention are read with all their tokens by each query: their
// `sequence` is contracted there and not the site's own.
struct SiteInput {
  NamedShape value;
  bool reads_all_tokens = false;
};

// F states what depends on what; I and W follow by transposition: the gradient of an input has the input's dimensions,
// that of a weight the weight's. A dimension that neither output has is contracted.
struct Site {
  std::string name;  // within its block, as the operation's: "attention.q"
  OperationKind kind = OperationKind::matmul;
  std::vector<SiteInput> inputs = {};
  std::vector<NamedShape> outputs = {};  // the first is named as the site
  std::vector<NamedShape> weights = {};  // named as the parameters, without the block's prefix
  // Sums inside the operation over a dimension that its outputs have: a norm's over hidden, the loss's over the
  // vocabulary (maximum, sum and the target's logit); in fp32.
  Shape statistics = {};
  bool passes_sums = false;  // linear in its first input: of partial sums it makes partial sums, in I, too
  bool goes_back = true;     // else neither I nor W go through it
};

// A block's input is the value "input", of the embedding "tokens"; its output is that of its last site. Names are those
// of common/model/operations.hpp and parameters.hpp. Multi-token prediction stands with the head, under "mtp.N.".
[[nodiscard]] std::vector<Site> embedding_sites(const Model& model, const Tokens& tokens);
[[nodiscard]] std::vector<Site> layer_sites(const Model& model, const Layer& layer, const Tokens& tokens);
[[nodiscard]] std::vector<Site> head_sites(const Model& model, const Tokens& tokens);
// 0 the embedding, 1…n the layers, n+1 the head.
[[nodiscard]] std::vector<Site> block_sites(const Model& model, std::size_t block, const Tokens& tokens);

}  // namespace plumb
