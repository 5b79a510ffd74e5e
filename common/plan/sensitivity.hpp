// What moves the step: its derivative by every class of actions, every class of messages and every number of the
// machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/graph/disturbance.hpp"
#include "common/plan/plan.hpp"

namespace plumb {

enum class Moved : std::uint8_t {
  stage,    // one kind of action of one stage, or its optimizer step
  message,  // messages inside a machine, or between machines; reductions
  kind,     // one kind of action of all stages: sums of the first
  number,   // of the machine, or of the network between machines
};

// Every node of a graph belongs to exactly one class of `stage` or `message`, so that their slopes add up to 1.
struct Sensitivity {
  Moved moved = Moved::stage;
  std::string name = {};  // "W of stage 3", "messages between machines", "matmul_efficiency"
  // The step when it is 10% faster (times × 0.9, numbers that speed up × 1.1, others × 0.9), evaluated anew: a fraction
  // of the step, negative where it gets shorter.
  double change = 0;
  // Of classes the share of the chain of nodes that ends last; of numbers the fraction by which the longest path gets
  // shorter for each fraction that the number gets better (central difference of 0.1%). Where several chains are
  // equally long this is the slope of one of them.
  double slope = 0;
  bool operator==(const Sensitivity&) const = default;
};

// By |change|, the largest first, then slope; ties by name. Numbers only for a plan whose costs follow from them
// (`require_predicted_costs`). `progress(done, total)` after each.
[[nodiscard]] std::vector<Sensitivity> sensitivities(const Plan& plan, const StepEngine& engine,
                                                     const std::function<void(int, int)>& progress = {});

// Whether the plan's costs follow from its machine's numbers.
[[nodiscard]] bool has_predicted_costs(const Plan& plan);

}  // namespace plumb
