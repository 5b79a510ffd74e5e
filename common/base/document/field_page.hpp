// Reference page of a file in Markdown, from its table of fields.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/document/field.hpp"

namespace plumb {

// "training.recompute" as a heading's link: "trainingrecompute".
[[nodiscard]] std::string heading_anchor(const std::string& title);

// A heading and a table for the block and each block below it. Blocks with a page of their own (`pages`: name and
// file) are links to it.
struct FieldPage {
  const FieldBlock& block;
  std::vector<std::pair<const FieldBlock*, std::string>> pages = {};
};
[[nodiscard]] std::string tables_of(const FieldPage& page);

}  // namespace plumb
