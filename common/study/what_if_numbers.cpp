#include "common/study/what_if_numbers.hpp"

#include <algorithm>
#include <string>

namespace plumb {
namespace {

double read_number(const YamlValue& value, NumberUnit unit) {
  switch (unit) {
    case NumberUnit::seconds:
      return value.seconds().value;
    case NumberUnit::bytes_per_second:
      return value.bytes_per_second().value;
    case NumberUnit::flops_per_second:
      return value.flops_per_second().value;
    default:
      return value.number();
  }
}

void read_numbers(const YamlValue& value, const std::string& prefix, MachineChanges& changes) {
  const auto& all = machine_numbers();
  for (const YamlEntry& entry : value.entries()) {
    const std::string name = prefix + entry.key.text();
    if (entry.value.is_map()) {
      read_numbers(entry.value, name + ".", changes);
      continue;
    }
    const auto number = std::ranges::find(all, name, &MachineNumber::name);
    changes.emplace_back(&*number, read_number(entry.value, number->unit));
  }
}

}  // namespace

void read_machine_changes(const YamlValue& value, MachineChanges& changes) { read_numbers(value, "", changes); }

void apply_changes(const MachineChanges& changes, Machine& machine) {
  for (const auto& [number, value] : changes) set_with_stand_ins(machine, *number, value);
  for (const auto& [number, value] : changes) number->set(machine, value);
}

}  // namespace plumb
