#include "common/cluster/machine_numbers.hpp"

#include <algorithm>

namespace plumb {
namespace {

double& raw(double& value) { return value; }
template <class Unit>
double& raw(Quantity<Unit, double>& quantity) {
  return quantity.value;
}

// `Of` gives the number of a machine, with where it comes from.
template <auto Of>
MachineNumber number(std::string name, NumberUnit unit, bool more_is_faster) {
  return {.name = std::move(name),
          .unit = unit,
          .more_is_faster = more_is_faster,
          .value =
              [](const Machine& machine) {
                auto number = Of(machine);
                return raw(number.value);
              },
          .uncertainty = [](const Machine& machine) { return Of(machine).uncertainty; },
          .source = [](const Machine& machine) { return Of(machine).source; },
          .set = [](Machine& machine, double value) { raw(Of(machine).value) = value; }};
}

// Where a machine's file leaves the second one out, the reader puts the first in its place.
bool stands_in(const Machine& machine, const std::string& first, const std::string& second) {
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

void multiply(Machine& machine, const MachineNumber& number, double factor) {
  const double value = number.value(machine) * factor;
  number.set(machine, number.unit == NumberUnit::fraction ? std::min(value, 1.0) : value);
}

}  // namespace

const std::vector<MachineNumber>& machine_numbers() {
  using enum NumberUnit;
  static const std::vector<MachineNumber> numbers = {number < [](auto& m) -> auto& {return m.device.peak;
}
> ("peak", flops_per_second, true), number < [](auto& m) -> auto& { return m.device.matmul_efficiency; }
> ("matmul_efficiency", fraction, true), number < [](auto& m) -> auto& { return m.device.matmul_depth; }
> ("matmul_depth", plain, false), number < [](auto& m) -> auto& { return m.device.memory_bandwidth; }
> ("memory_bandwidth", bytes_per_second, true), number < [](auto& m) -> auto& { return m.device.memory_efficiency; }
> ("memory_efficiency", fraction, true), number < [](auto& m) -> auto& { return m.device.attention_efficiency; }
> ("attention_efficiency", fraction, true), number < [](auto& m) -> auto& { return m.device.kernel_gap; }
> ("kernel_gap", seconds, false), number < [](auto& m) -> auto& { return m.device.launch_time; }
> ("launch_time", seconds, false), number < [](auto& m) -> auto& { return m.device.message_multiprocessors; }
> ("message_multiprocessors", plain, false), number < [](auto& m) -> auto& { return m.inside.latency; }
> ("inside.latency", seconds, false), number < [](auto& m) -> auto& { return m.inside.bandwidth; }
> ("inside.bandwidth", bytes_per_second, true), number < [](auto& m) -> auto& { return m.outside.latency; }
> ("outside.latency", seconds, false), number < [](auto& m) -> auto& { return m.outside.bandwidth; }
> ("outside.bandwidth", bytes_per_second, true), number < [](auto& m) -> auto& { return m.uplink; }
> ("uplink", bytes_per_second, true), number < [](auto& m) -> auto& { return m.collective_bandwidth; }
> ("collective_bandwidth", bytes_per_second, true), number < [](auto& m) -> auto& { return m.collective_latency; }
> ("collective_latency", seconds, false), number < [](auto& m) -> auto& { return m.collective_latency_per_rank; }
> ("collective_latency_per_rank", seconds, false)
};  // namespace plumb
return numbers;
}

std::vector<MachineNumber> numbers_of(const Machine& machine) {
  std::vector<MachineNumber> own;
  for (const MachineNumber& number : machine_numbers()) {
    if (number.value(machine) != 0 && is_own(machine, number)) own.push_back(number);
  }
  return own;
}

Machine with_factor(Machine machine, const MachineNumber& number, double factor) {
  const Machine before = machine;
  multiply(machine, number, factor);
  for (const MachineNumber& other : machine_numbers()) {
    if (stands_in(before, number.name, other.name)) multiply(machine, other, factor);
  }
  return machine;
}

}  // namespace plumb
