// Mixer and MLP of each layer of a config.json, with their shapes. Only config_*.cpp include it.
#pragma once

#include <vector>

#include "common/model/files/config_family.hpp"
#include "common/model/files/config_fields.hpp"
#include "common/model/layer.hpp"

namespace plumb {

// One entry of a list such as `layer_types`.
enum class LayerWord : std::uint8_t { full, sliding, linear, mamba1, mamba2, mlp, moe };

// A per-layer list wins over the number of layers; lists of different lengths are an error.
[[nodiscard]] std::vector<LayerWord> read_layer_words(ConfigFields& fields, const ModelFamily& family);

// Shapes of each word, in order.
[[nodiscard]] std::vector<Mixer> read_mixers(ConfigFields& fields, const ModelFamily& family, std::int64_t hidden,
                                             const std::vector<LayerWord>& words);
[[nodiscard]] std::vector<Mlp> read_mlps(ConfigFields& fields, const ModelFamily& family, std::int64_t hidden,
                                         const std::vector<LayerWord>& words);

}  // namespace plumb
