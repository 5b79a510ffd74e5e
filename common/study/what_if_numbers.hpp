// Numbers of a machine that a variant of a plan changes.
#pragma once

#include <utility>
#include <vector>

#include "common/base/document/yaml.hpp"
#include "common/cluster/machine_numbers.hpp"

namespace plumb {

using MachineChanges = std::vector<std::pair<const MachineNumber*, double>>;

// Adds a block's numbers, by the names of a machine's file; `inside` and `outside` have a block each. Throws InputError
// for other names, units and values out of range.
void read_machine_changes(const YamlValue& value, MachineChanges& changes);

// What a number stands in for goes with it, unless it is changed itself.
void apply_changes(const MachineChanges& changes, Machine& machine);

}  // namespace plumb
