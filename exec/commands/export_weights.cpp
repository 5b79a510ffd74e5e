#include "exec/commands/export_weights.hpp"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/model/lora.hpp"
#include "exec/stage/primitives/block_parameters.hpp"

namespace plumb::exec {
namespace {

namespace fs = std::filesystem;

// Places in transformers' models, by plumb's names; of experts the number goes into "{}".
const std::map<std::string, std::string, std::less<>>& places() {
  static const std::map<std::string, std::string, std::less<>> map = {
      {"attention.q", "self_attn.q_proj"},
      {"attention.k", "self_attn.k_proj"},
      {"attention.v", "self_attn.v_proj"},
      {"attention.out", "self_attn.o_proj"},
      {"attention.gate", "self_attn.g_proj"},
      {"linear.q", "linear_attn.q_proj"},
      {"linear.k", "linear_attn.k_proj"},
      {"linear.v", "linear_attn.v_proj"},
      {"linear.z", "linear_attn.z_proj"},
      {"linear.beta", "linear_attn.b_proj"},
      {"linear.decay", "linear_attn.a_proj"},
      {"linear.out", "linear_attn.out_proj"},
      {"mlp.gate", "mlp.gate_proj"},
      {"mlp.up", "mlp.up_proj"},
      {"mlp.down", "mlp.down_proj"},
      {"mlp.router", "mlp.gate"},
      {"mlp.shared.gate", "mlp.shared_expert.gate_proj"},
      {"mlp.shared.up", "mlp.shared_expert.up_proj"},
      {"mlp.shared.down", "mlp.shared_expert.down_proj"},
      {"mlp.shared_gate", "mlp.shared_expert_gate"},
      {"mlp.experts.gate", "mlp.experts.{}.gate_proj"},
      {"mlp.experts.up", "mlp.experts.{}.up_proj"},
      {"mlp.experts.down", "mlp.experts.{}.down_proj"}};
  return map;
}

std::string with_number(std::string place, std::int64_t number) {
  const std::size_t at = place.find("{}");
  return at == std::string::npos ? place : place.replace(at, 2, std::to_string(number));
}

const std::vector<float>& values_of(const NamedGradients& weights, const std::string& name) {
  const auto found = weights.find(name);
  if (found == weights.end()) throw RunError("export", "no rank has " + name);
  return found->second;
}

// "layers.3.attention.q.lora_a.weight" in its parts; empty where it is no adapter.
struct AdapterName {
  std::string layer;   // "layers.3."
  std::string matrix;  // "attention.q"
  std::string which;   // "lora_A"
};
AdapterName adapter_name_of(const std::string& name) {
  const bool a = name.ends_with(".lora_a.weight");
  if (!a && !name.ends_with(".lora_b.weight")) return {};
  const std::size_t dot = name.find('.', name.find('.') + 1) + 1;
  const std::size_t end = name.rfind(a ? ".lora_a" : ".lora_b");
  return {.layer = name.substr(0, dot), .matrix = name.substr(dot, end - dot), .which = a ? "lora_A" : "lora_B"};
}

std::string place_of(const AdapterName& name) {
  const auto found = places().find(name.matrix);
  return found == places().end() ? name.matrix : found->second;
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

std::vector<NamedTensor> adapter_tensors(const Plan& plan, const NamedGradients& weights) {
  require_lora(plan);
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : all_parameters(plan.model, plan.training.lora)) {
    const AdapterName name = adapter_name_of(parameter.name);
    if (name.matrix.empty()) continue;
    const std::vector<float>& values = values_of(weights, parameter.name);
    const bool of_experts = parameter.shape.size() == 3;
    const std::int64_t count = of_experts ? parameter.shape.front() : 1;
    const std::vector<std::int64_t> shape(parameter.shape.end() - 2, parameter.shape.end());
    const std::int64_t each = shape[0] * shape[1];
    for (std::int64_t number = 0; number < count; ++number) {
      tensors.push_back({.name = "base_model.model.model." + name.layer + with_number(place_of(name), number) + "." +
                                 name.which + ".weight",
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
    const AdapterName name = adapter_name_of(parameter.name);
    if (name.matrix.empty()) continue;
    const std::string place = place_of(name);
    modules.insert(place.substr(place.rfind('.') + 1));
  }
  const Lora& lora = *plan.training.lora;
  const nlohmann::ordered_json config{
      {"peft_type", "LORA"},    {"task_type", "CAUSAL_LM"}, {"base_model_name_or_path", plan.model.name},
      {"inference_mode", true}, {"r", lora.rank},           {"lora_alpha", lora.alpha},
      {"lora_dropout", 0.0},    {"bias", "none"},           {"target_modules", modules}};
  return config.dump(2) + "\n";
}

void require_exportable(const Plan& plan, const Exports& exports, const std::vector<std::string>& inputs,
                        const std::string& timeline) {
  std::set<fs::path> outputs;
  if (!timeline.empty()) outputs.insert(fs::weakly_canonical(timeline));
  const auto add = [&](const fs::path& file) {
    require_writable(file, inputs);
    if (outputs.insert(fs::weakly_canonical(file)).second) return;
    throw InputError(file.string(), "is written twice: -o, --export and --export-adapters name it", "name another");
  };
  if (!exports.model.empty()) add(exports.model);
  if (exports.adapters_folder.empty()) return;
  require_lora(plan);
  if (!fs::is_directory(exports.adapters_folder)) {
    throw InputError("--export-adapters", "there is no folder '" + exports.adapters_folder + "'",
                     "mkdir " + exports.adapters_folder);
  }
  for (const char* const name : {"adapter_model.safetensors", "adapter_config.json"}) {
    add(fs::path(exports.adapters_folder) / name);
  }
}

void write_exports(const Plan& plan, const NamedGradients& weights, const Exports& exports) {
  const ElementType type = plan.training.precision;
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (!exports.model.empty()) {
    write_file(exports.model, to_safetensors(model_tensors(plan, weights), type, metadata));
  }
  if (exports.adapters_folder.empty()) return;
  const fs::path folder = exports.adapters_folder;
  write_file(folder / "adapter_model.safetensors", to_safetensors(adapter_tensors(plan, weights), type, metadata));
  write_file(folder / "adapter_config.json", adapter_config(plan));
}

}  // namespace plumb::exec
