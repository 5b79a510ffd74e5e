#include "exec/calibrate/block_bench.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "exec/calibrate/lone_tensor_group.hpp"
#include "exec/data/data.hpp"
#include "exec/device/device.hpp"
#include "exec/host/memory.hpp"
#include "exec/stage/batch.hpp"
#include "exec/stage/modules/block.hpp"
#include "exec/stage/primitives/weight_optimizer.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {
namespace {

constexpr int instances_of_a_kind = 2;
constexpr std::chrono::microseconds device_poll{20};

// Between two places in the order of a compute stream.
struct Span {
  MomentPtr begin;
  MomentPtr end;
};

struct BlockSpans {
  Span forward;
  Span input_gradient;
  Span weight_gradient;
};

Bytes size_of(const at::Tensor& tensor) {
  return tensor.defined() ? Bytes{static_cast<std::int64_t>(tensor.nbytes())} : Bytes{};
}

}  // namespace

std::vector<int> measured_blocks(const Model& model) {
  std::map<std::string, int> seen;
  std::vector<int> chosen;
  for (int block = 0; block < static_cast<int>(model.layers.size()) + 2; ++block) {
    if (seen[block_key(model, block)]++ < instances_of_a_kind) {
      chosen.push_back(block);
    }
  }
  return chosen;
}

struct BlockBench::State {
  // Measures what an action adds to this rank's memory, when it ends and at its worst moment.
  struct Meter {
    explicit Meter(int tracked_rank) : rank(tracked_rank), before(current_memory(tracked_rank)) {
      reset_peak_memory(rank);
    }
    [[nodiscard]] Bytes added() const { return current_memory(rank) - before; }
    [[nodiscard]] Bytes worst() const { return peak_memory(rank) - before; }

    int rank;
    Bytes before;
  };

  Model model;
  Training training;
  std::shared_ptr<const Corpus> corpus;
  int rank;
  Device& device;
  Numerics numerics;
  std::vector<int> numbers;
  std::vector<std::unique_ptr<Block>> blocks = {};
  std::vector<std::unique_ptr<WeightOptimizer>> optimizers = {};
  std::vector<ComputeCost> memory = {};
  int next_microbatch = 0;
  at::Tensor inputs = {};  // of the round's microbatch, on a device
  at::Tensor targets = {};

  [[nodiscard]] TokenRange range_of(int microbatch) const {
    return {.sequence = microbatch * training.microbatch, .first = 0, .count = training.sequence};
  }

  [[nodiscard]] at::Tensor inputs_of(int microbatch) const {
    return batch_inputs(*corpus, model, training, range_of(microbatch), numerics.compute);
  }
  [[nodiscard]] at::Tensor targets_of(int microbatch) const {
    return batch_targets(*corpus, model, training, range_of(microbatch));
  }

  // As a stage does it: on a device before anything is timed, since copies from the host's memory wait for it; on the
  // host inside F.
  void put_on_device(int microbatch) {
    if (numerics.device.is_cpu()) return;
    inputs = inputs_of(microbatch).to(numerics.device);
    targets = targets_of(microbatch).to(numerics.device);
  }

  template <class Work>
  [[nodiscard]] Span timed(const Work& work) const {
    Span span{.begin = device.compute().record(), .end = {}};
    work();
    span.end = device.compute().record();
    return span;
  }

  // Once its end has come, and the clock was aligned before its begin.
  [[nodiscard]] Seconds duration(const Span& span) const {
    while (!has_come(span.end)) std::this_thread::sleep_for(device_poll);
    return device.time_of(*span.end) - device.time_of(*span.begin);
  }

  void forward(int microbatch, std::vector<BlockSpans>& spans) {
    at::Tensor x = inputs.defined() ? std::exchange(inputs, {}) : inputs_of(microbatch);
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      const bool head = index + 1 == blocks.size();
      const Bytes input = size_of(x);
      Meter meter(rank);
      const Pass pass{.microbatch = microbatch,
                      .queue = {},
                      .targets = !head               ? at::Tensor()
                                 : targets.defined() ? std::exchange(targets, {})
                                                     : targets_of(microbatch),
                      .routing = nullptr};
      at::Tensor y;
      spans[index].forward = timed([&] {
        y = blocks[index]->forward(std::move(x), pass, true);
        if (!head) return;
        if (!device.is_asynchronous()) (void)y.item<double>();  // a run on a device reads it after the step
        y.reset();
      });
      ComputeCost& cost = memory[index];
      cost.kept_bytes = std::max(input + meter.added() - size_of(y), Bytes{});
      cost.forward_workspace_bytes = input + meter.worst() - cost.kept_bytes;
      x = std::move(y);
    }
  }

  void input_gradient(int microbatch, std::vector<BlockSpans>& spans) {
    at::Tensor gradient = at::full({}, 1.0, at::TensorOptions().dtype(at::kFloat).device(numerics.device));
    for (std::size_t index = blocks.size(); index-- > 0;) {
      const Bytes output_gradient = index + 1 == blocks.size() ? Bytes{} : size_of(gradient);
      const Meter meter(rank);
      spans[index].input_gradient =
          timed([&] { gradient = blocks[index]->input_gradient(microbatch, std::move(gradient)); });
      ComputeCost& cost = memory[index];
      // Where nothing is kept, the loss's own gradient is missing from what was there.
      cost.kept_for_weight_bytes =
          std::max(cost.kept_bytes + output_gradient + meter.added() - size_of(gradient), Bytes{});
      cost.input_gradient_workspace_bytes = output_gradient + meter.worst();
    }
  }

  void weight_gradient(int microbatch, std::vector<BlockSpans>& spans) {
    for (std::size_t index = blocks.size(); index-- > 0;) {
      const Meter meter(rank);
      spans[index].weight_gradient = timed([&] { blocks[index]->weight_gradient(microbatch); });
      memory[index].weight_gradient_workspace_bytes = meter.worst();
    }
  }
};

BlockBench::BlockBench(const Scenario& scenario, std::shared_ptr<const Corpus> corpus, int tracked_rank, Device& device)
    : state_(std::make_unique<State>(
          State{.model = scenario.model,
                .training = scenario.training,
                .corpus = std::move(corpus),
                .rank = tracked_rank,
                .device = device,
                .numerics = numerics_of(scenario.training.precision, c10::Device(device.name())),
                .numbers = measured_blocks(scenario.model)})) {
  State& state = *state_;
  state.training.offload = {};  // a profile has the update alone
  const TensorLayout& tensor = scenario.layout.tensor;
  TensorGroupPtr group;
  if (tensor.degree > 1) group = c10::make_intrusive<LoneTensorGroup>(tensor);
  for (const int block : state.numbers) {
    state.blocks.push_back(
        std::make_unique<Block>(state.model, block, state.training, state.numerics, BlockSources{.group = group}));
    state.optimizers.push_back(
        std::make_unique<WeightOptimizer>(trained(state.blocks.back()->weights()), state.training));
  }
  state.memory.resize(state.blocks.size());
  std::vector<BlockSpans> unused(state.blocks.size());
  state.put_on_device(state.next_microbatch);
  state.forward(state.next_microbatch, unused);  // the microbatch before the first round's
}

BlockBench::~BlockBench() = default;

const std::vector<int>& BlockBench::blocks() const { return state_->numbers; }

CalibrationRound BlockBench::round() {
  State& state = *state_;
  std::vector<BlockSpans> spans(state.blocks.size());
  const int before = state.next_microbatch++;
  state.put_on_device(state.next_microbatch);
  state.device.align_clock();
  state.forward(state.next_microbatch, spans);
  state.input_gradient(before, spans);
  state.weight_gradient(before, spans);
  CalibrationRound round;
  for (const BlockSpans& of : spans) {
    round.samples.push_back({.forward = state.duration(of.forward),
                             .input_gradient = state.duration(of.input_gradient),
                             .weight_gradient = state.duration(of.weight_gradient)});
  }
  return round;
}

std::vector<Seconds> BlockBench::optimizer_step() {
  std::vector<Span> spans;
  state_->device.align_clock();
  for (const auto& optimizer : state_->optimizers) spans.push_back(state_->timed([&] { optimizer->step(); }));
  std::vector<Seconds> seconds;
  for (const Span& span : spans) seconds.push_back(state_->duration(span));
  return seconds;
}

std::vector<ComputeCost> BlockBench::memory() const {
  std::vector<ComputeCost> costs = state_->memory;
  for (std::size_t index = 0; index < costs.size(); ++index) {
    for (const WeightPtr& weight : state_->blocks[index]->weights()) {
      costs[index].parameters += weight->value.numel();
    }
  }
  return costs;
}

std::vector<std::int64_t> BlockBench::trained_parameters() const {
  std::vector<std::int64_t> counts;
  for (const auto& block : state_->blocks) {
    counts.push_back(0);
    for (const WeightPtr& weight : trained(block->weights())) counts.back() += weight->value.numel();
  }
  return counts;
}

}  // namespace plumb::exec
