// JSON Schema of a YAML file, for editors and validators, from its table of fields.
#pragma once

#include <string>

#include "common/base/document/field.hpp"

namespace plumb {

// Draft 2020-12. It holds what one key or a few keys of one block show; the reader refuses more.
[[nodiscard]] std::string json_schema(const std::string& title, const std::string& description,
                                      const FieldShape& shape);

}  // namespace plumb
