// The generated pages of docs/reference.
#pragma once

#include <string>
#include <vector>

namespace plumb::sim {

// To add a page, write its function and list it in `reference_pages()`.
struct ReferencePage {
  std::string file;  // "scenario.md"
  std::string (*text)();
};
[[nodiscard]] const std::vector<ReferencePage>& reference_pages();

}  // namespace plumb::sim
