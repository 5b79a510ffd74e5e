// The named parameter tensors of a model: counts, memory and the executor's modules all follow from this one list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/model.hpp"

namespace plumb {

// What a parameter does decides its FLOPs and which part of it one token uses.
enum class ParameterRole : std::uint8_t {
  matmul,         // [out, in]: multiplies every token
  expert_matmul,  // [experts, out, in]: top_k of the experts multiply a token
  expert_vector,  // [experts, n]: biases of experts
  vector,         // norms, biases, gates, depthwise convolutions [channels, kernel]
  lookup,         // embedding tables [rows, hidden]
};

struct Parameter {
  std::string name =
      {};  // global and unique, e.g. "layers.3.attention.q.weight"; executors seed initial values with it
  std::vector<std::int64_t> shape = {};
  ParameterRole role = ParameterRole::matmul;
  bool frozen = false;  // has neither gradient nor optimizer states
  bool operator==(const Parameter&) const = default;
};

// "layers.3.": how names of a decoder layer's parameters begin; and a name without that, of others the name itself.
[[nodiscard]] std::string layer_prefix(std::size_t index);
[[nodiscard]] std::string_view without_layer_prefix(std::string_view name);

// Of a tensor: the product of its extents, 1 where it has none.
[[nodiscard]] std::int64_t elements_of_shape(const std::vector<std::int64_t>& shape);
[[nodiscard]] inline std::int64_t elements(const Parameter& parameter) { return elements_of_shape(parameter.shape); }
// Of these, the ones that a token meets: all, or those of top_k experts of `mlp`.
[[nodiscard]] std::int64_t active_elements(const Parameter& parameter, const Mlp& mlp);
[[nodiscard]] constexpr bool is_matmul(ParameterRole role) {
  return role == ParameterRole::matmul || role == ParameterRole::expert_matmul;
}

// In the order in which the forward pass uses them. Source of each shape: the model family's paper, cited at the code.
[[nodiscard]] std::vector<Parameter> embedding_parameters(const Model& model);
[[nodiscard]] std::vector<Parameter> layer_parameters(const Model& model, std::size_t index);
[[nodiscard]] std::vector<Parameter> final_norm_parameters(const Model& model);
// Empty when tied: the head then reads the embedding's table.
[[nodiscard]] std::vector<Parameter> head_parameters(const Model& model);
// Under "mtp.N.", the layer like the model's last. Without embedding and head, which the module shares.
[[nodiscard]] std::vector<Parameter> mtp_parameters(const Model& model);

// Trainable parameters, tied weights once.
struct ParameterCounts {
  std::int64_t total = 0;   // without MTP
  std::int64_t active = 0;  // total minus the routed experts that a token does not use
  std::int64_t embedding = 0;
  std::int64_t head = 0;  // 0 if tied
  std::int64_t final_norm = 0;
  std::int64_t mtp = 0;
  std::vector<std::int64_t> layers;
  std::vector<std::int64_t> layers_active;
  std::vector<std::int64_t> layers_matmul_active;  // weights of matmuls that one token meets
  bool operator==(const ParameterCounts&) const = default;
};

[[nodiscard]] ParameterCounts count_parameters(const Model& model);

}  // namespace plumb
