// Trained weights as files that others read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/data/safetensors.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec {

// Of `weights` (exec/stage/factory.hpp, merged_weights) all of the model's own by plumb's names, adapters merged in.
[[nodiscard]] std::vector<NamedTensor> model_tensors(const Plan& plan, const NamedGradients& weights);

// A and B of each adapter by the names of PEFT: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"; those
// of experts one by one. A name that PEFT's models do not have, as those of linear attention, is made alike. Throws
// InputError for a plan without LoRA.
[[nodiscard]] std::vector<NamedTensor> adapter_tensors(const Plan& plan, const NamedGradients& weights);
// PEFT's adapter_config.json.
[[nodiscard]] std::string adapter_config(const Plan& plan);

// Empty: not written. In the folder: adapter_model.safetensors and adapter_config.json. All in the training's
// precision, through a temporary name. `require_exportable` throws InputError for what `write_exports` could not write
// or would write over: an input, or what another option names.
struct Exports {
  std::string model;            // a file
  std::string adapters_folder;  // which must be there
};
void require_exportable(const Plan& plan, const Exports& exports, const std::vector<std::string>& inputs,
                        const std::string& timeline);
void write_exports(const Plan& plan, const NamedGradients& weights, const Exports& exports);

}  // namespace plumb::exec
