// JSON in and out: every complaint names the file and the place inside it. Internal: public headers do not include it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/units.hpp"

namespace plumb {

// Keys keep the order in which they are written: deterministic, and made for reading.
using Json = nlohmann::ordered_json;

// Throws InputError with file:line:column for text that is not JSON; a truncated file is said to be one.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& file);

// The InputError for what the JSON library says about `text`.
[[noreturn]] void throw_json_error(const nlohmann::json::exception& error, std::string_view text,
                                   const std::string& file);

// On one line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_line(const Json& value);

// Two spaces a level; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_text(const Json& value);

// One value of a document together with where it stands ("plan.json:41:12: costs.stages[2].forward_s"). Line and column
// need the document's text; it and the values must outlive this.
class JsonValue {
 public:
  JsonValue(const Json& value, std::string file, std::string path = "", std::string_view text = {});

  [[nodiscard]] const Json& raw() const { return *value_; }

  // Of objects. `at` throws when the key is missing; `require_only` when there is a key that is not among `keys`.
  [[nodiscard]] JsonValue at(std::string_view key) const;
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
  void require_only(std::initializer_list<std::string_view> keys) const;

  // Of arrays.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] JsonValue operator[](std::size_t index) const;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] double number() const;
  [[nodiscard]] double fraction() const;  // from 0 to 1
  [[nodiscard]] std::int64_t integer(std::int64_t least = 0,
                                     std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] int small_integer(int least = 0, int most = std::numeric_limits<int>::max()) const;
  [[nodiscard]] Seconds seconds() const;  // 0 to longest_time
  [[nodiscard]] Bytes bytes() const;      // not negative

  [[noreturn]] void fail(const std::string& problem, const std::string& hint = "") const;
  // Of objects: at the key's own place.
  [[noreturn]] void fail_unknown_key(std::string_view key, const std::vector<std::string>& known) const;

 private:
  [[noreturn]] void fail_at(const std::string& path, const std::string& problem, const std::string& hint) const;
  [[nodiscard]] std::string path_of(std::string_view key) const;

  const Json* value_;
  std::string file_;
  std::string path_;
  std::string_view text_;
};

}  // namespace plumb
