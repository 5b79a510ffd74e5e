// A pipeline stage on LibTorch: its blocks one after the other, their optimizer, the step's tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exec/data/data.hpp"
#include "exec/stage/modules/block.hpp"
#include "exec/stage/modules/host_activations.hpp"
#include "exec/stage/primitives/weight_optimizer.hpp"
#include "exec/stage/sharding/block_passes.hpp"
#include "exec/stage/stage.hpp"
#include "exec/stage/stage_settings.hpp"

namespace plumb::exec {

// On a device that is not the host (`numerics.device`) all it puts there goes to the thread's current stream.
class TorchStage : public Stage {
 public:
  TorchStage(TorchStageSettings settings, std::shared_ptr<const Corpus> corpus);

  void begin_step(std::int64_t step) override;
  [[nodiscard]] Payload forward(int microbatch, Payload input) override;
  void recompute(int microbatch) override;
  [[nodiscard]] Payload input_gradient(int microbatch, Payload output_gradient) override;
  [[nodiscard]] Parcel evict(int microbatch) override;
  void load(int microbatch, Parcel parcel) override;
  void weight_gradient(int microbatch) override;
  // Block by block: what a block keeps for W goes before the next one's I.
  [[nodiscard]] Payload backward(int microbatch, Payload output_gradient) override;
  // By block; of no tied table, nor of what ranks of the tensor group have summands of.
  void report_gradients(std::function<void(DeviceFloats)> complete) override { complete_ = std::move(complete); }
  [[nodiscard]] std::vector<DeviceFloats> gradients() override;
  [[nodiscard]] DeviceFloats tied_gradient() override;
  [[nodiscard]] std::vector<DeviceFloats> own_gradients() override;
  [[nodiscard]] std::vector<StoredWeight> stored_weights() override;
  [[nodiscard]] std::vector<StatePart> state_parts() override;
  [[nodiscard]] std::int64_t updates() const override { return optimizer_ ? optimizer_->steps() : 0; }
  void resume_updates(std::int64_t made) override;
  void find_squares() override;
  [[nodiscard]] kernels::ExactSquares squares() const override;
  void scale_gradients(double scale) override;
  void optimizer_step() override;
  [[nodiscard]] HostCopies host_copies() const override { return host_copies_; }
  void end_step() override;
  [[nodiscard]] double loss() const override;

  // The weights of this stage, a table that embedding and head share once; and those of them that are trained.
  [[nodiscard]] const std::vector<WeightPtr>& weights() const { return weights_; }
  [[nodiscard]] const std::vector<WeightPtr>& trained_weights() const { return trained_; }
  // Those that are trained whose gradients are complete once a step, with what others have: a table's on each end.
  [[nodiscard]] std::vector<WeightPtr> completed_later() const;
  // Sums both gradients of a table whose ends stand here, as the optimizer does first; a second call does nothing.
  void sum_tied_gradients();
  // With the replica in the opposite direction: both have the sum then.
  void sum_with_replica(TorchStage& replica);
  // Of the step that ended last, per microbatch.
  [[nodiscard]] const std::vector<double>& losses() const { return losses_; }
  void log_routing(RoutingLog* routing) { routing_ = routing; }
  [[nodiscard]] const RoutingLog* routing() const { return routing_; }
  [[nodiscard]] const TorchStageSettings& settings() const { return settings_; }

 protected:  // a HeadPart (exec/stage/head_part.hpp) computes with these
  [[nodiscard]] bool is_first() const { return settings_.blocks.first == 0; }
  [[nodiscard]] bool is_last() const;
  [[nodiscard]] bool reads_tokens() const {
    return is_first() && settings_.model.part != ModelPart::without_vocabulary;
  }
  [[nodiscard]] bool makes_loss() const { return is_last() && settings_.model.part != ModelPart::without_vocabulary; }
  void add_weights_of_last_block();
  void share_out(const Block& block);
  void share_table();
  void let_go_of_weights();
  void find_copies(const Block& block, int number);
  enum class Way : std::uint8_t { down, up };
  [[nodiscard]] BlockGathers gathers(Way way, bool first) const;
  [[nodiscard]] BlockReductions reductions() const;
  void run_weight_gradient(Block& block, int microbatch, BlockReductions& reductions);
  [[nodiscard]] at::Tensor run_blocks(int microbatch, at::Tensor input, bool keep, bool first);
  [[nodiscard]] Payload go_back(int microbatch, Payload output_gradient, bool with_weights);
  [[nodiscard]] std::vector<std::int64_t> boundary_shape(int microbatch) const;
  [[nodiscard]] at::TensorOptions boundary_options() const;
  [[nodiscard]] at::Tensor received(Payload payload, int microbatch, const std::string& what) const;
  void use_version_of(int microbatch);
  void use_version(std::int32_t version);
  void zero_gradients();
  void sum_partial_gradients();
  void report(const Block& block);
  [[nodiscard]] bool completes_later(const WeightPtr& weight) const;
  void put_batch_on_device();
  [[nodiscard]] at::Tensor inputs_of(int microbatch) const;
  [[nodiscard]] at::Tensor targets_of(int microbatch) const;
  [[nodiscard]] Slice slice_of(int microbatch) const;
  [[nodiscard]] TokenRange tokens_of(int microbatch) const;
  [[nodiscard]] IndexRange own_sequences(const Block& reader) const;
  [[nodiscard]] double loss_share(int microbatch) const;
  [[nodiscard]] double share_of_update(int microbatch) const;
  [[nodiscard]] double share_of_sequences() const;

  TorchStageSettings settings_;
  std::vector<plumb::Slice> slices_;  // of each sequence
  std::shared_ptr<const Corpus> corpus_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<WeightPtr> weights_;
  std::vector<WeightPtr> trained_;
  using Partial = std::pair<WeightPtr, std::vector<int>>;
  std::vector<Partial> partial_;    // of these, whose gradients these positions of the tensor group sum
  at::Tensor squares_;              // of the own gradients, as Primitives has them, on their way to the host
  std::set<const Weight*> copies_;  // that a lower rank of the tensor group holds alike, where gradients are clipped
  WeightPtr tied_embedding_;        // each null unless its block stands here and the model is tied
  WeightPtr tied_head_;
  std::unique_ptr<WeightOptimizer> optimizer_;  // of trained_; null in fp64
  std::map<int, at::Tensor> kept_inputs_;       // of a recomputed stage, from F until R
  std::map<int, EvictedTensors> evicted_;       // from EVICT until LOAD
  HostActivations on_host_;                     // where activations are offloaded, from F until I or B
  HostCopies host_copies_;                      // of the last F, R, I, B or optimizer_step
  std::vector<double> losses_;
  std::map<int, at::Tensor> inputs_;     // by microbatch, of the first and …
  std::map<int, at::Tensor> targets_;    // … of the last stage, where these are not on the host
  std::vector<at::Tensor> made_losses_;  // there, too: read when the step has ended
  RoutingLog* routing_ = nullptr;
  RoutingLog own_routing_;  // where the settings want one
  std::int64_t step_ = 0;
  bool tied_summed_ = false;
  bool partial_summed_ = false;
  std::function<void(DeviceFloats)> complete_;  // of the next W or B; else empty
  std::set<const Weight*> reported_;            // in this step

  // With several updates a step. Version v is what v of its updates made.
  struct Version {
    std::vector<at::Tensor> values;  // of weights_
    int uses_left = 0;               // microbatches whose I is still to come
  };
  std::map<std::int32_t, Version> versions_;
  std::int32_t newest_ = 0;
};

// The payload keeps the tensor alive; the tensor must be contiguous.
[[nodiscard]] Payload to_payload(at::Tensor tensor);

}  // namespace plumb::exec
