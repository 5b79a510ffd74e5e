#include "common/plan/scenario_numbers.hpp"

#include <algorithm>

#include "common/plan/block_costs.hpp"

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
    const auto is_core = [](const Kernel& kernel) { return kernel.kind == KernelKind::core; };
    if (std::ranges::any_of(kernels_of_block(at, block), is_core)) return true;
  }
  return false;
}

std::string line_of(const std::string& key, const std::string& value, const std::string& source) {
  return key + ": {value: " + value + ", uncertainty: 20%, source: \"" + source + "\"}";
}

std::optional<MissingNumber> missing_of_device(const Scenario& scenario) {
  const DeviceProfile& device = scenario.cluster.machine.device;
  const auto missing = [](const char* key, const char* needed, const char* value, const char* source) {
    return MissingNumber{.key = key, .of_device = true, .needed = needed, .line = line_of(key, value, source)};
  };
  if (device.multiprocessors == 0) {
    return MissingNumber{.key = "multiprocessors",
                         .of_device = true,
                         .needed = "for the waves of matmuls on a cuda device",
                         .line = "multiprocessors: … (of the datasheet: 108 on an A100)"};
  }
  if (is_missing(device.matmul_depth)) {
    return missing("matmul_depth", "for matmuls on a cuda device", "…", "fitted: single matmuls of many depths");
  }
  if (is_missing(device.attention_efficiency) && runs_cores(scenario)) {
    return missing("attention_efficiency", "for fused attention or recurrences", "0.…",
                   "measured: of the peak, by the attention kernel alone");
  }
  if (is_missing(device.kernel_gap)) {
    return missing("kernel_gap", "between the kernels of a cuda device", "… us", "measured: a trace of one layer");
  }
  if (is_missing(device.launch_time)) {
    return missing("launch_time", "for the kernels of a cuda device", "… us", "measured: the host, for one kernel");
  }
  const auto has_pipeline = [](const Layout& layout) { return layout.pipeline > 1; };
  if (is_missing(device.message_multiprocessors) && std::ranges::any_of(layouts_of(scenario), has_pipeline)) {
    return missing("message_multiprocessors", "for a pipeline's messages beside matmuls", "…",
                   "measured: matmuls with and without messages beside them");
  }
  return std::nullopt;
}

}  // namespace

std::optional<MissingNumber> missing_number(const Scenario& scenario) {
  const Machine& machine = scenario.cluster.machine;
  if (machine.device.type == DeviceType::cpu) return std::nullopt;
  if (!scenario.profile) {
    if (auto missing = missing_of_device(scenario)) return missing;
  }
  const auto has_groups = [](const Layout& layout) { return layout.tensor.degree * layout.data.degree > 1; };
  if (std::ranges::none_of(layouts_of(scenario), has_groups)) return std::nullopt;
  const auto missing = [](const char* key, const char* value, const char* source) {
    return MissingNumber{
        .key = key, .needed = "for collectives of tensor- or data-parallel ranks", .line = line_of(key, value, source)};
  };
  if (is_missing(machine.collective_bandwidth)) {
    return missing("collective_bandwidth", "… GB/s", "measured: bus bandwidth of nccl-tests, all devices of a machine");
  }
  if (is_missing(machine.collective_latency)) {
    return missing("collective_latency", "… us", "measured: nccl-tests, 8 bytes, the part that ranks do not change");
  }
  if (is_missing(machine.collective_latency_per_rank)) {
    return missing("collective_latency_per_rank", "… us", "measured: nccl-tests, 8 bytes, for each rank more");
  }
  return std::nullopt;
}

}  // namespace plumb
