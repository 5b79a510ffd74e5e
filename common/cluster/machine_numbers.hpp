// A machine's numbers by name, to change, draw or vary them one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/machine.hpp"

namespace plumb {

enum class NumberUnit : std::uint8_t { fraction, plain, seconds, bytes_per_second, flops_per_second };

// What a machine's file may say; times and rates of links have theirs in common/base/units.hpp.
struct NumberRange {
  double least = 0;
  double most = 0;
};
inline constexpr NumberRange fraction_range{1e-6, 1};
inline constexpr NumberRange plain_range{0, 1e6};
[[nodiscard]] NumberRange range_of(NumberUnit unit);  // in the unit's base

// Of times and rates alone: memory and counts of parts are none of these.
struct MachineNumber {
  std::string name = {};  // "matmul_efficiency", "outside.bandwidth": as in a machine's file, without `device`
  NumberUnit unit = NumberUnit::plain;
  bool more_is_faster = true;
  double (*value)(const Machine&) = nullptr;  // in the unit's base: fraction, seconds, bytes/s, FLOP/s
  double (*uncertainty)(const Machine&) = nullptr;
  std::string (*source)(const Machine&) = nullptr;
  void (*set)(Machine&, double) = nullptr;
};

// All of them, in the order of a machine's file.
[[nodiscard]] const std::vector<MachineNumber>& machine_numbers();

// Those that this machine has and that are its own: not zero, and not another one's that stands in for them where the
// file of a CPU machine leaves them out (attention_efficiency, collective_bandwidth, collective_latency). Those of its
// host only where something is offloaded to it.
[[nodiscard]] std::vector<MachineNumber> numbers_of(const Machine& machine, bool offloads = false);
[[nodiscard]] bool is_of_host(std::string_view name);

// The machine with this number times `factor`, fractions at most 1; what it stands in for goes with it.
[[nodiscard]] Machine with_factor(Machine machine, const MachineNumber& number, double factor);

// The same with a value in the number's unit.
void set_with_stand_ins(Machine& machine, const MachineNumber& number, double value);

// "matmul_efficiency", "outside.bandwidth", …: what a fit refits. All but the peak, of which a machine has one per
// precision.
[[nodiscard]] const std::vector<std::string>& machine_number_names();

// Of one of these, in the unit's base; what it stands in for is set with it. Throws InputError for an unknown name.
[[nodiscard]] double machine_number(const Machine& machine, std::string_view name);
void set_machine_number(Machine& machine, std::string_view name, double value);
[[nodiscard]] NumberRange machine_number_range(std::string_view name);  // that a machine's file takes

}  // namespace plumb
