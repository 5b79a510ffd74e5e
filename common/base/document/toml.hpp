// TOML where YAML belongs is told what it is: torchtitan's configurations look alike and are not.
#pragma once

#include <string>
#include <string_view>

namespace plumb {

// Throws InputError if the first line that says something is a table's head ("[training]") or a key with its value
// ("sequence = 4096"): YAML of keys and values has neither.
void require_no_toml(std::string_view text, const std::string& file);

}  // namespace plumb
