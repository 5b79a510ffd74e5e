// What a command will write, looked at before it works.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace plumb {

// Held against the files that are read, and against each other.
class OutputFiles {
 public:
  // Empty names among `inputs` are none.
  explicit OutputFiles(std::vector<std::string> inputs) : inputs_(std::move(inputs)) {}

  // `option` is what names the file. Throws InputError as require_writable (common/base/files.hpp), and where an option
  // before this one names the same file.
  void add(const std::string& option, const std::filesystem::path& file);

 private:
  std::vector<std::string> inputs_;
  std::map<std::filesystem::path, std::string> options_;  // by the file's whole path, behind links
};

}  // namespace plumb
