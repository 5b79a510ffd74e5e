// Files that users give in the place of a scenario, a plan or a model.
#pragma once

#include <string>
#include <vector>

namespace plumb {

// Throws InputError (where = `path`) that says in one sentence what it is, where a file with these top-level keys is a
// timeline or a machine.
void refuse_other_files(const std::vector<std::string>& keys, const std::string& path);

}  // namespace plumb
