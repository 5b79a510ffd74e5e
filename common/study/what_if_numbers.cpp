#include "common/study/what_if_numbers.hpp"

#include <algorithm>
#include <string>

namespace plumb {
namespace {

double read_number(const YamlValue& value, NumberUnit unit) {
  switch (unit) {
    case NumberUnit::fraction:
      return value.number(fraction_range.least, fraction_range.most);
    case NumberUnit::seconds:
      return value.seconds().value;
    case NumberUnit::bytes_per_second:
      return value.bytes_per_second().value;
    case NumberUnit::flops_per_second:
      return value.flops_per_second().value;
    default:
      return value.number(plain_range.least, plain_range.most);
  }
}

void read_numbers(const YamlValue& value, const std::string& prefix, MachineChanges& changes) {
  const auto& all = machine_numbers();
  std::vector<std::string> names;
  for (const MachineNumber& number : all) {
    if (!number.name.starts_with(prefix)) continue;
    const std::string name = number.name.substr(prefix.size());
    const std::string first = name.substr(0, name.find('.'));
    if (std::ranges::find(names, first) == names.end()) names.push_back(first);
  }
  value.check_keys(names);
  for (const std::string& key : value.keys()) {
    const YamlValue given = value.require(key);
    if (prefix.empty() && (key == "inside" || key == "outside")) {
      read_numbers(given, key + ".", changes);
      continue;
    }
    const auto number = std::ranges::find(all, prefix + key, &MachineNumber::name);
    changes.emplace_back(&*number, read_number(given, number->unit));
  }
}

}  // namespace

void read_machine_changes(const YamlValue& value, MachineChanges& changes) { read_numbers(value, "", changes); }

void apply_changes(const MachineChanges& changes, Machine& machine) {
  for (const auto& [number, value] : changes) set_with_stand_ins(machine, *number, value);
  for (const auto& [number, value] : changes) number->set(machine, value);
}

}  // namespace plumb
