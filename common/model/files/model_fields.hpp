// Tables of the fields of a model block's parts. Internal; model_block() itself is public.
#pragma once

#include <string>
#include <vector>

#include "common/base/document/field.hpp"

namespace plumb {

[[nodiscard]] const FieldBlock& linear_block();
[[nodiscard]] const FieldBlock& kda_block();
[[nodiscard]] const FieldBlock& mla_block();
[[nodiscard]] const FieldBlock& lightning_block();
[[nodiscard]] const FieldBlock& mamba_block();
[[nodiscard]] const FieldBlock& mamba2_block();
[[nodiscard]] const FieldBlock& experts_block();
[[nodiscard]] const FieldBlock& rotary_block();
[[nodiscard]] const FieldBlock& patches_block();

// Words of `layers`, and of `activation`.
[[nodiscard]] const std::vector<std::string>& mixer_words();
[[nodiscard]] const std::vector<std::string>& mlp_words();
[[nodiscard]] const std::vector<std::string>& activation_words();

}  // namespace plumb
