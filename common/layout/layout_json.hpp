// A layout as JSON: in plans and in timelines of all ranks. Internal, like json.hpp.
#pragma once

#include <vector>

#include "common/base/document/json.hpp"
#include "common/base/document/json_tables.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

[[nodiscard]] Json to_json(const Layout& layout);

// Throws InputError naming file and key for what is missing, unknown, of another type or inconsistent.
[[nodiscard]] Layout layout_from_json(const JsonValue& value);

// Its keys, for the reference page.
[[nodiscard]] std::vector<JsonTable> layout_tables();

}  // namespace plumb
