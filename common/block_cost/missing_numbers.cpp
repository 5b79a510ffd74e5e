#include "common/block_cost/missing_numbers.hpp"

#include <algorithm>

#include "common/block_cost/block_costs.hpp"

namespace plumb {
namespace {

template <class Value>
bool is_missing(const Sourced<Value>& number) {
  return number.value == Value{} && number.source.empty();
}

bool runs_cores(const Scenario& scenario) {
  Scenario at = scenario;
  if (!scenario.microbatches.empty()) at.training.microbatch = scenario.microbatches.front();
  for (std::size_t block = 0; block < scenario.model.layers.size() + 2; ++block) {
    const auto is_core = [](const ProgramStep& step) { return step.kind == StepKind::core; };
    if (std::ranges::any_of(program_of_block(at, block).steps, is_core)) return true;
  }
  return false;
}

std::string line_of(const std::string& key, const std::string& value, const std::string& source) {
  return key + ": {value: " + value + ", uncertainty: 20%, source: \"" + source + "\"}";
}

// In the order of a machine's file.
void add_missing_of_device(const Scenario& scenario, std::vector<MissingNumber>& all) {
  const DeviceProfile& device = scenario.cluster.machine.device;
  const auto add = [&](const char* key, const char* needed, const char* value, const char* source) {
    all.push_back({.key = key, .of_device = true, .needed = needed, .line = line_of(key, value, source)});
  };
  if (device.multiprocessors == 0) {
    all.push_back({.key = "multiprocessors",
                   .of_device = true,
                   .needed = "for the waves of matmuls on a cuda device",
                   .line = "multiprocessors: … (of the datasheet: 108 on an A100)"});
  }
  if (is_missing(device.matmul_depth)) {
    add("matmul_depth", "for matmuls on a cuda device", "…", "fitted: single matmuls of many depths");
  }
  if (is_missing(device.attention_efficiency) && runs_cores(scenario)) {
    add("attention_efficiency", "for fused attention or recurrences", "0.…",
        "measured: of the peak, by the attention kernel alone");
  }
  if (is_missing(device.kernel_gap)) {
    add("kernel_gap", "between the kernels of a cuda device", "… us", "measured: a trace of one layer");
  }
  if (is_missing(device.launch_time)) {
    add("launch_time", "for the kernels of a cuda device", "… us", "measured: the host, for one kernel");
  }
  const auto has_pipeline = [](const Layout& layout) { return layout.pipeline > 1; };
  if (is_missing(device.message_multiprocessors) && std::ranges::any_of(layouts_of(scenario), has_pipeline)) {
    add("message_multiprocessors", "for a pipeline's messages beside matmuls", "…",
        "measured: matmuls with and without messages beside them");
  }
}

}  // namespace

std::vector<MissingNumber> missing_numbers(const Scenario& scenario) {
  const Machine& machine = scenario.cluster.machine;
  std::vector<MissingNumber> all;
  if (std::ranges::any_of(offloads_of(scenario), offloads) && !has_host(machine)) {
    all.push_back({.key = "host",
                   .needed = "to offload to",
                   .line = "host: {link: {latency: …, bandwidth: … GB/s}, memory: … GiB, memory_bandwidth: … GB/s}"});
  }
  if (machine.device.type == DeviceType::cpu) return all;
  if (!scenario.profile) add_missing_of_device(scenario, all);
  if (is_missing(machine.device.framework_memory)) {
    all.push_back({.key = "framework_memory",
                   .of_device = true,
                   .needed = "to say what fits on a cuda device",
                   .line = line_of("framework_memory", "… GiB",
                                   "measured: nvidia-smi less what the framework has allocated; 0 GiB for nothing")});
  }
  const auto has_groups = [](const Layout& layout) { return layout.tensor.degree * layout.data.degree > 1; };
  if (std::ranges::none_of(layouts_of(scenario), has_groups)) return all;
  const auto add = [&](const char* key, const char* value, const char* source) {
    all.push_back({.key = key,
                   .needed = "for collectives of tensor- or data-parallel ranks",
                   .line = line_of(key, value, source)});
  };
  if (is_missing(machine.collective_bandwidth)) {
    add("collective_bandwidth", "… GB/s", "measured: bus bandwidth of nccl-tests, all devices of a machine");
  }
  if (is_missing(machine.collective_latency)) {
    add("collective_latency", "… us", "measured: nccl-tests, 8 bytes, the part that ranks do not change");
  }
  if (is_missing(machine.collective_latency_per_rank)) {
    add("collective_latency_per_rank", "… us", "measured: nccl-tests, 8 bytes, for each rank more");
  }
  return all;
}

std::string problem_of(const std::vector<MissingNumber>& missing, const std::string& machine) {
  std::string text = "machine " + machine + " has no ";
  for (std::size_t n = 0; n < missing.size(); ++n) {
    text += (n == 0 ? "'" : "; no '") + missing[n].key + "', which is needed " + missing[n].needed;
  }
  return text;
}

std::string lines_of(const std::vector<MissingNumber>& missing) {
  if (missing.size() == 1) {
    return (missing.front().of_device ? "its device block: " : "its top level: ") + missing.front().line;
  }
  std::string text;
  for (const bool of_device : {true, false}) {
    std::string lines;
    for (const MissingNumber& number : missing) {
      if (number.of_device == of_device) lines += "\n    " + number.line;
    }
    if (lines.empty()) continue;
    text +=
        (text.empty() ? "" : "\n  and to ") + std::string(of_device ? "its device block:" : "its top level:") + lines;
  }
  return text;
}

}  // namespace plumb
