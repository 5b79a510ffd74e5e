// The fields of a Hugging Face config.json, each marked once it has been read; what stays unread is judged at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/document/yaml.hpp"

namespace plumb {

using Names = std::vector<std::string>;

class ConfigFields {
 public:
  explicit ConfigFields(YamlValue file) : file_(std::move(file)) {}

  // The first of `names` that is there; all of them count as read. null counts as absent.
  [[nodiscard]] std::optional<YamlValue> find(const Names& names);
  [[nodiscard]] YamlValue require(const Names& names);
  [[nodiscard]] std::int64_t integer(const Names& names, std::int64_t most);  // at least 1
  [[nodiscard]] std::optional<std::int64_t> optional_integer(const Names& names, std::int64_t least, std::int64_t most);
  [[nodiscard]] bool flag(const Names& names, bool fallback);
  // Throws when the flag is there and set: it would change shapes in a way that is not described.
  void refuse_if_set(const std::string& name, const std::string& why);

  // Throws InputError for the first field, in the order of the file, that was not read and may change shapes.
  void check_all_read() const;

  [[noreturn]] void fail(const std::string& problem, const std::string& hint = "") const { file_.fail(problem, hint); }
  [[nodiscard]] const Place& place() const { return file_.place(); }

 private:
  YamlValue file_;
  std::set<std::string> read_;
};

}  // namespace plumb
