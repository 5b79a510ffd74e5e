// Frameworks that run plans, for `for:` of a scenario.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/capability/capability.hpp"

namespace plumb {

enum class Framework : std::uint8_t { megatron, torchtitan, plumb_exec };
// By the value of the enumeration, as in scenarios: "megatron".
[[nodiscard]] const std::vector<std::string>& framework_names();
[[nodiscard]] const std::string& name_of(Framework framework);

// The column of the table: of plumb-exec that of the machine's devices.
[[nodiscard]] Purpose purpose_of(Framework framework, bool on_gpus);

}  // namespace plumb
