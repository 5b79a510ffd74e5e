#include <algorithm>

#include "common/model/files/config_layers.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

using Words = std::vector<LayerWord>;

// `layer_types`
LayerWord attention_word(const YamlValue& value) {
  const std::string word = value.text();
  if (word == "full_attention" || word == "attention") return LayerWord::full;
  if (word == "sliding_attention") return LayerWord::sliding;
  if (word == "linear_attention") return LayerWord::linear;
  value.fail(value.path() + ": the layer type '" + word + "' is not understood",
             did_you_mean(word, {"full_attention", "sliding_attention", "linear_attention"}));
}

// `layers_block_type`: Jamba's are Mamba-1 and have an MLP each, the others' are Mamba-2 and the layer's only part.
LayerWord block_word(const YamlValue& value, const ModelFamily& family) {
  const std::string word = value.text();
  if (word == "attention") return LayerWord::full;
  if (word == "mamba") return family.one_mixer_per_layer ? LayerWord::mamba2 : LayerWord::mamba1;
  if (family.one_mixer_per_layer && word == "mlp") return LayerWord::mlp;
  if (family.one_mixer_per_layer && word == "moe") return LayerWord::moe;
  value.fail(value.path() + ": the layer type '" + word + "' is not understood",
             did_you_mean(word, {"attention", "mamba", "mlp", "moe"}));
}

LayerWord pattern_word(const YamlValue& pattern, char letter) {
  switch (letter) {
    case 'M':
      return LayerWord::mamba2;
    case '*':
      return LayerWord::full;
    case '-':
      return LayerWord::mlp;
    case 'E':
      return LayerWord::moe;
    default:
      pattern.fail(pattern.path() + ": '" + std::string(1, letter) + "' is no layer",
                   "M Mamba-2, * attention, - MLP, E experts");
  }
}

template <class Read>
Words list_of(const YamlValue& list, Read read) {
  Words words;
  for (const YamlValue& item : list.items()) words.push_back(read(item));
  return words;
}

// `linear_attn_config` (Kimi Linear) counts layers from 1.
Words words_by_number(const YamlValue& config, std::int64_t layers) {
  std::vector<int> seen(static_cast<std::size_t>(layers), 0);
  Words words(static_cast<std::size_t>(layers), LayerWord::full);
  const auto mark = [&](const char* key, LayerWord word) {
    for (const YamlValue& item : config.require(key).items()) {
      const auto index = static_cast<std::size_t>(item.integer(1, layers) - 1);
      words[index] = word;
      if (seen[index]++ > 0) item.fail(item.path() + ": layer " + item.text() + " is listed twice");
    }
  };
  mark("full_attn_layers", LayerWord::full);
  mark("kda_layers", LayerWord::linear);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] == 0) config.fail(config.path() + ": layer " + std::to_string(i + 1) + " is in no list");
  }
  return words;
}

std::optional<Words> listed_words(ConfigFields& fields, const ModelFamily& family) {
  const auto types = fields.find({"layer_types"});
  const auto kinds = fields.find({"attn_type_list"});
  const auto blocks = fields.find({"layers_block_type"});
  const auto pattern = fields.find({"hybrid_override_pattern"});
  if (types) return list_of(*types, attention_word);
  if (kinds) {
    return list_of(*kinds,
                   [](const YamlValue& item) { return item.integer(0, 1) == 1 ? LayerWord::full : LayerWord::linear; });
  }
  if (blocks) return list_of(*blocks, [&](const YamlValue& item) { return block_word(item, family); });
  if (!pattern) return std::nullopt;
  Words words;
  for (const char letter : pattern->text()) words.push_back(pattern_word(*pattern, letter));
  return words;
}

// Layer i (from 0) by a rule of its number.
template <class IsFirst>
Words words_by_rule(std::int64_t layers, LayerWord first, LayerWord second, IsFirst is_first) {
  Words words;
  for (std::int64_t i = 0; i < layers; ++i) words.push_back(is_first(i) ? first : second);
  return words;
}

// Qwen's windows begin at layer `max_window_layers`; without any rule a window is that of all layers.
Words windowed_words(ConfigFields& fields, const ModelFamily& family, std::int64_t layers) {
  const auto pattern = fields.find({"sliding_window_pattern", "_sliding_window_pattern"});
  const auto from = fields.optional_integer({"max_window_layers"}, 0, limits::layers);
  const bool has_window = fields.find({"sliding_window"}).has_value();
  const bool used = fields.flag({"use_sliding_window"}, !family.window_needs_switch) && has_window;
  if (family.layer_list && !pattern) {
    fields.fail("which layers are which is missing", "'layer_types' or the family's own list or pattern says it");
  }
  if (pattern && !has_window) (void)fields.require({"sliding_window"});
  if (!used) {
    Words full(static_cast<std::size_t>(layers), LayerWord::full);
    return full;
  }
  const std::int64_t period = pattern ? pattern->integer(1, limits::layers) : family.window_pattern;
  if (period > 0) {
    return words_by_rule(layers, LayerWord::sliding, LayerWord::full,
                         [&](std::int64_t i) { return (i + 1) % period != 0; });
  }
  if (family.window_needs_switch && !from) {
    fields.fail("'use_sliding_window' is set, and 'max_window_layers' is missing: the first layer with a window");
  }
  const std::int64_t first = family.window_needs_switch ? *from : 0;
  return words_by_rule(layers, LayerWord::sliding, LayerWord::full, [&](std::int64_t i) { return i >= first; });
}

// Where something else decides which layers are which, the fields of windows are only marked as read.
void overrule_windows(ConfigFields& fields) {
  for (const char* name : {"sliding_window_pattern", "_sliding_window_pattern", "max_window_layers",
                           "use_sliding_window", "sliding_window"}) {
    (void)fields.find({name});
  }
}

}  // namespace

std::vector<LayerWord> read_layer_words(ConfigFields& fields, const ModelFamily& family) {
  const Names count_names = {"num_hidden_layers", "n_layer", "num_layers"};
  (void)fields.find(count_names);
  const std::optional<Words> listed = listed_words(fields, family);
  const auto linear = fields.find({"linear_attn_config"});
  const auto interval = fields.optional_integer({"full_attention_interval"}, 1, limits::layers);
  const auto period = fields.optional_integer({"attn_layer_period"}, 1, limits::layers);
  const auto offset = fields.optional_integer({"attn_layer_offset"}, 0, limits::layers);
  if (listed || linear || interval || period) overrule_windows(fields);
  if (listed) return *listed;
  const std::int64_t count = fields.integer(count_names, limits::layers);
  if (linear) return words_by_number(*linear, count);
  if (interval) {
    return words_by_rule(count, LayerWord::full, LayerWord::linear,
                         [&](std::int64_t i) { return (i + 1) % *interval == 0; });
  }
  if (period) {
    if (!offset || *offset >= *period) {
      fields.fail("'attn_layer_offset' must be there, and less than 'attn_layer_period'");
    }
    return words_by_rule(count, LayerWord::full, LayerWord::mamba1,
                         [&](std::int64_t i) { return i % *period == *offset; });
  }
  return windowed_words(fields, family, count);
}

}  // namespace plumb
