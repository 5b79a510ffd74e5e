// Times F, I, W and the optimizer of a model's blocks on one device, in the order in which a stage runs them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/cost/profile/profile.hpp"
#include "common/scenario/scenario.hpp"
#include "exec/calibrate/calibration_rounds.hpp"

namespace plumb::exec {

class Corpus;
class Device;

// Every kind of block at most twice, in the model's order: caches are as cold as in a stage, and memory stays small.
[[nodiscard]] std::vector<int> measured_blocks(const Model& model);

// Not thread-safe: each thread has its own, made and used under its own memory tracking. On an asynchronous device work
// is put there without waiting for it, as a run does, and timed by the moments between.
class BlockBench {
 public:
  // Of measured_blocks, as one rank of the scenario's tensor group has them. `device` must outlive it, and the thread
  // has entered it.
  BlockBench(const Scenario& scenario, std::shared_ptr<const Corpus> corpus, int tracked_rank, Device& device);
  BlockBench(const BlockBench&) = delete;
  BlockBench& operator=(const BlockBench&) = delete;
  ~BlockBench();

  // Block numbers of the model, in order.
  [[nodiscard]] const std::vector<int>& blocks() const;

  // F of one microbatch through all blocks, then I and then W of the microbatch before, as in the steady state of 1F1B.
  // One sample per block: what it measured of the two.
  [[nodiscard]] CalibrationRound round();

  // One optimizer step; seconds per block.
  [[nodiscard]] std::vector<Seconds> optimizer_step();

  // Bytes per block, of the round before last; times are zero.
  [[nodiscard]] std::vector<ComputeCost> memory() const;
  // Of each block: elements of what is trained.
  [[nodiscard]] std::vector<std::int64_t> trained_parameters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb::exec
