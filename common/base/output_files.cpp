#include "common/base/output_files.hpp"

#include "common/base/error.hpp"
#include "common/base/files.hpp"

namespace plumb {

void OutputFiles::add(const std::string& option, const std::filesystem::path& file) {
  require_writable(file, inputs_);
  const auto [known, is_new] =
      options_.emplace(std::filesystem::weakly_canonical(std::filesystem::absolute(file)), option);
  if (is_new) return;
  throw InputError(file.string(), "is written twice: " + known->second + " and " + option + " name it", "name another");
}

}  // namespace plumb
