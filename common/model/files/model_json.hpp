// A model as JSON, for plans and digests. Internal, like json.hpp.
#pragma once

#include <vector>

#include "common/base/document/json.hpp"
#include "common/base/document/json_tables.hpp"
#include "common/model/model.hpp"

namespace plumb {

[[nodiscard]] Json to_json(const Model& model);
// What the values of a model's weights belong to: equal where two models compute the same of tensors of the same
// shapes. Without the name, without the file that it was read from, and without how long sequences may get, which
// counts only where each position has a row of its own.
[[nodiscard]] Json arithmetic_json(Model model);
// One layer; its shapes alone, so equal layers give equal JSON.
[[nodiscard]] Json to_json(const Layer& layer);

// Throws InputError naming file and key for what is missing, unknown or not a shape. Sizes have upper limits that keep
// all products of a layer within 63 bits.
[[nodiscard]] Model model_from_json(const JsonValue& value);

// Its keys, for the reference page.
[[nodiscard]] std::vector<JsonTable> model_tables();

}  // namespace plumb
