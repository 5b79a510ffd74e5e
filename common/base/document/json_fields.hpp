// Aggregates as JSON from one list of fields per type, which serves both writing and reading. Internal, like json.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/synonyms.hpp"
#include "common/base/units.hpp"

namespace plumb {

// A type T takes part by giving, in its own namespace,
//   template <class Archive> void fields(Archive& archive, T& x) { archive("heads", x.heads); … }
// or, with a description for the reference page (json_lister.hpp), archive("heads", x.heads, "Query heads.");
// or, as an enumeration that counts from 0, `std::vector<std::string> enum_names(T)`,
// or, as a variant of such types, `std::vector<std::string> alternative_names(const T&)`: each stands as `kind` beside
// the fields of its alternative (std::monostate has none).

template <class T>
concept JsonEnum = std::is_enum_v<T> && requires(T value) {
  { enum_names(value) } -> std::same_as<std::vector<std::string>>;
};

template <class T>
[[nodiscard]] Json write_fields(T value);
template <class T>
[[nodiscard]] T read_fields(const JsonValue& json);

namespace json_detail {

template <class Unit, class Number>
[[nodiscard]] Json write(const Quantity<Unit, Number>& quantity) {
  return quantity.value;
}
template <class T>
[[nodiscard]] Json write(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(write_fields<T>(value));
  return array;
}
template <class T, std::size_t Size>
[[nodiscard]] Json write(const std::array<T, Size>& values) {
  return write(std::vector<T>(values.begin(), values.end()));
}
template <class T>
[[nodiscard]] Json write(const T& value) {
  if constexpr (JsonEnum<T>) {
    return enum_names(value).at(static_cast<std::size_t>(value));
  } else {
    return value;
  }
}

inline void read(const JsonValue& json, bool& value) { value = json.boolean(); }
inline void read(const JsonValue& json, std::string& value) { value = json.text(); }
inline void read(const JsonValue& json, int& value) { value = json.small_integer(); }
inline void read(const JsonValue& json, std::int64_t& value) { value = json.integer(); }
inline void read(const JsonValue& json, std::uint64_t& value) { value = static_cast<std::uint64_t>(json.integer()); }
inline void read(const JsonValue& json, double& value) { value = json.number(); }
template <class Unit, class Number>
void read(const JsonValue& json, Quantity<Unit, Number>& quantity) {
  read(json, quantity.value);
  if (quantity.value < 0) json.fail("must not be negative");
}
inline void read(const JsonValue& json, Seconds& time) { time = json.seconds(); }
// Null is no limit: JSON has no number for it, and an infinite one is written as null.
inline void read(const JsonValue& json, BytesPerSecond& rate) {
  rate.value = std::numeric_limits<double>::infinity();
  if (!json.raw().is_null()) read(json, rate.value);
  if (rate.value < 0) json.fail("must not be negative");
}
template <class T>
void read(const JsonValue& json, std::vector<T>& values) {
  for (std::size_t i = 0; i < json.size(); ++i) values.push_back(read_fields<T>(json[i]));
}
template <class T, std::size_t Size>
void read(const JsonValue& json, std::array<T, Size>& values) {
  if (json.size() != Size)
    json.fail("has " + std::to_string(json.size()) + " entries, expected " + std::to_string(Size));
  for (std::size_t i = 0; i < Size; ++i) values[i] = read_fields<T>(json[i]);
}
template <JsonEnum T>
void read(const JsonValue& json, T& value) {
  const std::vector<std::string> names = enum_names(value);
  const auto found = find_name(json.text(), names);
  if (!found) json.fail("has the unknown value '" + json.text() + "'", did_you_mean(json.text(), names));
  value = static_cast<T>(*found);
}

}  // namespace json_detail

// Archive that writes. An empty optional leaves its key out.
class JsonWriter {
 public:
  template <class T>
  void operator()(const char* key, const T& value, const char* = "") {
    object[key] = write_fields<T>(value);
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value, const char* = "") {
    if (value) object[key] = write_fields<T>(*value);
  }
  // A key that is there only where its value is not the usual one, which the reader takes where there is none.
  template <class T>
  void unless_usual(const char* key, const T& value, const std::type_identity_t<T>& usual = {}, const char* = "") {
    if (value != usual) (*this)(key, value);
  }
  Json object = Json::object();
};

// Archive that reads; a key must be there unless it is an optional's. Integers are not negative.
class JsonReader {
 public:
  explicit JsonReader(const JsonValue& json) : json_(json) {}

  template <class T>
  void operator()(const char* key, T& value, const char* = "") {
    keys_.emplace_back(key);
    const std::optional<JsonValue> found = json_.find(key);
    if (found) value = read_fields<T>(*found);
    if (!found && missing_.empty()) missing_ = key;
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value, const char* = "") {
    keys_.emplace_back(key);
    if (const std::optional<JsonValue> found = json_.find(key)) value = read_fields<T>(*found);
  }
  template <class T>
  void unless_usual(const char* key, T& value, const std::type_identity_t<T>& usual = {}, const char* = "") {
    std::optional<T> found;
    (*this)(key, found);
    value = found.value_or(usual);
  }

  // Throws InputError for a key that was not asked for, or else for one that is missing: a slip in a key is both, and
  // the first tells more.
  void finish() const {
    for (const auto& [key, value] : json_.raw().items()) {
      if (std::ranges::find(keys_, key) == keys_.end()) json_.fail_unknown_key(key, keys_);
    }
    if (!missing_.empty()) static_cast<void>(json_.at(missing_));
  }

 private:
  const JsonValue& json_;
  std::vector<std::string> keys_;
  std::string missing_;  // the first one
};

template <class T>
concept JsonAggregate = requires(JsonWriter& archive, T& value) {
  fields(archive, value);
};

namespace json_detail {

template <class Archive, class Alternative>
void fields_of_alternative(Archive& archive, Alternative& alternative) {
  if constexpr (!std::is_same_v<Alternative, std::monostate>) fields(archive, alternative);
}

template <class... Alternatives>
[[nodiscard]] Json write(const std::variant<Alternatives...>& variant) {
  JsonWriter writer;
  writer("kind", alternative_names(variant).at(variant.index()));
  std::visit([&](auto alternative) { fields_of_alternative(writer, alternative); }, variant);
  return std::move(writer.object);
}

template <class... Alternatives>
void read(const JsonValue& json, std::variant<Alternatives...>& variant) {
  const std::vector<std::string> names = alternative_names(variant);
  std::string kind = json.at("kind").text();
  JsonReader reader(json);
  reader("kind", kind);
  const auto chosen = static_cast<std::size_t>(std::ranges::find(names, kind) - names.begin());
  if (chosen == names.size()) json.fail("has the unknown kind '" + kind + "'", did_you_mean(kind, names));
  const auto read_chosen = [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    ((chosen == Index ? fields_of_alternative(reader, variant.template emplace<Index>()) : void()), ...);
  };
  read_chosen(std::index_sequence_for<Alternatives...>());
  reader.finish();
}

}  // namespace json_detail

template <class T>
Json write_fields(T value) {
  if constexpr (JsonAggregate<T>) {
    JsonWriter writer;
    fields(writer, value);
    return std::move(writer.object);
  } else {
    return json_detail::write(value);
  }
}

template <class T>
T read_fields(const JsonValue& json) {
  T value{};
  if constexpr (JsonAggregate<T>) {
    JsonReader reader(json);
    fields(reader, value);
    reader.finish();
  } else {
    json_detail::read(json, value);
  }
  return value;
}

}  // namespace plumb
