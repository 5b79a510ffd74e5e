// The optimizer's states for a list of weights: fp32 moments, and a master copy of weights that are narrower.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/placement/placement.hpp"
#include "common/scenario/scenario.hpp"
#include "exec/host/host_copies.hpp"
#include "exec/stage/primitives/optimizer.hpp"
#include "exec/stage/primitives/primitives.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {

// As adamw_step in exec/stage/primitives/optimizer.hpp, in LibTorch's operations: of fp32 tensors that are not on the
// host. They round in their own order.
void adamw_step(const AdamW& settings, std::int64_t step, const at::Tensor& weight, const at::Tensor& gradient,
                const at::Tensor& first_moment, const at::Tensor& second_moment);

class WeightOptimizer {
 public:
  // States are made for the shard alone; in memory of the host that counts apart where the training offloads them
  // (exec/host/memory.hpp).
  WeightOptimizer(std::vector<WeightPtr> weights, const Training& training, StateShard shard = {});

  // One step of SGD or AdamW with the main gradients of the shard as they stand: the bits of these elements are those
  // of a step of all. With `keep_old` the weights get new tensors and whoever holds the old ones keeps them; not of a
  // shard, nor of states or weights on the host. Of such states weight after weight the gradient goes down, is applied
  // there, and the weight comes up unless it stands there; of such weights alone each comes up, unless it has a master
  // copy here, is updated and goes down: the bits are the same.
  void step(bool keep_old = false);

  struct State {
    WeightPtr weight;
    at::Tensor master;  // of the shard; the weight's own elements if that is fp32
    at::Tensor first_moment;
    at::Tensor second_moment;
    at::Tensor buffer;  // of offloaded states: for the gradient, then for a narrower weight
  };
  // Of the last step, between the weights and the host.
  [[nodiscard]] const HostCopies& host_copies() const { return copied_; }
  // In the order of the weights, for checkpoints; a step may give them other tensors. And how many steps were made.
  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void resume(std::int64_t steps) { steps_ = steps; }

 private:
  [[nodiscard]] at::Tensor value(const State& state) const;  // of the shard; of all in its own shape
  [[nodiscard]] bool is_wide(const State& state) const { return value(state).scalar_type() == at::kFloat; }

  void subtract(const AdamWState& state) const;  // SGD
  void apply(const std::vector<AdamWState>& states) const;
  void step_on_host(const State& state);
  void step_here(const State& state);  // of a weight on the host
  void copy(const at::Tensor& to, const at::Tensor& from);

  Training training_;
  StateShard shard_;
  std::vector<State> states_;
  std::int64_t steps_ = 0;
  HostCopies copied_;
};

}  // namespace plumb::exec
