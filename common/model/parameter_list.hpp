// Builds the list of a layer's parameters; only parameters*.cpp include it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/model/parameters.hpp"

namespace plumb {

// Appends parameters under a prefix such as "layers.3.".
class ParameterList {
 public:
  ParameterList(std::string prefix, std::int64_t hidden) : prefix_(std::move(prefix)), hidden_(hidden) {}

  [[nodiscard]] std::int64_t hidden() const { return hidden_; }

  void add(const std::string& name, std::vector<std::int64_t> shape, ParameterRole role) {
    parameters_.push_back(Parameter{.name = prefix_ + name, .shape = std::move(shape), .role = role});
  }
  // NAME.weight [out, in], and with `bias` NAME.bias [out].
  void matmul(const std::string& name, std::int64_t out, std::int64_t in, bool bias = false) {
    add(name + ".weight", {out, in}, ParameterRole::matmul);
    if (bias) vector(name + ".bias", {out});
  }
  // NAME.weight [experts, out, in], and with `bias` NAME.bias [experts, out].
  void experts(const std::string& name, std::vector<std::int64_t> shape, bool bias) {
    const std::vector<std::int64_t> bias_shape = {shape[0], shape[1]};
    add(name + ".weight", std::move(shape), ParameterRole::expert_matmul);
    if (bias) add(name + ".bias", bias_shape, ParameterRole::expert_vector);
  }
  void vector(const std::string& name, std::vector<std::int64_t> shape) {
    add(name, std::move(shape), ParameterRole::vector);
  }
  void lookup(const std::string& name, std::int64_t rows) { add(name, {rows, hidden_}, ParameterRole::lookup); }
  // RMSNorm has a weight, LayerNorm also a bias.
  void norm(const std::string& name, NormKind kind) {
    vector(name + ".weight", {hidden_});
    if (kind == NormKind::layernorm) vector(name + ".bias", {hidden_});
  }

  [[nodiscard]] std::vector<Parameter> take() && { return std::move(parameters_); }

 private:
  std::string prefix_;
  std::int64_t hidden_;
  std::vector<Parameter> parameters_;
};

// Norms, mixer and MLP, in the order of the forward pass.
void add_layer(ParameterList& list, const Layer& layer);
void add_mixer(ParameterList& list, const Mixer& mixer);
void add_mlp(ParameterList& list, const Mlp& mlp);
// A layer without a mixer, or without an MLP.
inline void add(ParameterList&, const std::monostate&) {}

}  // namespace plumb
