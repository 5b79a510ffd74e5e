#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/input_errors.hpp"
#include "common/base/synonyms.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/scenario_file/shipped.hpp"

namespace plumb {
namespace {

ElementType read_precision(const YamlValue& value) {
  return static_cast<ElementType>(value.choice(training_precision_names()));
}

Recompute read_one_recompute(const YamlValue& value) {
  if (value.is_map()) {
    const std::optional<YamlValue> every = value.find("every");
    const std::optional<YamlValue> layers = value.find("layers");
    if (every.has_value() == layers.has_value()) {
      value.fail(value.path() + ": expected either the first layers of each stage, or every n-th layer of a rank",
                 "{layers: 2}, or {every: 2}");
    }
    return {.mode = every ? RecomputeMode::every_nth_layer : RecomputeMode::first_layers,
            .layers = (every ? every : layers)->small_integer()};
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
  CheckedBlock checked(training_block(), block, errors, &scenario_block());
  if (!block.is_map()) errors.throw_if_any();
  Training& training = result.training;
  checked.read("sequence", [&](const YamlValue& value) { result.sequence = value; });
  checked.read("global_batch", [&](const YamlValue& value) { result.global_batch = value; });
  checked.read("microbatch", [&](const YamlValue& value) { result.microbatch = value; });
  checked.read("lora", [&](const YamlValue& value) { result.lora = value; });
  checked.read("precision", [&](const YamlValue& value) { result.precision = read_precision(value); });
  checked.read("recompute", [&](const YamlValue& value) {
    result.recompute = value;
    result.recomputes = read_recomputes(value);
  });
  training.recompute = result.recomputes.front();
  checked.read("offload", [&](const YamlValue& value) { result.offloads = read_offloads(value); });
  training.offload = result.offloads.front();
  checked.read("optimizer", [&](const YamlValue& value) {
    training.optimizer = static_cast<Optimizer>(value.choice(optimizer_names()));
  });
  checked.read("learning_rate", [&](const YamlValue& value) { training.learning_rate = value.number(); });
  checked.read("gradient_clipping", [&](const YamlValue& value) { training.gradient_clipping = value.number(); });
  checked.read("seed", [&](const YamlValue& value) { training.seed = static_cast<std::uint64_t>(value.integer()); });
  errors.throw_if_any();
  return result;
}

}  // namespace plumb
