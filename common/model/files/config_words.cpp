#include <algorithm>

#include "common/model/files/config_layers.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

using Words = std::vector<LayerWord>;

// Layers that a file calls linear attention, or mamba.
LayerWord recurrent_word(const ModelFamily& family) {
  switch (family.recurrence) {
    case Recurrence::mamba:
      return LayerWord::mamba1;
    case Recurrence::mamba2:
      return LayerWord::mamba2;
    case Recurrence::gated_delta:
    case Recurrence::lightning:
      break;
  }
  return LayerWord::linear;
}

bool is_mamba(const ModelFamily& family) {
  return family.recurrence == Recurrence::mamba || family.recurrence == Recurrence::mamba2;
}

// `layer_types`
LayerWord attention_word(const YamlValue& value, const ModelFamily& family) {
  const std::string word = value.text();
  if (word == "full_attention" || word == "attention") return LayerWord::full;
  if (word == "sliding_attention") return LayerWord::sliding;
  if (word == "linear_attention" || (word == "mamba" && is_mamba(family))) return recurrent_word(family);
  if (word == "chunked_attention" && family.chunked) return LayerWord::sliding;
  value.fail(value.path() + ": the layer type '" + word + "' is not understood",
             did_you_mean(word, {"full_attention", "sliding_attention", "linear_attention"}));
}

// `layers_block_type`: Jamba's layers have a mixer and an MLP each, Nemotron-H's one of the two.
LayerWord block_word(const YamlValue& value, const ModelFamily& family) {
  const std::string word = value.text();
  if (word == "attention" || word == "full_attention") return LayerWord::full;
  if ((word == "mamba" || word == "linear_attention") && is_mamba(family)) return recurrent_word(family);
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
  if (types) return list_of(*types, [&](const YamlValue& item) { return attention_word(item, family); });
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

// `is_first` takes the layer's number, from 0.
template <class IsFirst>
Words words_by_rule(std::int64_t layers, LayerWord first, LayerWord second, IsFirst is_first) {
  Words words;
  for (std::int64_t i = 0; i < layers; ++i) words.push_back(is_first(i) ? first : second);
  return words;
}

// Llama 4: layers without rotary positions are full, the others see a chunk.
std::optional<Words> chunked_words(ConfigFields& fields, const ModelFamily& family, std::int64_t layers) {
  if (!family.chunked) return std::nullopt;
  const auto every = fields.optional_integer({"no_rope_layer_interval"}, 1, limits::layers);
  const auto rotated = fields.find({"no_rope_layers"});
  const bool has_chunks = fields.find({"attention_chunk_size"}).has_value();
  if (!has_chunks) return words_by_rule(layers, LayerWord::full, LayerWord::full, [](std::int64_t) { return true; });
  if (rotated && !rotated->items().empty()) {
    return list_of(
        *rotated, [](const YamlValue& item) { return item.integer(0, 1) == 0 ? LayerWord::full : LayerWord::sliding; });
  }
  return words_by_rule(layers, LayerWord::full, LayerWord::sliding,
                       [&](std::int64_t i) { return (i + 1) % every.value_or(family.full_every) == 0; });
}

// Qwen's windows begin at layer `max_window_layers`; without any rule all layers have the window.
Words windowed_words(ConfigFields& fields, const ModelFamily& family, std::int64_t layers) {
  const auto pattern = fields.find({"sliding_window_pattern", "_sliding_window_pattern"});
  const auto from = fields.optional_integer({"max_window_layers"}, 0, limits::layers);
  const bool has_window = fields.find({"sliding_window"}).has_value();
  const bool used = fields.flag({"use_sliding_window"}, !family.window_needs_switch) && has_window;
  if (family.layer_list && !pattern) {
    fields.fail("the list of layer kinds is missing", "give 'layer_types', or the family's own list or pattern");
  }
  if (pattern && !has_window) (void)fields.require({"sliding_window"});
  if (!used) {
    Words full(static_cast<std::size_t>(layers), LayerWord::full);
    return full;
  }
  const std::int64_t period = pattern ? pattern->integer(1, limits::layers) : family.full_every;
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

// Marks the fields of windows and chunks as read where a list decides the kinds of layers.
void overrule_windows(ConfigFields& fields, const ModelFamily& family) {
  if (family.chunked) (void)fields.find({"attention_chunk_size"});
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
  if (listed || linear || interval || period) overrule_windows(fields, family);
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
    return words_by_rule(count, LayerWord::full, recurrent_word(family),
                         [&](std::int64_t i) { return i % *period == *offset; });
  }
  if (const std::optional<Words> chunked = chunked_words(fields, family, count)) return *chunked;
  return windowed_words(fields, family, count);
}

}  // namespace plumb
