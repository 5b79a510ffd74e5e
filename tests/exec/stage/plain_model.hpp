// The models that stages run, written a second time with nothing but ordinary differentiable tensor operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "common/model/model.hpp"

namespace plumb::exec::plain {

using Parameters = std::map<std::string, at::Tensor>;

// Leaves that require a gradient, drawn as executors draw them, in this type.
[[nodiscard]] Parameters draw(const Model& model, std::uint64_t seed, at::ScalarType type);

// Mean cross entropy over [batch, time] tokens and targets, or over images [batch, channels, rows, columns] and labels
// [batch], whose patches a convolution makes. Attention by its definition, the gated delta rule as its
// recurrence over single steps, experts by masks.
[[nodiscard]] at::Tensor loss(const Model& model, const Parameters& parameters, const at::Tensor& inputs,
                              const at::Tensor& targets);

// Layer `index` alone.
[[nodiscard]] at::Tensor layer(const Model& model, std::size_t index, const Parameters& parameters,
                               const at::Tensor& x);

}  // namespace plumb::exec::plain
