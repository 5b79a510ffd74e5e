#include <algorithm>

#include "common/base/document/synonyms.hpp"
#include "common/base/error.hpp"
#include "common/base/input_errors.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {
namespace {

ElementType read_precision(const YamlValue& value) {
  return static_cast<ElementType>(value.choice(training_precision_names()));
}

Recompute read_one_recompute(const YamlValue& value) {
  if (value.is_map()) {
    value.check_keys({"layers", "every"});
    const std::optional<YamlValue> every = value.find("every");
    if (every && value.find("layers")) {
      value.fail("both the first layers of each stage and every n-th of a rank", "{layers: 2}, or {every: 2}");
    }
    const YamlValue number = every ? *every : value.require("layers");
    if (number.is_list()) {
      const std::string key = every ? "every" : "layers";
      number.fail(number.path() + ": expected one number; several modes to choose from are a list of modes",
                  "recompute: [{" + key + ": 1}, {" + key + ": 2}]");
    }
    return {.mode = every ? RecomputeMode::every_nth_layer : RecomputeMode::first_layers,
            .layers = static_cast<int>(number.integer(1))};
  }
  if (value.is_text() && (value.text() == "every" || value.text() == "layers")) {
    value.fail(value.path() + ": '" + value.text() + "' needs a number of layers", "{" + value.text() + ": 2}");
  }
  switch (value.choice({"none", "selective", "full"})) {
    case 0:
      return {.mode = RecomputeMode::none};
    case 1:
      return {.mode = RecomputeMode::selective};
    default:
      return {.mode = RecomputeMode::full};
  }
}

template <class Choice, class ReadOne>
std::vector<Choice> each_once(const std::vector<YamlValue>& given, const ReadOne& read_one) {
  std::vector<Choice> choices;
  for (const YamlValue& item : given) {
    const Choice choice = read_one(item);
    if (std::ranges::find(choices, choice) != choices.end()) item.fail("'" + item.text() + "' stands twice");
    choices.push_back(choice);
  }
  return choices;
}

// `auto`: every mode, the one that costs least time first.
std::vector<Recompute> read_recomputes(const YamlValue& value) {
  const auto given = auto_or_values(value);
  if (!given) {
    return {{.mode = RecomputeMode::none}, {.mode = RecomputeMode::selective}, {.mode = RecomputeMode::full}};
  }
  return each_once<Recompute>(*given, read_one_recompute);
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

// "optimizer+parameters": words with a "+" between them.
Offload read_one_offload(const YamlValue& value) {
  Offload offload;
  std::string left = value.text();
  bool none = false;
  int count = 0;
  for (bool more = true; more; ++count) {
    const std::size_t plus = left.find('+');
    more = plus != std::string::npos;
    const std::string word = without_spaces(left.substr(0, plus));
    left = more ? left.substr(plus + 1) : "";
    const auto found = find_name(word, offload_names());
    if (!found) {
      value.fail(value.path() + ": nothing is offloaded as '" + word + "'", did_you_mean(word, offload_names()));
    }
    const std::string& name = offload_names()[*found];
    none = none || name == "none";
    offload.optimizer = offload.optimizer || name == "optimizer";
    offload.activations = offload.activations || name == "activations";
    offload.parameters = offload.parameters || name == "parameters";
  }
  if (none && count > 1)
    value.fail(value.path() + ": 'none' beside something else",
               "none, optimizer, parameters, activations, or several of these, as in optimizer+activations");
  return offload;
}

// `auto`: what costs least time first; under every layout, so no parameters.
std::vector<Offload> read_offloads(const YamlValue& value) {
  const auto given = auto_or_values(value);
  if (!given) return {{}, {.optimizer = true}, {.activations = true}, {.optimizer = true, .activations = true}};
  return each_once<Offload>(*given, read_one_offload);
}

}  // namespace

std::string describe(const Recompute& recompute) {
  switch (recompute.mode) {
    case RecomputeMode::none:
      return "none";
    case RecomputeMode::selective:
      return "selective";
    case RecomputeMode::full:
      return "full";
    case RecomputeMode::first_layers:
      return "{layers: " + std::to_string(recompute.layers) + "}";
    case RecomputeMode::every_nth_layer:
      return "{every: " + std::to_string(recompute.layers) + "}";
  }
  return "";
}

std::optional<std::vector<YamlValue>> auto_or_values(const YamlValue& value) {
  if (value.is_list()) {
    if (value.items().empty()) value.fail("the list is empty, expected at least one value");
    return value.items();
  }
  if (value.is_text() && value.text() == "auto") return std::nullopt;
  return std::vector<YamlValue>{value};
}

void require_layers(const TrainingBlock& training, std::size_t layers) {
  for (std::size_t i = 0; i < training.recomputes.size(); ++i) {
    const int asked = training.recomputes[i].layers;
    if (asked <= static_cast<int>(layers)) continue;
    const YamlValue& given = *training.recompute;
    const YamlValue value = given.is_list() ? given.items()[i] : given;
    const bool every = training.recomputes[i].mode == RecomputeMode::every_nth_layer;
    const YamlValue number = value.require(every ? "every" : "layers");
    number.fail(
        number.text() + (every ? " as n of every n-th layer" : " layers of each stage") + ", but the model has " +
            std::to_string(layers) + " layers",
        every ? "at most " + std::to_string(layers) + ", or none" : "at most " + std::to_string(layers) + ", or full");
  }
}

TrainingBlock read_training(const std::optional<YamlValue>& given) {
  TrainingBlock result{.recomputes = {Recompute{}}, .offloads = {Offload{}}};
  if (!given) return result;
  const YamlValue block = block_or_file(*given, "training");
  InputErrors errors;
  errors.attempt([&] {
    block.check_keys({"sequence", "global_batch", "microbatch", "precision", "recompute", "offload", "optimizer",
                      "learning_rate", "gradient_clipping", "seed", "lora"});
  });
  if (!block.is_map()) errors.throw_if_any();
  result.sequence = block.find("sequence");
  result.global_batch = block.find("global_batch");
  result.microbatch = block.find("microbatch");
  result.lora = block.find("lora");
  const auto read = [&](const char* key, const auto& take) {
    errors.attempt([&] {
      if (const auto value = block.find(key)) take(*value);
    });
  };
  read("sequence", [](const YamlValue& value) { (void)value.integer(1, longest_sequence); });
  read("global_batch", [](const YamlValue& value) { (void)value.integer(1, largest_batch); });
  read("microbatch", [](const YamlValue& value) {
    const auto sizes = auto_or_values(value);
    if (!sizes) return;
    for (const YamlValue& size : *sizes) (void)size.integer(1, largest_batch);
  });
  read("precision", [&](const YamlValue& value) { result.precision = read_precision(value); });
  result.recompute = block.find("recompute");
  read("recompute", [&](const YamlValue& value) { result.recomputes = read_recomputes(value); });
  result.training.recompute = result.recomputes.front();
  read("offload", [&](const YamlValue& value) { result.offloads = read_offloads(value); });
  result.training.offload = result.offloads.front();
  read("optimizer", [&](const YamlValue& value) {
    result.training.optimizer = static_cast<Optimizer>(value.choice(optimizer_names()));
  });
  read("learning_rate",
       [&](const YamlValue& value) { result.training.learning_rate = value.number(0, most_learning_rate); });
  read("gradient_clipping",
       [&](const YamlValue& value) { result.training.gradient_clipping = value.number(0, most_gradient_norm); });
  read("seed", [&](const YamlValue& value) {
    result.training.seed = static_cast<std::uint64_t>(value.integer(0, largest_seed));
  });
  errors.throw_if_any();
  return result;
}

}  // namespace plumb
