// What planners of replicated stages propose for all ranks of a scenario.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/scenario_file/stage_data_choices.hpp"
#include "common/search/baseline.hpp"

namespace plumb {
namespace {

// Splits of one problem, and the microbatch that they are planned for.
struct Proposal {
  ReplicaSplit split = {};
  std::int64_t microbatch = 1;
};

void add(std::vector<Proposal>& proposals, std::vector<ReplicaSplit> splits, std::int64_t microbatch) {
  for (ReplicaSplit& split : splits) proposals.push_back({std::move(split), microbatch});
}

// Every replica computes every m-th microbatch of its stage, and synchronises its weights, |w| bytes, for each:
// 4(m − 1)|w| / m bytes at the links' bandwidth.
ReplicaProblem pipedream_problem(const Scenario& scenario, const Layout& base, int replicas, std::int64_t microbatch) {
  ReplicaProblem problem = replica_problem(scenario, base, replicas, microbatch, 1);
  const std::vector<Seconds> forward = problem.forward.front();
  const std::vector<Seconds> backward = problem.backward.front();
  problem.degrees.clear();
  problem.forward.clear();
  problem.backward.clear();
  problem.kept.clear();
  problem.widest.reset();
  for (int degree = 1; degree <= replicas; ++degree) {
    problem.degrees.push_back(degree);
    const auto share = [&](std::vector<Seconds> times) {
      for (Seconds& time : times) time = time / degree;
      return times;
    };
    problem.forward.push_back(share(forward));
    problem.backward.push_back(share(backward));
  }
  const Machine& machine = scenario.cluster.machine;
  const Link& link = scenario.cluster.ranks <= machine.devices ? machine.inside : machine.outside;
  problem.reduction = [bandwidth = link.bandwidth.value](int degree, Bytes weights) -> Seconds {
    const double m = degree;
    return Seconds{4 * (m - 1) / m * static_cast<double>(weights.value) / bandwidth.value / m};
  };
  // From one worker to one other.
  problem.message = [alone = problem.message(1, 1)](int, int) { return alone; };
  return problem;
}

// Submeshes of 1, 2, 4, … devices of one machine, or of whole machines.
bool is_submesh(int degree, int per_machine) {
  return degree < per_machine ? std::has_single_bit(static_cast<unsigned>(degree)) : degree % per_machine == 0;
}

void keep_submeshes(ReplicaProblem& problem, int per_machine) {
  for (std::size_t i = problem.degrees.size(); i-- > 0;) {
    if (is_submesh(problem.degrees[i], per_machine)) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    problem.degrees.erase(problem.degrees.begin() + at);
    problem.forward.erase(problem.forward.begin() + at);
    problem.backward.erase(problem.backward.begin() + at);
    problem.kept.erase(problem.kept.begin() + at);
  }
}

// The best of each number of stages, the best of all first.
std::vector<Proposal> proposals_of(const Scenario& scenario, const Layout& base, std::int64_t microbatch,
                                   const Baseline& baseline) {
  const int replicas = replicas_in_all(scenario, base);
  const int per_machine = std::max(1, scenario.cluster.machine.devices / stage_width(base, 0));
  std::vector<Proposal> proposals;
  if (baseline.name == "pipedream") {
    add(proposals, baseline.replicas(pipedream_problem(scenario, base, replicas, microbatch)), microbatch);
  } else {
    const bool submeshes = baseline.name == "alpa";
    for (const std::int64_t size : scenario.microbatches) {
      for (int widest = 1; widest <= replicas; ++widest) {
        if (microbatches_of(scenario, size, widest) == 0 || (submeshes && !is_submesh(widest, per_machine))) continue;
        ReplicaProblem problem = replica_problem(scenario, base, replicas, size, widest);
        if (submeshes) keep_submeshes(problem, per_machine);
        add(proposals, baseline.replicas(problem), size);
      }
    }
  }
  std::ranges::stable_sort(proposals, {}, [](const Proposal& proposal) { return proposal.split.time; });
  return proposals;
}

// With the microbatch that it is planned for and with each other one: the fastest that can be built.
Candidate weigh(const Scenario& scenario, PlanChoice choice, const Layout& base, const Proposal& proposal,
                const Evaluator& evaluator) {
  choice.layout = layout_with(base, proposal.split.degrees);
  choice.schedule = {.name = "1f1b"};
  choice.split = {.method = SplitMethod::counts, .counts = proposal.split.split.layers};
  choice.microbatch = proposal.microbatch;
  Candidate found = weigh_candidate(scenario, choice, evaluator);
  for (const std::int64_t size : scenario.microbatches) {
    if (size == proposal.microbatch) continue;
    choice.microbatch = size;
    Candidate other = weigh_candidate(scenario, choice, evaluator);
    if (stands_before(other, found)) found = std::move(other);
  }
  found.own = false;
  return found;
}

}  // namespace

Candidate replica_baseline(const Scenario& scenario, const Candidate& best, const Baseline& baseline,
                           const Evaluator& evaluator) {
  const Layout base = layout_with(best.choice.layout.value_or(scenario.layout), {1});
  Scenario asked = scenario;
  if (best.choice.recompute) asked.recomputes = {*best.choice.recompute};
  if (best.choice.offload) asked.training.offload = *best.choice.offload;
  std::optional<Candidate> found;
  for (const Proposal& proposal : proposals_of(asked, base, best.choice.microbatch, baseline)) {
    Candidate candidate = weigh(scenario, best.choice, base, proposal, evaluator);
    const bool built = candidate.built;
    if (!found || built) found = std::move(candidate);
    if (built) break;
  }
  if (found) return std::move(*found);
  return {.choice = best.choice, .own = false, .reason = "no stages on all ranks fit in memory"};
}

}  // namespace plumb
