#include "exec/commands/export_weights.hpp"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/model/files/checkpoint_names.hpp"
#include "common/model/files/config_json.hpp"
#include "common/model/lora.hpp"
#include "common/model/parameters.hpp"
#include "exec/data/pretrained_weights.hpp"
#include "exec/stage/primitives/block_parameters.hpp"

namespace plumb::exec {
namespace {

namespace fs = std::filesystem;

const std::vector<float>& values_of(const NamedGradients& weights, const std::string& name) {
  const auto found = weights.find(name);
  if (found == weights.end()) throw RunError("export", "no rank has " + name);
  return found->second;
}

// "layers.3.attention.q.lora_a.weight" in its parts; empty where it is no adapter.
struct AdapterName {
  std::string matrix;  // "layers.3.attention.q"
  std::string which;   // "lora_A"
};
AdapterName adapter_name(const std::string& name) {
  if (!is_adapter(name)) return {};
  const std::size_t end = name.rfind(".lora_");
  return {.matrix = name.substr(0, end), .which = name.ends_with(".lora_a.weight") ? "lora_A" : "lora_B"};
}

std::string module_of(const Plan& plan, const AdapterName& name, std::int64_t expert) {
  if (const auto module = adapter_module(plan.model, name.matrix, expert)) return *module;
  throw InputError("--export-adapters",
                   "PEFT has one adapter for the matrix of which " + name.matrix + " is a part, and plumb one for each",
                   "--export writes them merged in; or leave query, key and value out of training.lora.targets");
}

void require_lora(const Plan& plan) {
  if (plan.training.lora) return;
  throw InputError(plan.name, "trains all its parameters: there are no adapters to export",
                   "--export FILE, or training: {lora: …} in the scenario");
}

}  // namespace

std::vector<NamedTensor> model_tensors(const Plan& plan, const NamedGradients& weights) {
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : all_parameters(plan.model, std::nullopt)) {
    tensors.push_back({parameter.name, parameter.shape, values_of(weights, parameter.name)});
  }
  return tensors;
}

std::vector<NamedTensor> checkpoint_tensors(const Plan& plan, const NamedGradients& weights) {
  std::map<std::string, NamedTensor> made;
  for (const Parameter& parameter : all_parameters(plan.model, std::nullopt)) {
    const std::vector<float>& values = values_of(weights, parameter.name);
    for (const TensorPiece& piece : checkpoint_pieces(plan.model, parameter)) {
      NamedTensor& tensor = made[piece.tensor];
      if (tensor.name.empty()) {
        const auto count = static_cast<std::size_t>(elements_of_shape(piece.shape));
        tensor = {.name = piece.tensor, .shape = piece.shape, .values = std::vector<float>(count)};
      }
      for (std::int64_t row = 0; row < piece.rows; ++row) {
        for (std::int64_t column = 0; column < piece.columns; ++column) {
          const std::int64_t to = piece.offset + row * piece.row_step + column * piece.column_step;
          tensor.values[static_cast<std::size_t>(to)] =
              values[static_cast<std::size_t>(piece.first + row * piece.columns + column)];
        }
      }
    }
  }
  std::vector<NamedTensor> tensors;
  for (auto& [name, tensor] : made) tensors.push_back(std::move(tensor));
  return tensors;
}

std::string checkpoint_config(const Plan& plan) {
  if (!plan.model.hugging_face) throw RunError("export", "the model was read from no config.json");
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(plan.model.hugging_face->text);
  // transformers 5 reads both keys and writes the first, 4 the second.
  const char* const key = config.contains("dtype") ? "dtype" : "torch_dtype";
  config[key] = plan.training.precision == ElementType::bf16 ? "bfloat16" : "float32";
  return config.dump(2) + "\n";
}

std::vector<NamedTensor> adapter_tensors(const Plan& plan, const NamedGradients& weights) {
  require_lora(plan);
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : all_parameters(plan.model, plan.training.lora)) {
    const AdapterName name = adapter_name(parameter.name);
    if (name.matrix.empty()) continue;
    const std::vector<float>& values = values_of(weights, parameter.name);
    const bool of_experts = parameter.shape.size() == 3;
    const std::int64_t experts = of_experts ? parameter.shape.front() : 1;
    const std::vector<std::int64_t> shape(parameter.shape.end() - 2, parameter.shape.end());
    const std::int64_t each = shape[0] * shape[1];
    for (std::int64_t number = 0; number < experts; ++number) {
      tensors.push_back({.name = "base_model.model." + module_of(plan, name, number) + "." + name.which + ".weight",
                         .shape = shape,
                         .values = {values.begin() + number * each, values.begin() + (number + 1) * each}});
    }
  }
  return tensors;
}

std::string adapter_config(const Plan& plan) {
  require_lora(plan);
  std::set<std::string> modules;  // the last part of each place
  for (const Parameter& parameter : all_parameters(plan.model, plan.training.lora)) {
    const AdapterName name = adapter_name(parameter.name);
    if (name.matrix.empty()) continue;
    const std::string place = module_of(plan, name, 0);
    modules.insert(place.substr(place.rfind('.') + 1));
  }
  const Lora& lora = *plan.training.lora;
  nlohmann::ordered_json config{
      {"peft_type", "LORA"},    {"task_type", "CAUSAL_LM"}, {"base_model_name_or_path", plan.model.name},
      {"inference_mode", true}, {"r", lora.rank},           {"lora_alpha", lora.alpha},
      {"lora_dropout", 0.0},    {"bias", "none"},           {"target_modules", modules}};
  if (has_transposed_matrices(plan.model)) config["fan_in_fan_out"] = true;
  return config.dump(2) + "\n";
}

namespace {

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

bool has_checkpoint_names(const Plan& plan, const Exports& exports) {
  if (exports.names != ExportNames::as_model) return exports.names == ExportNames::hugging_face;
  return plan.model.hugging_face.has_value();
}

fs::path model_file(const Exports& exports) {
  return is_folder(exports.model) ? fs::path(exports.model) / weights_file : fs::path(exports.model);
}

// Beside the weights where they have a folder: what transformers needs to make the model.
std::optional<fs::path> config_file(const Plan& plan, const Exports& exports) {
  if (!is_folder(exports.model) || !has_checkpoint_names(plan, exports)) return std::nullopt;
  return fs::path(exports.model) / "config.json";
}

// What they mean elsewhere is what was trained here.
void require_checkpoint_names(const Plan& plan) {
  try {
    (void)checkpoint_prefix(plan.model);
    require_computed(*plan.model.hugging_face, "config.json of model " + plan.model.name);
  } catch (const InputError& error) {
    throw InputError("--export", error.what(), "--export-names plumb writes them under plumb's own names");
  }
}

// Whoever reads a folder takes model.safetensors before an index and its shards.
void require_no_shards_beside(const fs::path& file) {
  std::error_code none;
  if (file.filename() != weights_file || !fs::exists(file.parent_path() / weights_index_file, none)) return;
  throw InputError("--export",
                   file.parent_path().string() + " has " + weights_index_file + ", whose shards " + weights_file +
                       " beside it would hide",
                   "name another folder");
}

}  // namespace

void require_exportable(const Plan& plan, const Exports& exports) {
  if (!exports.model.empty() && has_checkpoint_names(plan, exports)) require_checkpoint_names(plan);
  if (!exports.adapters_folder.empty()) (void)adapter_config(plan);  // throws what it cannot name
}

void add_exports(const Plan& plan, const Exports& exports, OutputFiles& outputs) {
  if (!exports.model.empty()) {
    outputs.add("--export", model_file(exports));
    if (const auto config = config_file(plan, exports)) outputs.add("--export", *config);
    require_no_shards_beside(model_file(exports));
  }
  if (exports.adapters_folder.empty()) return;
  if (!fs::is_directory(exports.adapters_folder)) {
    throw InputError("--export-adapters", "there is no folder '" + exports.adapters_folder + "'",
                     "mkdir " + exports.adapters_folder);
  }
  for (const char* const name : {"adapter_model.safetensors", "adapter_config.json"}) {
    outputs.add("--export-adapters", fs::path(exports.adapters_folder) / name);
  }
}

void write_exports(const Plan& plan, const NamedGradients& weights, const Exports& exports) {
  const ElementType type = plan.training.precision;
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (!exports.model.empty()) {
    const bool renamed = has_checkpoint_names(plan, exports);
    std::vector<NamedTensor> tensors = renamed ? checkpoint_tensors(plan, weights) : model_tensors(plan, weights);
    write_file(model_file(exports), to_safetensors(std::move(tensors), type, metadata));
    if (const auto config = config_file(plan, exports)) write_file(*config, checkpoint_config(plan));
  }
  if (exports.adapters_folder.empty()) return;
  const fs::path folder = exports.adapters_folder;
  write_file(folder / "adapter_model.safetensors", to_safetensors(adapter_tensors(plan, weights), type, metadata));
  write_file(folder / "adapter_config.json", adapter_config(plan));
}

}  // namespace plumb::exec
