#include "exec/stage/block_bench.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "exec/data.hpp"
#include "exec/memory.hpp"
#include "exec/stage/batch.hpp"
#include "exec/stage/block.hpp"
#include "exec/stage/torch_stage.hpp"
#include "exec/stage/weight_optimizer.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {
namespace {

constexpr int instances_of_a_kind = 2;

std::vector<int> chosen_blocks(const Model& model) {
  std::map<std::string, int> seen;
  std::vector<int> chosen;
  for (int block = 0; block < static_cast<int>(model.layers.size()) + 2; ++block) {
    if (seen[block_key(model, block)]++ < instances_of_a_kind) {
      chosen.push_back(block);
    }
  }
  return chosen;
}

Seconds since(Clock::time_point start) { return {std::chrono::duration<double>(Clock::now() - start).count()}; }

Bytes size_of(const at::Tensor& tensor) {
  return tensor.defined() ? Bytes{static_cast<std::int64_t>(tensor.nbytes())} : Bytes{};
}

}  // namespace

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
  std::vector<int> numbers;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<WeightOptimizer>> optimizers;
  std::vector<ComputeCost> memory;
  int next_microbatch = 0;

  [[nodiscard]] TokenRange range_of(int microbatch) const {
    return {.sequence = microbatch * training.microbatch, .first = 0, .count = training.sequence};
  }

  void forward(int microbatch, std::vector<BlockSample>& samples) {
    at::Tensor x =
        batch_inputs(*corpus, model, training, range_of(microbatch), numerics_of(training.precision).compute);
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      const bool head = index + 1 == blocks.size();
      const Bytes input = size_of(x);
      Meter meter(rank);
      const Pass pass{.microbatch = microbatch,
                      .queue = {},
                      .targets = head ? batch_targets(*corpus, model, training, range_of(microbatch)) : at::Tensor(),
                      .routing = nullptr};
      const Clock::time_point start = Clock::now();
      at::Tensor y = blocks[index]->forward(std::move(x), pass, true);
      if (head) {
        (void)y.item<double>();
        y.reset();
      }
      samples[index].forward = since(start);
      ComputeCost& cost = memory[index];
      cost.kept_bytes = std::max(input + meter.added() - size_of(y), Bytes{});
      cost.forward_workspace_bytes = input + meter.worst() - cost.kept_bytes;
      x = std::move(y);
    }
  }

  void input_gradient(int microbatch, std::vector<BlockSample>& samples) {
    at::Tensor gradient = at::full({}, 1.0, at::kFloat);
    for (std::size_t index = blocks.size(); index-- > 0;) {
      const Bytes output_gradient = index + 1 == blocks.size() ? Bytes{} : size_of(gradient);
      const Meter meter(rank);
      const Clock::time_point start = Clock::now();
      gradient = blocks[index]->input_gradient(microbatch, std::move(gradient));
      samples[index].input_gradient = since(start);
      ComputeCost& cost = memory[index];
      // Where nothing is kept, the loss's own gradient is missing from what was there.
      cost.kept_for_weight_bytes =
          std::max(cost.kept_bytes + output_gradient + meter.added() - size_of(gradient), Bytes{});
      cost.input_gradient_workspace_bytes = output_gradient + meter.worst();
    }
  }

  void weight_gradient(int microbatch, std::vector<BlockSample>& samples) {
    for (std::size_t index = blocks.size(); index-- > 0;) {
      const Meter meter(rank);
      const Clock::time_point start = Clock::now();
      blocks[index]->weight_gradient(microbatch);
      samples[index].weight_gradient = since(start);
      memory[index].weight_gradient_workspace_bytes = meter.worst();
    }
  }
};

BlockBench::BlockBench(const Scenario& scenario, std::shared_ptr<const Corpus> corpus, int tracked_rank)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.model = scenario.model;
  state.training = scenario.training;
  state.corpus = std::move(corpus);
  state.rank = tracked_rank;
  state.numbers = chosen_blocks(scenario.model);
  const Numerics numerics = numerics_of(scenario.training.precision);
  for (const int block : state.numbers) {
    state.blocks.push_back(std::make_unique<Block>(state.model, block, state.training, numerics));
    state.optimizers.push_back(
        std::make_unique<WeightOptimizer>(trained(state.blocks.back()->weights()), state.training));
  }
  state.memory.resize(state.blocks.size());
  std::vector<BlockSample> unused(state.blocks.size());
  state.forward(state.next_microbatch, unused);  // the microbatch before the first round's
}

BlockBench::~BlockBench() = default;

const std::vector<int>& BlockBench::blocks() const { return state_->numbers; }

CalibrationRound BlockBench::round() {
  State& state = *state_;
  CalibrationRound round{.samples = std::vector<BlockSample>(state.blocks.size())};
  const int before = state.next_microbatch++;
  state.forward(state.next_microbatch, round.samples);
  state.input_gradient(before, round.samples);
  state.weight_gradient(before, round.samples);
  return round;
}

std::vector<Seconds> BlockBench::optimizer_step() {
  std::vector<Seconds> seconds;
  for (const auto& optimizer : state_->optimizers) {
    const Clock::time_point start = Clock::now();
    optimizer->step();
    seconds.push_back(since(start));
  }
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
