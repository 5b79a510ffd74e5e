// Tables of the fields of a scenario.
#pragma once

#include "common/base/document/field.hpp"

namespace plumb {

[[nodiscard]] const FieldBlock& scenario_block();
[[nodiscard]] const FieldBlock& training_block();
[[nodiscard]] const FieldBlock& recompute_block();
[[nodiscard]] const FieldBlock& lora_block();
[[nodiscard]] const FieldBlock& cluster_block();
[[nodiscard]] const FieldBlock& layout_block();
[[nodiscard]] const FieldBlock& tensor_block();
[[nodiscard]] const FieldBlock& data_block();
[[nodiscard]] const FieldBlock& sharding_block();
[[nodiscard]] const FieldBlock& vocabulary_block();
[[nodiscard]] const FieldBlock& schedule_block();
[[nodiscard]] const FieldBlock& schedule_file_block();
[[nodiscard]] const FieldShape& schedule_shape();
[[nodiscard]] const FieldShape& split_shape();

// Names of the split methods that need nothing else.
[[nodiscard]] const std::vector<std::string>& split_methods();
// Words of `over` in a vocabulary block, in the order of `auto`.
[[nodiscard]] const std::vector<std::string>& vocabulary_over_names();

// Checks a block of a scenario; a key that stands in the wrong block is answered with the right one.
void check_block(const FieldBlock& block, const YamlValue& value);

}  // namespace plumb
