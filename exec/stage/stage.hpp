// One pipeline stage as the runner sees it: functions from bytes to bytes. LibTorch stays behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/units.hpp"
#include "common/schedule/schedule.hpp"
#include "exec/host/host_copies.hpp"
#include "exec/stage/state_part.hpp"
#include "exec/transport/transport.hpp"
#include "kernels/exact_squares.hpp"

namespace plumb::exec {

// Where a replica's stage stands in such a list; null where another rank holds it.
[[nodiscard]] inline std::size_t stage_slot(const Schedule& schedule, int replica, int stage) {
  return static_cast<std::size_t>(replica) * schedule.rank_of_stage.size() + static_cast<std::size_t>(stage);
}

// fp32 values in the memory of the stage's device, touched in the order of its compute stream.
struct DeviceFloats {
  float* data = nullptr;
  std::size_t size = 0;

  [[nodiscard]] std::size_t size_bytes() const { return size * sizeof(float); }
  [[nodiscard]] std::byte* bytes() const { return reinterpret_cast<std::byte*>(data); }
  // Precondition: that device is the host.
  [[nodiscard]] std::span<float> on_host() const { return {data, size}; }
};

// Two implementations: LibTorch modules (exec/stage/torch_stage.hpp) and waiting (exec/stage/emulated_stage.hpp).
// A rank's stages stand in a list by stage_slot. Microbatches count from 0 within a step. A call throws RunError when
// its precondition does not hold.
//
// On an asynchronous device calls put work on its compute stream and return; inputs may be touched there and results
// are there in its order. Only begin_step, end_step and loss may wait for the device, forward where experts are
// computed one after the other (exec/stage/primitives/expert_rows.hpp), and find_squares where it has no kernel. What a
// rank receives there may be held until W or B of its microbatch has been put on the stream: longer costs memory beside
// what was planned (common/graph/receive_slots.hpp).
//
// Where data-parallel ranks share out weights or gradients, F, R, I, B and W may move them (exec/stage/sharding): all
// ranks that do so go through the same actions in the same order.
class Stage {
 public:
  Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  virtual ~Stage() = default;

  // Before the first action of a step: takes the step's tokens, zeroes the gradients.
  virtual void begin_step(std::int64_t step) = 0;

  // F. `input` is empty on the first stage, the result is empty on the last (which adds to the loss).
  [[nodiscard]] virtual Payload forward(int microbatch, Payload input) = 0;

  // R: redoes F of a stage whose forward kept only its input.
  virtual void recompute(int microbatch) = 0;

  // I. `output_gradient` is empty on the last stage, the result is empty on the first.
  [[nodiscard]] virtual Payload input_gradient(int microbatch, Payload output_gradient) = 0;

  // EVICT and LOAD, between F and I of a stage that is not recomputed: gives up what the microbatch keeps here, and
  // takes the same bytes back. On an asynchronous device `load` touches no byte: they may be on their way until I.
  [[nodiscard]] virtual Parcel evict(int microbatch) = 0;
  virtual void load(int microbatch, Parcel parcel) = 0;

  // W: adds this microbatch's weight gradients to the fp32 main gradients.
  virtual void weight_gradient(int microbatch) = 0;

  // Of a part of a divided head (common/schedule/vocabulary_parts.hpp), of which the last action of S gives the
  // statistics of its own rows: F with two barriers, I with one. When those of all parts are there, in the order of the
  // ranks: with one barrier its result is this part's summand of the gradient of the last stage's output; with two that
  // is the result of B.
  [[nodiscard]] virtual Payload join_statistics(int /*microbatch*/, std::span<const Payload> /*of_parts*/) {
    return {};
  }

  // B: I and W in one action, in any order that gives the same.
  [[nodiscard]] virtual Payload backward(int microbatch, Payload output_gradient) {
    Payload gradient = input_gradient(microbatch, std::move(output_gradient));
    weight_gradient(microbatch);
    return gradient;
  }

  // Of the W or B that follows, the stage's last of the step: `complete` hears of main gradients as soon as they are
  // complete, in an order that all replicas of the stage have, and may touch them from then on (on an asynchronous
  // device behind what its compute stream has been given by then); of none where one must wait for what other ranks or
  // stages have of it.
  virtual void report_gradients(std::function<void(DeviceFloats)> /*complete*/) {}

  // fp32 main gradients of all weights but those reported in this step, and those that were summed for each microbatch
  // (exec/stage/sharding), in a fixed order: to be summed over the replicas of the stage.
  [[nodiscard]] virtual std::vector<DeviceFloats> gradients() = 0;

  // fp32 gradient of a tied embedding's copy on this stage, to be summed over both; empty if not tied.
  [[nodiscard]] virtual DeviceFloats tied_gradient() = 0;

  // Where ranks share out the optimizer's states (StateShard): this one's parts of all main gradients, in a fixed
  // order.
  [[nodiscard]] virtual std::vector<DeviceFloats> own_gradients() { return {}; }

  // Weights that are trained, in a fixed order: where ranks share out the optimizer's states each updates its part of
  // each, and takes the others' behind that. Where they share out the weights, too, this makes all of them whole, also
  // frozen ones, with the own part in place, until the next optimizer_step; none where each action gathers its own.
  struct StoredWeight {
    std::span<std::byte> bytes = {};
    std::size_t element_bytes = 1;
  };
  [[nodiscard]] virtual std::vector<StoredWeight> stored_weights() { return {}; }

  // What checkpoints have of its weights and states, in a fixed order; asked for between steps. And how many optimizer
  // steps it has made, which AdamW counts.
  [[nodiscard]] virtual std::vector<StatePart> state_parts() { return {}; }
  [[nodiscard]] virtual std::int64_t updates() const { return 0; }
  virtual void resume_updates(std::int64_t /*made*/) {}

  // Where gradients are clipped, when those of the step are complete: finds the squares of this rank's own elements, of
  // copies of one rank alone; on an asynchronous device `squares` has them once that has ended. And scales all that the
  // next optimizer_step takes.
  virtual void find_squares() {}
  [[nodiscard]] virtual kernels::ExactSquares squares() const { return {}; }
  virtual void scale_gradients(double /*scale*/) {}

  // With several updates a step it applies the gradients of one update's microbatches and begins the next sum; weights
  // that microbatches under way still use are kept for them.
  virtual void optimizer_step() = 0;

  // Of the last optimizer_step: what it copied to its states and weights on the host and back, and how long that took.
  // Of an F, R, I or B since: what it copied of activations, one way, and of its weights, up.
  [[nodiscard]] virtual HostCopies host_copies() const { return {}; }

  // After the last action: throws if any microbatch still holds activations or weight-gradient work.
  virtual void end_step() = 0;

  // Mean loss per token over the step's microbatches, those of another replica counted as zero: the replicas' losses
  // add up. Meaningful on the last stage after end_step.
  [[nodiscard]] virtual double loss() const = 0;
};

}  // namespace plumb::exec
