// The header of a safetensors file, which others have written: nothing in it is believed unchecked.
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "exec/data/safetensors_file.hpp"

namespace plumb::exec {
namespace {

using nlohmann::json;

// All that the format has.
constexpr std::array<std::pair<std::string_view, std::int64_t>, 15> types{{{"BOOL", 1},
                                                                           {"U8", 1},
                                                                           {"I8", 1},
                                                                           {"F8_E5M2", 1},
                                                                           {"F8_E4M3", 1},
                                                                           {"I16", 2},
                                                                           {"U16", 2},
                                                                           {"F16", 2},
                                                                           {"BF16", 2},
                                                                           {"I32", 4},
                                                                           {"U32", 4},
                                                                           {"F32", 4},
                                                                           {"F64", 8},
                                                                           {"I64", 8},
                                                                           {"U64", 8}}};
constexpr int deepest = 3;  // an object of objects with lists

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : types) names.emplace_back(name);
  return names;
}

// Refuses what would only take memory, and keys of which the last would count.
class Checked {
 public:
  explicit Checked(const std::string& file) : file_(file) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= deepest) {
      throw InputError(file_, "its header is nested more than " + std::to_string(deepest) + " deep",
                       "is it a safetensors file?");
    }
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key && !keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
      throw InputError(file_, "'" + excerpt(parsed.get_ref<const std::string&>()) + "' stands twice in its header");
    }
    return true;
  }

 private:
  const std::string& file_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

json parsed(std::string_view text, const std::string& file) {
  if (!text.starts_with('{')) {
    throw InputError(file, "its header does not begin with '{'", "is it a safetensors file?");
  }
  try {
    Checked checked(file);
    return json::parse(text, [&checked](int depth, json::parse_event_t event, const json& value) {
      return checked(depth, event, value);
    });
  } catch (const json::exception& error) {
    throw_json_error(error, text, file);
  }
}

// One tensor's entry.
class Entry {
 public:
  Entry(const std::string& name, const json& value, const std::string& file)
      : name_(name), value_(value), file_(file) {}

  [[nodiscard]] StoredTensor tensor(std::int64_t data_bytes) const {
    if (!value_.is_object()) fail(std::string("is ") + value_.type_name() + ", expected an object");
    for (const auto& [key, unused] : value_.items()) {
      if (key == "dtype" || key == "shape" || key == "data_offsets") continue;
      fail("has an unknown key '" + excerpt(key) + "'", did_you_mean(key, {"dtype", "shape", "data_offsets"}));
    }
    StoredTensor made{.name = name_, .type = type(), .shape = integers("shape")};
    made.element_bytes = std::ranges::find(types, made.type, &std::pair<std::string_view, std::int64_t>::first)->second;
    made.elements = product(made.shape, std::numeric_limits<std::int64_t>::max() / made.element_bytes);
    const std::vector<std::int64_t> place = integers("data_offsets");
    if (place.size() != 2) fail("has " + std::to_string(place.size()) + " data_offsets, expected begin and end");
    if (place[0] > place[1] || place[1] > data_bytes) {
      fail("says that its bytes are " + std::to_string(place[0]) + " to " + std::to_string(place[1]) +
               ", and there are " + std::to_string(data_bytes) + " behind the header",
           "the file is cut short, or damaged");
    }
    const std::int64_t needed = made.elements * made.element_bytes;
    if (place[1] - place[0] != needed) {
      fail("has " + std::to_string(place[1] - place[0]) + " bytes, its shape and type need " + std::to_string(needed));
    }
    made.begin = place[0];
    return made;
  }

  [[noreturn]] void fail(const std::string& problem, const std::string& hint = "") const {
    throw InputError(file_ + ": tensor '" + excerpt(name_) + "'", problem, hint);
  }

 private:
  [[nodiscard]] const json& at(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(std::string("has no key '") + key + "'");
    return *found;
  }

  [[nodiscard]] std::string type() const {
    const json& value = at("dtype");
    if (!value.is_string()) fail("its dtype is no text");
    const auto& name = value.get_ref<const std::string&>();
    const std::vector<std::string> known = type_names();
    if (std::ranges::find(known, name) == known.end()) {
      fail("has the unknown dtype '" + excerpt(name) + "'", did_you_mean(name, known));
    }
    return name;
  }

  [[nodiscard]] std::vector<std::int64_t> integers(const char* key) const {
    const json& value = at(key);
    if (!value.is_array()) fail(std::string("its ") + key + " is no list");
    std::vector<std::int64_t> all;
    for (const json& each : value) {
      const bool fits =
          each.is_number_unsigned() &&
          each.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      if (!fits) fail(std::string("its ") + key + " has '" + excerpt(each.dump()) + "', expected a whole number");
      all.push_back(each.get<std::int64_t>());
    }
    return all;
  }

  [[nodiscard]] std::int64_t product(const std::vector<std::int64_t>& shape, std::int64_t most) const {
    if (std::ranges::find(shape, 0) != shape.end()) return 0;
    std::int64_t all = 1;
    for (const std::int64_t extent : shape) {
      if (extent > most / all) fail("has a shape of more elements than any file");
      all *= extent;
    }
    return all;
  }

  const std::string& name_;
  const json& value_;
  const std::string& file_;
};

std::map<std::string, std::string> metadata_of(const json& value, const std::string& file) {
  if (!value.is_object()) throw InputError(file, "its __metadata__ is no object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw InputError(file, "its __metadata__ has no text at '" + excerpt(key) + "'");
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// One behind the other, and nothing else in the file.
void require_no_gaps(const std::map<std::string, StoredTensor>& tensors, std::int64_t data_bytes,
                     const std::string& file) {
  std::vector<const StoredTensor*> in_order;
  for (const auto& [name, tensor] : tensors) in_order.push_back(&tensor);
  std::ranges::sort(in_order, {}, [](const StoredTensor* each) { return std::pair(each->begin, each->elements); });
  std::int64_t end = 0;
  for (const StoredTensor* const tensor : in_order) {
    if (tensor->begin != end) {
      throw InputError(file + ": tensor '" + excerpt(tensor->name) + "'",
                       "begins at byte " + std::to_string(tensor->begin) +
                           " of the data, where those before it end at " + std::to_string(end),
                       "tensors must neither overlap nor leave gaps");
    }
    end += tensor->elements * tensor->element_bytes;
  }
  if (end == data_bytes) return;
  throw InputError(file, "has " + std::to_string(data_bytes) + " bytes of data, its tensors " + std::to_string(end),
                   "the file is cut short, or damaged");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes, const std::string& file) {
  const json header = parsed(text, file);
  SafetensorsHeader made;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      made.metadata = metadata_of(value, file);
    } else {
      made.tensors.emplace(name, Entry(name, value, file).tensor(data_bytes));
    }
  }
  require_no_gaps(made.tensors, data_bytes, file);
  return made;
}

}  // namespace plumb::exec
