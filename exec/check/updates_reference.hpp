// The single device that a plan with several updates a step is compared with.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/check/check_progress.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {

// By their rule alone: microbatch after microbatch through all stages on one device.
class UpdatesReference {
 public:
  // `start` as Trained has it.
  UpdatesReference(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, c10::Device device,
                   const std::shared_ptr<const PretrainedWeights>& start = {});

  // Losses of each step.
  std::vector<double> train(std::size_t steps, const CheckWatch& watch);

  // With the gradients of the last update.
  [[nodiscard]] std::vector<WeightPtr> weights() const;

 private:
  void run(int microbatch);

  const Schedule& schedule_;
  std::vector<std::unique_ptr<TorchStage>> stages_;
};

}  // namespace plumb::exec
