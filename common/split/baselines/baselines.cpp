#include "common/split/baselines/baselines.hpp"

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
