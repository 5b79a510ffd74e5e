// A trainable tensor with its main gradient, and the work that W does later.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/parameters.hpp"
#include "common/placement/placement.hpp"

namespace plumb::exec {

// Element types of a stage, and where its tensors lie. `rounding` is what initial values are rounded to first, so that
// an fp64 reference starts from the very weights of a bf16 run.
struct Numerics {
  at::ScalarType compute = at::kFloat;   // weights and activations
  at::ScalarType gradient = at::kFloat;  // main gradients and the loss
  at::ScalarType rounding = at::kFloat;
  c10::Device device = at::kCPU;
};

// What sums, statistics and tables of values of `type` are made in: fp32; of fp64, fp64.
[[nodiscard]] constexpr at::ScalarType wide_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}
// x in a wider type, to be changed; what is as wide already is copied first.
[[nodiscard]] at::Tensor own_copy(const at::Tensor& x, at::ScalarType type);

// Which part of each weight is a rank's, of ranks that share out the optimizer's states, and gradients and weights with
// them: of its elements in their order one of `count` parts, as equal_parts in exec/transport/collectives cuts them.
struct StateShard {
  int index = 0;
  int count = 1;
};
[[nodiscard]] IndexRange range_of_part(std::int64_t elements, const StateShard& shard);
// Flat, over the same memory. Precondition: contiguous.
[[nodiscard]] at::Tensor part_of(const at::Tensor& whole, const StateShard& shard);

// Reference-counted by LibTorch, because autograd nodes hold it.
struct Weight final : torch::CustomClassHolder {
  std::string name;  // global, of common/model/parameters.hpp
  at::Tensor value;
  at::Tensor gradient;  // sum over the step's microbatches; undefined if the weight is frozen
  // This rank's parts of what is shared out (exec/stage/sharding), flat; undefined of what is not. The whole of it
  // above is then there only while it is gathered, or made.
  at::Tensor own_value;
  at::Tensor own_gradient;
  bool own_on_host = false;         // own_value, a host_tensor
  at::Tensor second_value;          // likewise, of a second copy of the value (ZeRO++), from the first F on
  std::vector<std::int64_t> shape;  // of the whole, where any is

  [[nodiscard]] std::int64_t elements() const;  // of the whole
  // What this rank has of the value between steps.
  [[nodiscard]] const at::Tensor& kept() const { return own_value.defined() ? own_value : value; }
  [[nodiscard]] bool is_trained() const { return gradient.defined() || own_gradient.defined(); }
};
using WeightPtr = c10::intrusive_ptr<Weight>;

// The weight-gradient closures of one block and microbatch, in the order in which I met them.
class WeightQueue final : public torch::CustomClassHolder {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }

  // Frees the operands of each closure as soon as it has run.
  void run() {
    for (auto& work : work_) {
      work();
      work = nullptr;
    }
    work_.clear();
  }

 private:
  std::vector<std::function<void()>> work_;
};
using WeightQueuePtr = c10::intrusive_ptr<WeightQueue>;

// Uninitialised, in memory of the host that counts apart from the rank's own (exec/host/memory.hpp).
[[nodiscard]] at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType type);

// The rank's part of a trained weight's main gradient, flat.
[[nodiscard]] at::Tensor own_gradient_of(const Weight& weight, const StateShard& shard);

// Those that are trained, in their order.
[[nodiscard]] std::vector<WeightPtr> trained(const std::vector<WeightPtr>& weights);

// gradient += part, which may be of a narrower type.
void accumulate(const Weight& weight, const at::Tensor& part);
// The same of a vector that I has reduced already, in W; of a frozen weight nothing.
void push_part(const WeightQueuePtr& queue, const WeightPtr& weight, at::Tensor part);
// gradient += the sum of output gradients [batch, tokens, out] over all tokens.
void accumulate_rows(const Weight& bias, const at::Tensor& output_gradient);
// gradient += output_gradientᵀ · input, for rows [n, out] and [n, in]; fused into the main gradient if types agree.
void accumulate_product(at::Tensor gradient, const at::Tensor& output_gradient, const at::Tensor& input);
// The same numbers, of which autograd knows nothing: kept from I to W with their history, they would keep the leaves of
// their graph, so the block's input.
[[nodiscard]] at::Tensor without_history(const at::Tensor& x);
// [n, last]: all dimensions before the last one as rows.
[[nodiscard]] at::Tensor rows(const at::Tensor& x);
// Where nothing that autograd knows is trained, an empty variable makes it come by; not if nothing is `trained`, nor
// under NoGradGuard.
[[nodiscard]] at::Tensor anchor_of(const Weight& weight, bool trained = true);

// The part of a whole value that a rank holds; empty: all of it.
using Cut = std::function<at::Tensor(const Parameter& parameter, const at::Tensor& whole)>;

// The part of a parameter's first value that a rank holds, fp32 on the host, from elsewhere than the seed; undefined:
// it is drawn.
using GivenValues = std::function<at::Tensor(const Parameter& parameter)>;

// The weights of some blocks by name. A module takes each one by name and shape; none may be left over.
class WeightStore {
 public:
  WeightStore(const std::vector<Parameter>& parameters, std::uint64_t seed, const Numerics& numerics,
              const Cut& cut = {}, const GivenValues& given = {});

  [[nodiscard]] WeightPtr take(const std::string& name, at::IntArrayRef shape);
  // Of any shape: of a grid's rank the placement says which.
  [[nodiscard]] WeightPtr take(const std::string& name);
  // Of any shape; null if the list has none of this name.
  [[nodiscard]] WeightPtr take_if_there(const std::string& name);
  // Throws RunError when a parameter of the list was taken by no module.
  void require_all_taken() const;

  [[nodiscard]] const std::vector<WeightPtr>& all() const { return weights_; }

 private:
  std::vector<WeightPtr> weights_;
  std::vector<bool> taken_;
};

// Initial value of a parameter, drawn from the seed and its global name alone: the model is the same at every split.
// Matrices normal(0, 0.02), B of adapters 0 (arXiv 2106.09685, section 4.1), norms 1, biases 0; A_log and dt_bias as in
// Mamba-2's reference initialisation.
[[nodiscard]] at::Tensor initial_value(const Parameter& parameter, std::uint64_t seed);

}  // namespace plumb::exec
