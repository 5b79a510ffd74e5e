// Reads the model block of a YAML file: sizes, and `layers` written like "linear/dense*3, (sliding/moe, full/moe)*4".
#pragma once

#include "common/base/document/field.hpp"
#include "common/base/document/yaml.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Tables of its fields, and of a file that has it under one key `model`.
[[nodiscard]] const FieldBlock& model_block();
[[nodiscard]] const FieldBlock& model_file_block();
// A config.json of Hugging Face, for schemas: its own reader knows the other keys of each family.
[[nodiscard]] const FieldBlock& config_block();

// Required: vocabulary (or patches), hidden, layers; heads, ffn, experts, window, mla, mamba2 where a layer needs them.
// Defaults: kv_heads = heads, head_dim = hidden / heads, value_dim = head_dim, swiglu, rmsnorm, rope, no biases (`bias`
// gives them to attention and dense MLPs), untied; `linear` key_heads = value_heads = heads and dims = head_dim.
// GPT-J: `parallel` lets mixer and MLP read the same norm, `attention_bias` overrules `bias`, `head_bias` is the
// head's, `rotary: {dim: 64, interleaved: true}` turns a part of each head, and pairs of neighbours. ViT: `patches:
// {image: 32, patch: 4, channels: 3, classes: 10}` takes the place of the vocabulary: attention sees both ways, a
// position is learned for each patch and the class token, the head has a bias. Throws InputError with file, line and
// column for unknown keys, missing sizes, and sizes that do not fit each other.
[[nodiscard]] Model read_model_block(const YamlValue& block);

}  // namespace plumb
