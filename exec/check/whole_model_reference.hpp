// The single device that a run is compared with: the whole model as one stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/check/check.hpp"
#include "exec/check/check_progress.hpp"
#include "exec/check/error_ratios.hpp"
#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {

// Unit in the last place of the training's precision, relative.
[[nodiscard]] double epsilon_of(ElementType precision);

// Of plans with one update a step; `plan` and `corpus` outlive it.
class WholeModelReference {
 public:
  // For a run of as many steps and of the same start as `like`.
  WholeModelReference(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, c10::Device device,
                      const Trained& like, const CheckWatch& watch);

  // For all steps, up to and without the last optimizer step; losses of each step.
  std::vector<double> train(const Trained& run);
  // Of what the run has from itself; empty: nothing.
  [[nodiscard]] std::string problem() const;
  // With the gradients of the last step.
  [[nodiscard]] const std::vector<WeightPtr>& weights() const { return reference_.trained_weights(); }
  // From a step in fp64, which the first call makes.
  [[nodiscard]] ErrorRatios error_ratios(const NamedGradients& gradients);

 private:
  // Of a step, as the whole model's stage counts them: sequences of so many slices, every `stride`-th from `first` up
  // to but without `end`.
  struct Microbatches {
    int first = 0;
    int end = 0;
    int slices = 1;
    int stride = 1;
  };

  [[nodiscard]] TorchStageSettings settings(ElementType precision) const;
  void run_step(TorchStage& stage, std::int64_t step, const Microbatches& of);
  void make_exact();
  void take_over(const Trained& run);
  double train_step(std::int64_t step);
  void clip();
  void round_weights();
  void restore_weights();
  double run_by_shares(std::int64_t step);

  const Plan& plan_;
  const std::shared_ptr<const Corpus>& corpus_;
  c10::Device device_;
  Microbatches all_;
  CheckProgress progress_;  // from before the model is made
  std::size_t steps_;
  std::shared_ptr<const PretrainedWeights> start_;
  bool takes_routing_ = false;  // from the run
  RoutingLog routing_;
  double routing_gap_ = 0;
  std::string other_start_;
  TorchStage reference_;
  std::unique_ptr<TorchStage> second_;  // the second replica, if the plan has one
  std::vector<at::Tensor> kept_;        // of weights that travel quantised: what their optimizer has
  std::vector<WeightPtr> exact_;        // in fp64, with the gradients of the last step
};

}  // namespace plumb::exec
