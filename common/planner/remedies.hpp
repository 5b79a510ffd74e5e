// Changes with which a scenario fits that does not fit as it is.
#pragma once

#include <string>
#include <vector>

#include "common/planner/planner.hpp"

namespace plumb {

// A change of one kind, which fits when the scenario's file says it.
struct Remedy {
  std::string text = {};  // "layout: {pipeline: 4} with cluster: {ranks: 4}": keys to write into the file
  Scenario scenario = {};
  Candidate candidate = {};  // the fastest of its own splits that fits
};

// The first change of each kind that fits, cheap ones first; at most five, and one more that offloads. `shortfall` is
// the scenario's candidate that lacks least. A scenario that leaves layouts open keeps them open, so its remedies
// change nothing in `layout`.
[[nodiscard]] std::vector<Remedy> remedies(const Scenario& scenario, const Candidate& shortfall);

// "this would fit: microbatch: 2 (1.5 GiB, step +3 %); or …": a hint.
[[nodiscard]] std::string describe_remedies(const Scenario& scenario, const Candidate& shortfall);

}  // namespace plumb
