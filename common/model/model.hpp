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

// Rotary positions that turn slower, so that longer sequences fit. Alone, `factor` is that of all frequencies (linear,
// arXiv 2306.15595); with the others as Llama 3 has it: what turns once in fewer than original_positions /
// high_frequency tokens stays, what needs more than original_positions / low_frequency is slowed by `factor`, and what
// lies between them by a mean.
struct RopeScaling {
  double factor = 1;
  std::optional<double> low_frequency = {};
  std::optional<double> high_frequency = {};
  std::optional<std::int64_t> original_positions = {};
  bool operator==(const RopeScaling&) const = default;
};

// What no shape tells and yet decides the values. None: as all models are computed that do not say it (the functions
// below), so a number that is the usual one stands here as none.
struct Arithmetic {
  std::optional<double> norm_epsilon = {};  // of all norms
  std::optional<double> rope_theta = {};    // the base of rotary frequencies
  std::optional<RopeScaling> rope_scaling = {};
  bool raw_expert_shares = false;  // chosen experts' probabilities as they are (norm_topk_prob: false), else sum 1
  bool operator==(const Arithmetic&) const = default;
};

// The Hugging Face config.json that a model was read from: which names its tensors have in a checkpoint, and what goes
// out with trained weights.
struct HuggingFaceConfig {
  std::string model_type = {};
  std::string text = {};  // JSON on one line
  bool operator==(const HuggingFaceConfig&) const = default;
};

// Which of its blocks a model stands for: all, those without the vocabulary, where that is divided over the ranks of a
// pipeline, or a part of it alone, which has then no layers (divided_vocabulary.hpp); of that either as it is, or with
// the rows of tokens' targets looked up apart from the gradient of the softmax.
enum class ModelPart : std::uint8_t { whole, without_vocabulary, vocabulary, vocabulary_and_target_rows };

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
  Arithmetic arithmetic = {};
  std::optional<HuggingFaceConfig> hugging_face = {};  // none: from a block
  ModelPart part = ModelPart::whole;                   // the others are made for costs, and stand in no file
  bool operator==(const Model&) const = default;
};

// The sequence that counts and costs assume when none is given: ViT's own, else min(max_positions, 4096), else 4096.
[[nodiscard]] std::int64_t default_sequence(const Model& model);

[[nodiscard]] constexpr bool is_part_of_vocabulary(const Model& model) {
  return model.part == ModelPart::vocabulary || model.part == ModelPart::vocabulary_and_target_rows;
}

// Whether its embedding adds a row of learned positions.
[[nodiscard]] constexpr bool adds_positions(const Model& model) {
  return model.positions == Positions::learned && !is_part_of_vocabulary(model);
}

inline constexpr double usual_rms_epsilon = 1e-6;
inline constexpr double usual_layer_norm_epsilon = 1e-5;
inline constexpr double usual_rope_theta = 10000;  // arXiv 2104.09864, section 3.2.2

[[nodiscard]] constexpr double usual_epsilon(NormKind kind) {
  return kind == NormKind::rmsnorm ? usual_rms_epsilon : usual_layer_norm_epsilon;
}
[[nodiscard]] constexpr double norm_epsilon(const Model& model, NormKind kind) {
  return model.arithmetic.norm_epsilon.value_or(usual_epsilon(kind));
}

}  // namespace plumb
