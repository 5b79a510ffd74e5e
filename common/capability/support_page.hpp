// Page of docs/reference that prints the table of capabilities.
#pragma once

#include <string>

namespace plumb {

// Returns the page in Markdown: one table of features a group, then one of the pairs that some column lacks.
[[nodiscard]] std::string support_page();

}  // namespace plumb
