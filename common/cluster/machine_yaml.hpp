// Reads a machine from YAML: every number with its unit and where it comes from.
#pragma once

#include <string>
#include <vector>

#include "common/base/document/field.hpp"
#include "common/base/document/yaml.hpp"
#include "common/cluster/machine.hpp"

namespace plumb {

// All machines that plumb knows by name, with and without a description of theirs.
[[nodiscard]] const std::vector<std::string>& machine_names();

// Tables of a machine's fields, and of what a fit may change.
[[nodiscard]] const FieldBlock& machine_block();
[[nodiscard]] const FieldBlock& fit_block();
[[nodiscard]] const FieldBlock& free_numbers_block();

// A block with `name, devices, cores, device, inside, outside`. A number stands as `{value: 2039 GB/s, source:
// datasheet}`; `peak` has one per precision, of which the training's is taken. `cores: usable` means the cores of this
// process. `fit` is for who refits the machine (machine_fit.hpp). Throws InputError with file, line and column for
// a missing unit, source, or precision.
//
// CPU machines may leave out attention_efficiency, collective_bandwidth and collective_latency: those of matmuls and of
// the links inside stand in. Other machines have no stand-ins; what they leave out stays zero without a source, and a
// scenario that needs it is refused (common/block_cost/missing_numbers.hpp).
[[nodiscard]] Machine read_machine(const YamlValue& block, ElementType precision);

}  // namespace plumb
