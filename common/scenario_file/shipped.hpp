// Finds the files that scenarios name: beside the scenario, then among those that plumb ships.
#pragma once

#include <filesystem>
#include <vector>

#include "common/base/document/yaml.hpp"

namespace plumb {

// $PLUMB_SCENARIOS if it is set; else the one that is installed with the running program and the source tree's,
// those that exist.
[[nodiscard]] std::vector<std::filesystem::path> shipped_scenarios();

// The file that `value` names. Throws InputError at its place, saying where was looked and the nearest name there.
[[nodiscard]] std::filesystem::path find_file(const YamlValue& value);

// The same for a text that is not `value`'s own; nullopt when there is no such file.
[[nodiscard]] std::optional<std::filesystem::path> find_file(const std::string& name, const YamlValue& value);

// For a name of something that ships whose file is not there: throws InputError that says where it was looked for.
[[noreturn]] void fail_of_missing_file(const YamlValue& value);

// The shipped file of a machine by its name; nullopt where there is none.
[[nodiscard]] std::optional<std::filesystem::path> shipped_machine(const std::string& name);

// A machine's file: itself, or the shipped one of that name ("dgx-a100"). Throws InputError for what is neither.
[[nodiscard]] std::filesystem::path machine_file(const std::string& name);

// What stands at `value` itself, or in the file that it names: the block alone or under `key`.
[[nodiscard]] YamlValue block_or_file(const YamlValue& value, const std::string& key);

}  // namespace plumb
