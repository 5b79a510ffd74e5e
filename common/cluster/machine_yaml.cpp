#include "common/cluster/machine_yaml.hpp"

#include <string>
#include <vector>

#include "common/cluster/machine_ranges.hpp"

namespace plumb {
namespace {

// Of a number that the file states and says nothing else about, or that is a guess.
constexpr double uncertainty_of_guesses = 0.2;

bool is_guess(const std::string& source) {
  return source.starts_with("assum") || source.starts_with("guess") || source.starts_with("estimat");
}

// {value: …, uncertainty: …, source: …}, or the value alone; `read` takes the checked value with its unit.
template <class Read>
auto sourced(const YamlValue& block, std::string_view key, Read read) {
  const YamlValue number = block.require(key);
  if (number.is_scalar()) {
    return Sourced<decltype(read(number))>{
        .value = read(number), .source = "stated in this file", .uncertainty = uncertainty_of_guesses};
  }
  const std::string source = number.require("source").text();
  const std::optional<YamlValue> uncertainty = number.find("uncertainty");
  return Sourced<decltype(read(number))>{.value = read(number.require("value")),
                                         .source = source,
                                         .uncertainty = uncertainty        ? uncertainty->fraction()
                                                        : is_guess(source) ? uncertainty_of_guesses
                                                                           : 0};
}

constexpr auto as_bytes = [](const YamlValue& value) { return value.bytes(); };
constexpr auto as_bytes_or_none = [](const YamlValue& value) { return value.bytes_or_none(); };
constexpr auto as_seconds = [](const YamlValue& value) { return value.seconds(); };
constexpr auto as_bytes_per_second = [](const YamlValue& value) { return value.bytes_per_second(); };
constexpr auto as_flops_per_second = [](const YamlValue& value) { return value.flops_per_second(); };
constexpr auto as_number = [](const YamlValue& value) { return value.number(); };

Link read_link(const YamlValue& block) {
  return {.latency = sourced(block, "latency", as_seconds),
          .bandwidth = sourced(block, "bandwidth", as_bytes_per_second)};
}

Sourced<FlopsPerSecond> read_peak(const YamlValue& peaks, ElementType precision) {
  const std::string name(name_of(precision));
  if (!peaks.find(name)) {
    peaks.fail(peaks.path() + ": has no peak for " + name + ", the precision of the training",
               "add " + name + ": {value: … TFLOP/s, source: …}");
  }
  return sourced(peaks, name, as_flops_per_second);
}

// A number that a CPU machine does without, and that others need for some scenarios alone.
template <class Read, class Value>
void read_optional(const YamlValue& block, std::string_view key, Read read, Sourced<Value>& into) {
  if (block.find(key)) into = sourced(block, key, read);
}

DeviceProfile read_device(const YamlValue& block, ElementType precision) {
  DeviceProfile device = {.name = block.require("name").text(),
                          .type = static_cast<DeviceType>(block.require("type").choice({"cpu", "cuda"})),
                          .peak = read_peak(block.require("peak"), precision),
                          .matmul_efficiency = sourced(block, "matmul_efficiency", as_number),
                          .memory_bandwidth = sourced(block, "memory_bandwidth", as_bytes_per_second),
                          .memory_efficiency = sourced(block, "memory_efficiency", as_number),
                          .memory = sourced(block, "memory", as_bytes)};
  if (const auto count = block.find("multiprocessors")) {
    device.multiprocessors = count->small_integer();
  }
  if (device.type == DeviceType::cpu) device.attention_efficiency = device.matmul_efficiency;
  read_optional(block, "attention_efficiency", as_number, device.attention_efficiency);
  read_optional(block, "matmul_depth", as_number, device.matmul_depth);
  read_optional(block, "message_multiprocessors", as_number, device.message_multiprocessors);
  if (!leaves_multiprocessors(device)) {
    block.require("message_multiprocessors")
        .fail(block.path() + ".message_multiprocessors: expected less than the device's " +
              std::to_string(device.multiprocessors) + " multiprocessors");
  }
  read_optional(block, "kernel_gap", as_seconds, device.kernel_gap);
  read_optional(block, "launch_time", as_seconds, device.launch_time);
  read_optional(block, "framework_memory", as_bytes_or_none, device.framework_memory);
  device.memory.value = device.memory.value - device.framework_memory.value;
  if (device.memory.value <= Bytes{}) {
    block.require("framework_memory").fail(block.path() + ".framework_memory: leaves nothing of the device's memory");
  }
  return device;
}

HostProfile read_host(const YamlValue& block) {
  return {.link = read_link(block.require("link")),
          .memory = sourced(block, "memory", as_bytes),
          .memory_bandwidth = sourced(block, "memory_bandwidth", as_bytes_per_second)};
}

// What neighbouring devices share.
void read_tree(const YamlValue& block, Machine& machine) {
  const auto shared_evenly = [&](const YamlValue& count, int parts) {
    if (!shares_evenly(machine, parts)) {
      count.fail(count.path() + ": " + std::to_string(parts) + " does not divide the " +
                 std::to_string(machine.devices) + " devices");
    }
    return parts;
  };
  if (const auto host = block.find("host")) {
    machine.host = read_host(*host);
    if (const auto shared = host->find("devices_per_link")) {
      machine.host.devices_per_link = shared_evenly(*shared, shared->small_integer());
    }
  }
  if (const auto nics = block.find("nics")) {
    machine.nics = shared_evenly(*nics, nics->small_integer());
  }
  const std::optional<YamlValue> devices = block.find("devices_per_switch");
  if (devices) {
    machine.devices_per_switch = shared_evenly(*devices, devices->small_integer());
    machine.uplink = sourced(block, "uplink", as_bytes_per_second);
  } else if (const auto uplink = block.find("uplink")) {
    uplink->fail(uplink->path() + ": of which switches?", "devices_per_switch: …");
  }
}

}  // namespace

const std::vector<std::string>& machine_names() {
  static const std::vector<std::string> names = {"local-cpu",     "dgx-1-v100",  "dgx-2-v100",   "dgx-a100",
                                                 "dgx-a100-4nic", "dgx-h100",    "dgx-h200",     "hgx-h800",
                                                 "dgx-b200",      "gb200-nvl72", "pcie-rtx3090", "pcie-rtx4090"};
  return names;
}

Machine read_machine(const YamlValue& block, ElementType precision) {
  check_fields(machine_block(), block);
  Machine machine{.name = block.require("name").text(),
                  .device = read_device(block.require("device"), precision),
                  .inside = read_link(block.require("inside")),
                  .outside = read_link(block.require("outside"))};
  if (machine.device.type == DeviceType::cpu) {
    machine.collective_bandwidth = machine.inside.bandwidth;
    machine.collective_latency = machine.inside.latency;
  }
  read_optional(block, "collective_bandwidth", as_bytes_per_second, machine.collective_bandwidth);
  read_optional(block, "collective_latency", as_seconds, machine.collective_latency);
  read_optional(block, "collective_latency_per_rank", as_seconds, machine.collective_latency_per_rank);
  read_optional(block, "switch_bandwidth", as_bytes_per_second, machine.switch_bandwidth);
  const std::optional<YamlValue> cores = block.find("cores");
  const bool this_process = cores && cores->is_text() && cores->text() == "usable";
  if (cores) machine.cores = this_process ? usable_cores() : cores->small_integer();
  const std::optional<YamlValue> devices = block.find("devices");
  machine.devices = devices ? devices->small_integer() : machine.cores;
  read_tree(block, machine);
  return machine;
}

}  // namespace plumb
