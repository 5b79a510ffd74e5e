// Trained weights as files that others read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/output_files.hpp"
#include "common/plan/plan.hpp"
#include "exec/data/safetensors.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec {

// Of `weights` (exec/stage/factory.hpp: kept_weights, whole, behind merge_adapters) all of the model's own by plumb's
// names, adapters merged in.
[[nodiscard]] std::vector<NamedTensor> model_tensors(const Plan& plan, const NamedGradients& weights);

// The same as a checkpoint of the model's family has them (common/model/files/checkpoint_names.hpp, which throws what
// this throws). A tied head is not among them.
[[nodiscard]] std::vector<NamedTensor> checkpoint_tensors(const Plan& plan, const NamedGradients& weights);
// The config.json that the model was read from, with the training's precision as the type of the weights.
[[nodiscard]] std::string checkpoint_config(const Plan& plan);

// A and B of each adapter by the names of PEFT: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"; those
// of experts one by one. A name that PEFT's models do not have, as those of linear attention, is made alike. Throws
// InputError for a plan without LoRA, and for an adapter of a part of a matrix of which PEFT's model has one adapter.
[[nodiscard]] std::vector<NamedTensor> adapter_tensors(const Plan& plan, const NamedGradients& weights);
// PEFT's adapter_config.json.
[[nodiscard]] std::string adapter_config(const Plan& plan);

// Names of the model's tensors in a file: as the model's own config.json has them where it was read from one, else
// plumb's.
enum class ExportNames : std::uint8_t { as_model, plumb, hugging_face };

// Empty: not written. In the adapters' folder: adapter_model.safetensors and adapter_config.json. All in the training's
// precision, through a temporary name. `require_exportable` throws InputError for what a plan does not have to export,
// on every rank alike. `add_exports`, where files are written, names them to `outputs` and throws for those that cannot
// be, or that would hide the shards which are there from whoever reads the folder.
struct Exports {
  std::string model = {};            // a file; or a folder that is there: model.safetensors in it, and config.json
  std::string adapters_folder = {};  // which must be there
  ExportNames names = ExportNames::as_model;
};
void require_exportable(const Plan& plan, const Exports& exports);
void add_exports(const Plan& plan, const Exports& exports, OutputFiles& outputs);
void write_exports(const Plan& plan, const NamedGradients& weights, const Exports& exports);

}  // namespace plumb::exec
