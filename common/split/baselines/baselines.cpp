#include "common/split/baselines/baselines.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "common/base/error.hpp"
#include "common/split/baselines/least_worst.hpp"

namespace plumb {

void require_sound(const CutProblem& problem) {
  const std::size_t blocks = problem.forward.size();
  if (blocks < 3 || problem.backward.size() != blocks || problem.parameters.size() != blocks) {
    throw InputError("split", "a chain needs as many forward and backward times and parameters as blocks");
  }
  require_stages(problem.blocks() - 2, problem.stages());
}

Split megatron_even_split(const CutProblem& problem) {
  require_sound(problem);
  const int layers = problem.blocks() - 2;
  if (layers % problem.stages() != 0) {
    throw InputError("split", std::to_string(problem.stages()) + " stages do not divide " + std::to_string(layers) +
                                  " layers, as Megatron-LM's even split needs");
  }
  return uniform_split(layers, problem.stages());
}

Split megatron_first_last_split(const CutProblem& problem) {
  require_sound(problem);
  const int layers = problem.blocks() - 2;
  const int stages = problem.stages();
  if (stages < 3) {
    throw InputError("split", std::to_string(stages) + " stages have no middle between a first and a last one");
  }
  std::vector<Seconds> until(1);  // of all blocks before: the embedding, the layers, the head
  for (std::size_t block = 0; block < problem.forward.size(); ++block) {
    until.push_back(until.back() + problem.forward[block] + problem.backward[block]);
  }
  const auto time = [&](int from, int to) {
    return until[static_cast<std::size_t>(to)] - until[static_cast<std::size_t>(from)];
  };
  Split best;
  Seconds least;
  for (int middle = 1; (stages - 2) * middle <= layers - 2; ++middle) {
    const int ends = layers - (stages - 2) * middle;
    if (ends >= 2 * middle) continue;
    for (int first = std::max(1, ends - middle); first <= std::min(middle, ends - 1); ++first) {
      Seconds slowest = std::max(time(0, 1 + first), time(1 + layers - (ends - first), layers + 2));
      for (int stage = 1; stage + 1 < stages; ++stage) {
        const int from = 1 + first + (stage - 1) * middle;
        slowest = std::max(slowest, time(from, from + middle));
      }
      if (!best.layers.empty() && !(slowest < least)) continue;
      least = slowest;
      best.layers.assign(static_cast<std::size_t>(stages), middle);
      best.layers.front() = first;
      best.layers.back() = ends - first;
    }
  }
  if (best.layers.empty()) {
    throw InputError("split", std::to_string(layers) + " layers on " + std::to_string(stages) +
                                  " stages have no shorter first or last one beside equal others");
  }
  return best;
}

Split deepspeed_uniform_split(const CutProblem& problem) {
  require_sound(problem);
  return uniform_split(problem.blocks() - 2, problem.stages());
}

Split deepspeed_parameters_split(const CutProblem& problem) {
  require_sound(problem);
  return parameter_split(problem.parameters, problem.stages());
}

const std::vector<Baseline>& baselines() {
  static const std::vector<Baseline> all = {{"megatron", megatron_even_split},
                                            {"megatron-first-last", megatron_first_last_split},
                                            {"deepspeed-uniform", deepspeed_uniform_split},
                                            {"deepspeed-parameters", deepspeed_parameters_split},
                                            {"torchgpipe", torchgpipe_split},
                                            {"pipedream", pipedream_split, pipedream_replicas},
                                            {"dapple", dapple_split, dapple_replicas},
                                            {"alpa", alpa_split, alpa_replicas}};
  return all;
}

const Baseline& find_baseline(const std::string& name) {
  std::vector<std::string> names;
  for (const Baseline& baseline : baselines()) {
    if (baseline.name == name) return baseline;
    names.push_back(baseline.name);
  }
  throw InputError("--baseline", "unknown baseline '" + name + "'", did_you_mean(name, names));
}

}  // namespace plumb
