// LoRA fine-tuning (arXiv 2106.09685): the model is frozen, chosen projections have small trained matrices beside them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"

namespace plumb {

// Which projections of a layer: `gate`, `up` and `down` are those of dense MLPs and of shared experts, `experts` all
// three of the routed ones, `output_gate` what scales a mixer's output, `step` the gates of a recurrence, the others by
// their usual names. Embedding, head, norms and convolutions have none.
enum class LoraTarget : std::uint8_t {
  query,
  key,
  value,
  output,
  output_gate,
  query_down,
  query_up,
  kv_down,
  kv_up,
  input,
  step,
  gate,
  up,
  down,
  experts,
  router
};

// By the value of the enumeration, as in scenarios and plans.
[[nodiscard]] const std::vector<std::string>& lora_target_names();

// What a name stands for: one of the names above, or that of PEFT (q_proj, o_proj, …) or Megatron (linear_qkv, …);
// `all`: every one but the router. Empty: nobody's name.
[[nodiscard]] std::vector<LoraTarget> lora_targets_of(std::string_view name);
// All names that it knows.
[[nodiscard]] std::vector<std::string> lora_target_words();

// y = x·Wᵀ + (alpha / rank) · (x·Aᵀ)·Bᵀ with A [rank, in] and B [out, rank]; each expert has its own two.
struct Lora {
  std::int64_t rank = 8;
  double alpha = 8;                      // as large as the rank (section 4.1) unless given
  std::vector<LoraTarget> targets = {};  // ascending, each once, at least one
  bool operator==(const Lora&) const = default;
};

// "rank 16, alpha 32, query value".
[[nodiscard]] std::string describe(const Lora& lora);

// Whether the operation or matrix of this name (of a layer, without its prefix), as "attention.q", has an adapter.
[[nodiscard]] bool adapts(const Lora& lora, std::string_view operation);
// The targets that some layer of the model has.
[[nodiscard]] std::vector<LoraTarget> lora_targets_in(const Model& model);

// A block's parameters, all of them frozen, with A and B behind each adapted matrix of a decoder layer:
// "layers.3.attention.q.lora_a.weight", "….lora_b.weight". Without `lora` as they are.
[[nodiscard]] std::vector<Parameter> with_adapters(std::vector<Parameter> parameters, const std::optional<Lora>& lora);

// Whether it is A or B of an adapter.
[[nodiscard]] bool is_adapter(std::string_view parameter);

// Whether some block before this one (0: embedding, 1…n: layers, n+1: head) has an adapter: only then its backward goes
// on to its input.
[[nodiscard]] bool gradient_goes_below(const Model& model, const std::optional<Lora>& lora, std::size_t block);

// A block's operations as LoRA runs them. W: A and B alone. I: what leads from the block's output to its adapters, and
// with `below` on to its input. Kept: what these need; the input of a matmul that has no adapter is not. `element`:
// bytes of an activation.
[[nodiscard]] std::vector<Operation> with_adapters(std::vector<Operation> operations, const Lora& lora, double element,
                                                   bool below);

// As the one of common/model/operations.hpp: F + I + W of what LoRA runs.
[[nodiscard]] Flops model_flops(const Model& model, std::int64_t sequence, std::int64_t sequences, const Lora& lora);

// Trained elements of a block's parameters; of all blocks, MTP included. Without `lora` all.
[[nodiscard]] std::int64_t trained(std::vector<Parameter> block, const std::optional<Lora>& lora);
[[nodiscard]] std::int64_t trained_parameters(const Model& model, const std::optional<Lora>& lora);

}  // namespace plumb
