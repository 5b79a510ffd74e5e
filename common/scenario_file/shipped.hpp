// Finds the files that scenarios name: beside the scenario, then among those that plumb ships.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/document/yaml.hpp"

namespace plumb {

// $PLUMB_SCENARIOS if it is set; else the one that is installed with the running program and the source tree's,
// those that exist.
[[nodiscard]] std::vector<std::filesystem::path> shipped_scenarios();

// The file that `value` names; at the key `model` also the name of a model that ships. Throws InputError at its place,
// saying where was looked and the nearest name there.
[[nodiscard]] std::filesystem::path find_file(const YamlValue& value);

// The same for a text that is not `value`'s own; nullopt when there is no such file.
[[nodiscard]] std::optional<std::filesystem::path> find_file(const std::string& name, const YamlValue& value);

// For a name of something that ships whose file is not there: throws InputError that says where it was looked for.
[[noreturn]] void fail_of_missing_file(const YamlValue& value);

// Files that plumb ships, in the order of `plumb list`.
enum class ShippedKind : std::uint8_t { scenario, model, machine, software };
inline constexpr std::array<ShippedKind, 4> shipped_kinds = {ShippedKind::scenario, ShippedKind::model,
                                                             ShippedKind::machine, ShippedKind::software};
[[nodiscard]] std::string_view name_of(ShippedKind kind);  // "scenario"

struct ShippedFile {
  std::string name = {};  // "deepseek-v3", "roadmap/1-ddp"
  std::filesystem::path file = {};
};

// Ordered by name.
[[nodiscard]] std::vector<ShippedFile> shipped_files(ShippedKind kind);

// Returns the comment on top of a file, on one line; empty if there is none.
[[nodiscard]] std::string comment_on_top(const std::filesystem::path& file);
[[nodiscard]] std::string first_sentence(const std::string& text);

// Returns the file that a command's argument means: an existing file, "-" (standard input), or the shipped file of that
// name and one of these kinds. A file counts before a shipped name, and a note says so. Throws InputError with the
// nearest name, or with what the name is if it is of another kind.
[[nodiscard]] std::string input_file(const std::string& argument, const std::vector<ShippedKind>& kinds);

// The shipped file of a machine by its name; nullopt where there is none.
[[nodiscard]] std::optional<std::filesystem::path> shipped_machine(const std::string& name);

// Returns the block at `value`, or in the file that it names: the block alone or under `key`.
[[nodiscard]] YamlValue block_or_file(const YamlValue& value, const std::string& key);

}  // namespace plumb
