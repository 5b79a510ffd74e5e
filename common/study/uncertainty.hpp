// How sure a prediction is, and how sure the order of two, by what their machines' numbers leave open.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/plan/plan.hpp"

namespace plumb {

// Draws of a machine's numbers: each times a lognormal factor of mean 1 whose standard deviation is the number's
// uncertainty (fractions at most 1), by seed, machine, number and draw: plans on machines of one name see the same
// factors, on others independent ones.
struct DrawOptions {
  int draws = 200;
  std::uint64_t seed = 1;
};

struct Contribution {
  std::string number = {};
  double uncertainty = 0;  // of the number, as a fraction
  double slope = 0;        // d ln(step) / d ln(number)
  double step = 0;         // |slope| × uncertainty: of the step, as a fraction
  bool operator==(const Contribution&) const = default;
};

// By the longest path, as fractions of the step that it predicts: contention changes the step, and hardly these.
struct StepUncertainty {
  DrawOptions options = {};
  double low = 1;                                // of the draws: 5%
  double median = 1;                             // 50%
  double high = 1;                               // 95%
  double deviation = 0;                          // one standard deviation, by linear propagation
  std::vector<Contribution> contributions = {};  // of the numbers that are not exact, the largest first; ties by name
  // Numbers without an uncertainty that move the step by more than 0.5% per 10%, in the same order; those of the
  // network between machines (sites.bandwidth, sites.latency, oversubscription) never have one.
  std::vector<Contribution> taken_as_exact = {};
};

// Throws InputError for a plan whose costs do not follow from its machine's numbers (`require_predicted_costs`).
// `progress(done, total)` after each draw.
[[nodiscard]] StepUncertainty step_uncertainty(const Plan& plan, const DrawOptions& options,
                                               const std::function<void(int, int)>& progress = {});

// What best tells beforehand which plan will be faster.
struct Decisive {
  std::string number = {};
  double correlation = 0;  // of its draws with ln(step of B / step of A)
  bool operator==(const Decisive&) const = default;
};

struct Ranking {
  DrawOptions options = {};
  Seconds first = {};  // by the longest path, with the numbers as they stand
  Seconds second = {};
  double first_wins = 0;  // of the draws; equal steps count half
  // By how much of the second's step the first is shorter: as the numbers stand, and 5% and 95% of the draws.
  double faster = 0;
  double faster_low = 0;
  double faster_high = 0;
  bool same_machine = true;             // by name: their numbers are drawn together
  std::vector<Decisive> decisive = {};  // by |correlation|, the largest first, ties by name; none where nothing is open
};

// Throws InputError as `step_uncertainty`, for either plan.
[[nodiscard]] Ranking rank_plans(const Plan& first, const Plan& second, const DrawOptions& options,
                                 const std::function<void(int, int)>& progress = {});

}  // namespace plumb
