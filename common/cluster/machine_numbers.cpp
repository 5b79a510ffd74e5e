#include "common/cluster/machine_numbers.hpp"

#include <algorithm>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr std::string_view peak = "peak";

double& raw(double& value) { return value; }
template <class Unit>
double& raw(Quantity<Unit, double>& quantity) {
  return quantity.value;
}

// `Of` is a lambda without captures that gives the number of a machine, with where it comes from.
template <class Of>
MachineNumber number(std::string_view name, NumberUnit unit, bool more_is_faster, Of) {
  return {.name = std::string(name),
          .unit = unit,
          .more_is_faster = more_is_faster,
          .value =
              [](const Machine& machine) {
                auto number = Of{}(machine);
                return raw(number.value);
              },
          .uncertainty = [](const Machine& machine) { return Of{}(machine).uncertainty; },
          .source = [](const Machine& machine) { return Of{}(machine).source; },
          .set = [](Machine& machine, double value) { raw(Of{}(machine).value) = value; }};
}

// Where the file of a CPU machine leaves the second one out, the reader puts the first in its place.
bool stands_in(const Machine& machine, const std::string& first, const std::string& second) {
  if (machine.device.type != DeviceType::cpu) return false;
  if (second == "attention_efficiency") {
    return first == "matmul_efficiency" && machine.device.matmul_efficiency == machine.device.attention_efficiency;
  }
  if (second == "collective_bandwidth") {
    return first == "inside.bandwidth" && machine.inside.bandwidth == machine.collective_bandwidth;
  }
  return second == "collective_latency" && first == "inside.latency" &&
         machine.inside.latency == machine.collective_latency;
}

bool is_own(const Machine& machine, const MachineNumber& number) {
  const auto& all = machine_numbers();
  return std::ranges::none_of(all,
                              [&](const MachineNumber& other) { return stands_in(machine, other.name, number.name); });
}

const MachineNumber& number_named(std::string_view name) {
  const auto& all = machine_numbers();
  const auto found = std::ranges::find(all, name, &MachineNumber::name);
  if (found != all.end() && name != peak) return *found;
  throw InputError("machine", "has no number '" + std::string(name) + "'", did_you_mean(name, machine_number_names()));
}

}  // namespace

const std::vector<MachineNumber>& machine_numbers() {
  using enum NumberUnit;
  static const std::vector<MachineNumber> numbers = {
      number(
          std::string(peak), flops_per_second, true, [](auto& m) -> auto& { return m.device.peak; }),
      number(
          "matmul_efficiency", fraction, true, [](auto& m) -> auto& { return m.device.matmul_efficiency; }),
      number(
          "matmul_depth", plain, false, [](auto& m) -> auto& { return m.device.matmul_depth; }),
      number(
          "memory_bandwidth", bytes_per_second, true, [](auto& m) -> auto& { return m.device.memory_bandwidth; }),
      number(
          "memory_efficiency", fraction, true, [](auto& m) -> auto& { return m.device.memory_efficiency; }),
      number(
          "attention_efficiency", fraction, true, [](auto& m) -> auto& { return m.device.attention_efficiency; }),
      number(
          "kernel_gap", seconds, false, [](auto& m) -> auto& { return m.device.kernel_gap; }),
      number(
          "launch_time", seconds, false, [](auto& m) -> auto& { return m.device.launch_time; }),
      number(
          "message_multiprocessors", plain, false, [](auto& m) -> auto& { return m.device.message_multiprocessors; }),
      number(
          "inside.latency", seconds, false, [](auto& m) -> auto& { return m.inside.latency; }),
      number(
          "inside.bandwidth", bytes_per_second, true, [](auto& m) -> auto& { return m.inside.bandwidth; }),
      number(
          "outside.latency", seconds, false, [](auto& m) -> auto& { return m.outside.latency; }),
      number(
          "outside.bandwidth", bytes_per_second, true, [](auto& m) -> auto& { return m.outside.bandwidth; }),
      number(
          "uplink", bytes_per_second, true, [](auto& m) -> auto& { return m.uplink; }),
      number(
          "collective_bandwidth", bytes_per_second, true, [](auto& m) -> auto& { return m.collective_bandwidth; }),
      number(
          "collective_latency", seconds, false, [](auto& m) -> auto& { return m.collective_latency; }),
      number(
          "collective_latency_per_rank", seconds, false,
          [](auto& m) -> auto& { return m.collective_latency_per_rank; }),
      number(
          "switch_bandwidth", bytes_per_second, true, [](auto& m) -> auto& { return m.switch_bandwidth; }),
      number(
          "host.link.latency", seconds, false, [](auto& m) -> auto& { return m.host.link.latency; }),
      number(
          "host.link.bandwidth", bytes_per_second, true, [](auto& m) -> auto& { return m.host.link.bandwidth; }),
      number(
          "host.memory_bandwidth", bytes_per_second, true, [](auto& m) -> auto& { return m.host.memory_bandwidth; })};
  return numbers;
}

bool is_of_host(std::string_view name) { return name.starts_with("host."); }

std::vector<MachineNumber> numbers_of(const Machine& machine, bool offloads) {
  std::vector<MachineNumber> own;
  for (const MachineNumber& number : machine_numbers()) {
    if (!offloads && is_of_host(number.name)) continue;
    if (number.value(machine) != 0 && is_own(machine, number)) own.push_back(number);
  }
  return own;
}

Machine with_factor(Machine machine, const MachineNumber& number, double factor) {
  const double value = number.value(machine) * factor;
  set_with_stand_ins(machine, number, number.unit == NumberUnit::fraction ? std::min(value, 1.0) : value);
  return machine;
}

const std::vector<std::string>& machine_number_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const MachineNumber& number : machine_numbers()) {
      if (number.name != peak) result.push_back(number.name);
    }
    return result;
  }();
  return names;
}

double machine_number(const Machine& machine, std::string_view name) { return number_named(name).value(machine); }

void set_with_stand_ins(Machine& machine, const MachineNumber& number, double value) {
  const Machine before = machine;
  number.set(machine, value);
  for (const MachineNumber& other : machine_numbers()) {
    if (stands_in(before, number.name, other.name)) other.set(machine, value);
  }
}

void set_machine_number(Machine& machine, std::string_view name, double value) {
  set_with_stand_ins(machine, number_named(name), value);
}

NumberRange range_of(NumberUnit unit) {
  switch (unit) {
    case NumberUnit::fraction:
      return fraction_range;
    case NumberUnit::plain:
      return plain_range;
    case NumberUnit::seconds:
      return {0, longest_time.value};
    case NumberUnit::bytes_per_second:
      return {slowest_bandwidth.value, fastest_bandwidth.value};
    case NumberUnit::flops_per_second:
      return {slowest_peak.value, fastest_peak.value};
  }
  return {};
}

NumberRange machine_number_range(std::string_view name) { return range_of(number_named(name).unit); }

}  // namespace plumb
