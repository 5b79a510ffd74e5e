// Trains the plan's model on one device with the same F, I and W, and says how far a run was from it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/check/check_progress.hpp"
#include "exec/data/data.hpp"
#include "exec/stage/factory.hpp"

namespace plumb::exec {

// Passed: equal by bits where the plan only pipelines; else the losses within 8 units in the last place of fp32, where
// ranks divide tensors those of the first and the last step in units of the training's precision, and the error ratios
// of all gradients as exec/check/error_ratios.hpp allows. `problem` says in one sentence what differs; empty if it
// passed.
struct CheckResult {
  bool passed = false;
  bool bitwise_equal = false;
  double worst_error_ratio = 0;
  std::string worst_tensor;
  double mean_error_ratio = 0;   // geometric
  double error_ratio_limit = 0;  // of each gradient, as exec/check/error_ratios.hpp has it
  std::string problem;
};

// What of a run is compared. Ranks of a tensor group round otherwise than one device, of which an optimizer makes much
// where a gradient is near nothing, and near ties of experts turn: so of such a run the single device makes the last
// step from the run's weights, and its tokens go to the run's experts, which must be its own choice but for near ties.
struct Trained {
  std::vector<double> losses;   // of each step, the warm-up first
  NamedGradients gradients;     // of the last one, whole
  NamedGradients weights = {};  // before the last one; empty: those that the single device has come to
  NamedGradients routing = {};  // of the last one, by routing_name; empty: the single device's own
  int warm_up = 0;              // how many of its steps were it: named so
  std::shared_ptr<const PretrainedWeights> start = {};  // the weights that it began with; null: those of the seed
};

// Compares losses (of each step) and gradients (of the last step) with those of the single device: bitwise, and if they
// differ by CheckResult's ratio of errors against fp64, routing of experts replayed. Slices of a sequence are slices on
// the single device, too: F of one after the other, I and W in reverse. Of two replicas the single device
// sums the gradients as the ranks do: each replica's microbatches first, then both. Of data-parallel ranks it does so
// in all steps but the last, whose gradients are summed in the order of the batch. A plan with several updates a step
// is compared with its own stages on one device, one microbatch after the other, each stage with the versions of its
// weights that the schedule states (bitwise, gradients of the last update; fp64 has no optimizer, so no ratio).
// `device` is where the run was: "cpu", "cuda:0". Throws plumb::Stopped where `watch` ends it: within a microbatch.
[[nodiscard]] CheckResult check(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, const Trained& run,
                                const std::string& device, const CheckWatch& watch);

// The single device of `check` once it has trained as many steps as `like` has losses: for all runs of plans that
// differ in schedule, split and ranks alone. Of a plan with several updates a step or with tensor groups for `like`
// alone.
class Reference {
 public:
  Reference(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, const Trained& like,
            const std::string& device, const CheckWatch& watch);
  ~Reference();
  // What `check` finds. The first call makes the step in fp64.
  [[nodiscard]] CheckResult compare(const Trained& run);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Trains the plan's model on one device for as many steps as there are losses, and compares all losses and the
// gradients of the last step, which must be complete.
[[nodiscard]] CheckResult check_against_reference(const Plan& plan, const StageOptions& options, const Trained& run,
                                                  const CheckWatch& watch = {});
[[nodiscard]] CheckResult check_against_reference(const Plan& plan, const StageOptions& options,
                                                  const std::vector<double>& losses, const NamedGradients& gradients,
                                                  const CheckWatch& watch = {});

}  // namespace plumb::exec
