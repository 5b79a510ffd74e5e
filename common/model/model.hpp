// A whole model: embedding, decoder layers, final norm, head. Shapes only; no weights, no devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/layer.hpp"

namespace plumb {

enum class Positions : std::uint8_t { none, rope, learned };

// Patches in, classes out (ViT, arXiv 2010.11929); the sequence is (image/patch)² + 1 tokens.
struct Vision {
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t channels = 3;
  std::int64_t classes = 0;
  bool operator==(const Vision&) const = default;
};

[[nodiscard]] std::int64_t tokens(const Vision& vision);

struct Model {
  std::string name = {};
  std::int64_t vocabulary = 0;  // 0 with `vision`
  std::int64_t hidden = 0;
  std::vector<Layer> layers = {};
  NormKind final_norm = NormKind::rmsnorm;
  Positions positions = Positions::rope;
  std::int64_t max_positions = 0;  // rows of the learned position table; else the longest sequence, 0 if unknown
  bool tied_embeddings = false;
  bool head_bias = false;
  std::int64_t mtp_modules = 0;  // multi-token prediction: each one decoder layer like the last, on the last stage
  std::optional<Vision> vision = {};
  bool operator==(const Model&) const = default;
};

// The sequence that counts and costs assume when none is given: ViT's own, else min(max_positions, 4096), else 4096.
[[nodiscard]] std::int64_t default_sequence(const Model& model);

}  // namespace plumb
