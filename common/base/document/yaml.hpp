// Reading YAML (and JSON, which YAML contains): typed values that know where they stand, and errors that say so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/units.hpp"

namespace plumb {

struct YamlEntry;

// A value of a YAML file. Every accessor throws InputError with file, line and column when the value is not what is
// asked for; quoted scalars are text, never numbers.
class YamlValue {
 public:
  // Throws InputError for malformed or empty text and for more than one document. `file` is for messages.
  [[nodiscard]] static YamlValue parse(std::string_view text, const std::string& file);
  [[nodiscard]] static YamlValue load(const std::filesystem::path& path);

  [[nodiscard]] const Place& place() const { return place_; }
  // As a user would name it, e.g. "training.sequence"; the whole file is "the file".
  [[nodiscard]] const std::string& path() const { return path_; }
  [[noreturn]] void fail(const std::string& problem, const std::string& hint = "") const;

  [[nodiscard]] bool is_map() const;
  [[nodiscard]] bool is_list() const;
  [[nodiscard]] bool is_scalar() const;
  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_text() const;    // a scalar that is no number, truth value or null
  [[nodiscard]] bool is_number() const;  // a scalar without quotes that a double holds
  [[nodiscard]] bool is_tokens() const;  // a count as contexts are written: 64k, 1M

  // Of a map, in the order of the file; duplicate keys are an error of `check_keys` and `find`.
  [[nodiscard]] std::vector<std::string> keys() const;
  void check_keys(const std::vector<std::string>& allowed) const;
  [[nodiscard]] std::optional<YamlValue> find(std::string_view key) const;  // none: not there
  [[nodiscard]] YamlValue require(std::string_view key) const;
  [[nodiscard]] std::vector<YamlValue> items() const;    // of a list
  [[nodiscard]] std::vector<YamlEntry> entries() const;  // of a map, in the order of the file, doubled keys too
  // This map with what `base` has beside it; where both have a map, the same within, but for one with a `value`, which
  // stands as a whole. Otherwise this one's value counts.
  [[nodiscard]] YamlValue merged_over(const YamlValue& base) const;
  [[nodiscard]] YamlValue without(const std::vector<std::string>& keys) const;  // of a map

  [[nodiscard]] std::string text() const;  // also of numbers, as written
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most = std::numeric_limits<int>::max()) const;
  // The same, also as 64k (k: 1024) or 1M (M: 1024²).
  [[nodiscard]] std::int64_t tokens(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] double number(double least, double most) const;
  // "2.5%" or 0.025; not negative.
  [[nodiscard]] double fraction(double most) const;
  // Values that a table of fields has checked (common/base/document/field.hpp).
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] int small_integer() const { return static_cast<int>(integer()); }
  [[nodiscard]] double number() const;
  [[nodiscard]] double fraction() const;
  // The index of the value's text in `names`; otherwise an error with the nearest name.
  [[nodiscard]] std::size_t choice(const std::vector<std::string>& names) const;

  // A number and its unit: "80 GB", "5 us", "50 GB/s", "312 TFLOP/s". All are positive; `seconds` may be zero.
  [[nodiscard]] Bytes bytes() const;
  [[nodiscard]] Bytes bytes_or_none() const;  // also "0 GiB"
  [[nodiscard]] Seconds seconds() const;
  [[nodiscard]] BytesPerSecond bytes_per_second() const;
  [[nodiscard]] FlopsPerSecond flops_per_second() const;

 private:
  struct Content;  // keeps yaml-cpp out of this header
  YamlValue(std::shared_ptr<const Content> content, const std::string& file, std::string path);
  [[nodiscard]] YamlEntry entry(const Content& key, const Content& value) const;

  std::shared_ptr<const Content> content_;
  Place place_;
  std::string path_;
};

// A key, which may be no word, and its value.
struct YamlEntry {
  YamlValue key;
  YamlValue value;
};

}  // namespace plumb
