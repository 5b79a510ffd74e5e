// Lists the keys of a type that `fields()` describes, for the reference page of JSON files. Internal, like json.hpp.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/document/json_fields.hpp"
#include "common/base/document/json_tables.hpp"

namespace plumb {

// Archive that lists. Keys of aggregates below become tables of their own, at the path of their key.
class JsonLister {
 public:
  JsonLister(std::vector<JsonTable>& tables, const std::string& path) : tables_(tables), index_(tables.size()) {
    tables_.push_back({.path = path, .rows = {}});
  }

  template <class T>
  void operator()(const char* key, const T& value, const char* description = "") {
    add(key, value, false, description);
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>&, const char* description = "") {
    add(key, T{}, true, description);
  }
  template <class T>
  void unless_usual(const char* key, const T& value, const std::type_identity_t<T>& = {},
                    const char* description = "") {
    add(key, value, true, description);
  }

  // Keys that alternatives of a variant have, each under its name.
  template <class... Alternatives>
  void alternatives(const std::variant<Alternatives...>& variant) {
    const std::vector<std::string> names = alternative_names(variant);
    const std::string path = tables_[index_].path;
    std::size_t next = 0;
    const auto list_one = [&]<class Alternative>(std::type_identity<Alternative>) {
      const std::string& name = names.at(next++);
      if constexpr (!std::is_same_v<Alternative, std::monostate>) {
        JsonLister lister(tables_, path + " " + name);
        Alternative alternative{};
        fields(lister, alternative);
      }
    };
    (list_one(std::type_identity<Alternatives>()), ...);
  }

 private:
  template <class T>
  struct Element {
    using Type = T;
    static constexpr bool list = false;
  };
  template <class T>
  struct Element<std::vector<T>> {
    using Type = T;
    static constexpr bool list = true;
  };
  template <class T, std::size_t Size>
  struct Element<std::array<T, Size>> {
    using Type = T;
    static constexpr bool list = true;
  };
  template <class T>
  struct IsVariant : std::false_type {};
  template <class... Alternatives>
  struct IsVariant<std::variant<Alternatives...>> : std::true_type {};

  template <class T>
  void add(const std::string& key, const T& value, bool optional, const std::string& description) {
    using One = typename Element<T>::Type;
    const std::string of = Element<T>::list ? "list of " : "";
    std::string type;
    if constexpr (JsonAggregate<One> || IsVariant<One>::value) {
      type = of + (Element<T>::list ? "objects" : "object");
    } else if constexpr (JsonEnum<One>) {
      for (const std::string& name : enum_names(One{})) type += (type.empty() ? "" : ", ") + ("`" + name + "`");
      type = of + type;
    } else if constexpr (std::is_same_v<One, bool>) {
      type = of + "flag";
    } else if constexpr (std::is_same_v<One, std::string>) {
      type = of + "text";
    } else {
      type = of + (std::is_integral_v<One> || std::is_same_v<One, Bytes> ? "count" : "number");
    }
    tables_[index_].rows.push_back({.key = key, .type = type, .optional = optional, .description = description});
    const std::string& own = tables_[index_].path;
    const std::string path = own.empty() ? key : own + "." + key;
    if constexpr (JsonAggregate<One>) {
      JsonLister lister(tables_, path + (Element<T>::list ? "[]" : ""));
      One one{};
      fields(lister, one);
    } else if constexpr (IsVariant<One>::value) {
      JsonLister lister(tables_, path);
      lister("kind", std::string(), "Which of the objects below it is.");
      lister.alternatives(One{});
    }
    static_cast<void>(value);
  }

  std::vector<JsonTable>& tables_;
  std::size_t index_;
};

// The tables of a type and of all types below it, the type itself first.
template <class T>
[[nodiscard]] std::vector<JsonTable> list_fields(const std::string& path) {
  std::vector<JsonTable> tables;
  JsonLister lister(tables, path);
  T value{};
  fields(lister, value);
  return tables;
}

}  // namespace plumb
