// One block of a model as a layout divides it: who holds what, and which collectives move how much.
#pragma once

#include <string>

#include "common/base/document/json.hpp"
#include "common/placement/placed_block.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb::sim {

struct BlockView {
  std::string title;  // "layer 3 (full/dense)"
  std::string layout;
  Layout ranks = {};  // all axes of it: data-parallel ranks may share out what the sites have
  Tokens tokens;
  ElementType precision = ElementType::bf16;
  PlacedBlock placed;
};

// `block`: "embedding", "head", or the index of a decoder layer. Throws InputError for others, and where the layout
// does not divide the model's shapes.
[[nodiscard]] BlockView view_of(const Model& model, const std::string& block, const Layout& layout,
                                const Tokens& tokens, ElementType precision);

[[nodiscard]] std::string sites_text(const BlockView& view);
[[nodiscard]] Json sites_json(const BlockView& view);
// A picture: a box for each site with what a rank holds, and an arrow with its bytes for each collective.
[[nodiscard]] std::string sites_svg(const BlockView& view);

}  // namespace plumb::sim
