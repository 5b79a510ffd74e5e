// Files that users give in the place of a scenario, a plan or a model.
#pragma once

#include <string>
#include <vector>

namespace plumb {

// Tells a machine's and a software's file by the keys at its top.
[[nodiscard]] bool is_machine(const std::vector<std::string>& keys);
[[nodiscard]] bool is_software(const std::vector<std::string>& keys);

// Throws InputError (where = `path`) that says in one sentence what it is, where a file with these top-level keys is a
// timeline or a machine.
void refuse_other_files(const std::vector<std::string>& keys, const std::string& path);

}  // namespace plumb
