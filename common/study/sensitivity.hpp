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
  // equally long this is the share of one of them.
  double slope = 0;
  // The derivative to either side: by what the step gets shorter when this alone gets faster (better), and longer when
  // it gets slower. Of classes the least and the most that they are of any of the longest chains. They differ where
  // several chains are tied: what is not on all of them gains nothing alone, and costs in full.
  double if_faster = 0;
  double if_slower = 0;
  bool operator==(const Sensitivity&) const = default;
};

// By |change|, the largest first, then if_slower, then slope; ties by name. Numbers only for a plan whose costs follow
// from them (`require_predicted_costs`). `progress(done, total)` after each.
[[nodiscard]] std::vector<Sensitivity> sensitivities(const Plan& plan, const StepEngine& engine,
                                                     const std::function<void(int, int)>& progress = {});

// Whether several chains are equally long and this is not the same part of all.
[[nodiscard]] bool is_tied(const Sensitivity& entry);

// Whether they would stand in the same place of the list but for their names and the chain that `slope` is of.
[[nodiscard]] bool move_alike(const Sensitivity& a, const Sensitivity& b);

// Whether the plan's costs follow from its machine's numbers.
[[nodiscard]] bool has_predicted_costs(const Plan& plan);

}  // namespace plumb
