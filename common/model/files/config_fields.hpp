// Fields of a Hugging Face config.json; marks each that is read, and judges the unread ones at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/document/yaml.hpp"

namespace plumb {

using Names = std::vector<std::string>;

class ConfigFields {
 public:
  explicit ConfigFields(YamlValue file) : file_(std::move(file)) {}

  // Returns the first of `names` that is there, and marks all of them as read. null counts as absent.
  [[nodiscard]] std::optional<YamlValue> find(const Names& names);
  [[nodiscard]] YamlValue require(const Names& names);
  [[nodiscard]] std::int64_t integer(const Names& names, std::int64_t most);  // at least 1
  [[nodiscard]] std::optional<std::int64_t> optional_integer(const Names& names, std::int64_t least, std::int64_t most);
  [[nodiscard]] bool flag(const Names& names, bool fallback);
  [[nodiscard]] bool is_null(const Names& names) const;  // one of them is there, as null
  // Records `why` as a lack if the flag is there and set.
  void refuse_if_set(const std::string& name, const std::string& why);

  // Records a feature that plumb lacks, and the field that asks for it. Reading goes on; `check` reports all at once,
  // with `hint` if there is no other lack.
  void lack(const std::string& feature, const std::string& field = "", const std::string& hint = "");
  // Throws InputError with all lacks if there are any.
  void check_lacks(const std::string& family) const;
  // Throws one InputError that names every lack and every unread field that may change shapes.
  void check(const std::string& family) const;
  // Fields that were not read and may change shapes, in the order of the file.
  [[nodiscard]] Names unread() const;
  // All lacks on one line, each with its fields; empty if there is none.
  [[nodiscard]] std::string lacks_text() const;
  [[nodiscard]] bool has_lacks() const { return !lacks_.empty(); }

  [[noreturn]] void fail(const std::string& problem, const std::string& hint = "") const { file_.fail(problem, hint); }
  [[nodiscard]] const Place& place() const { return file_.place(); }

 private:
  YamlValue file_;
  std::set<std::string> read_;
  std::vector<std::pair<std::string, Names>> lacks_;  // feature and its fields, in the order of discovery
  std::string lack_hint_;
};

}  // namespace plumb
