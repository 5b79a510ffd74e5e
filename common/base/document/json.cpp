#include "common/base/document/json.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "common/base/document/json_place.hpp"
#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"

namespace plumb {
void throw_json_error(const nlohmann::json::exception& error, std::string_view text, const std::string& file) {
  const auto* parse_error = dynamic_cast<const nlohmann::json::parse_error*>(&error);
  if (const auto large = parse_error == nullptr ? overflowing_number(text) : std::nullopt) {
    throw InputError(to_string(place_of_byte(text, large->byte, file)) + (large->key.empty() ? "" : ": " + large->key),
                     "is " + excerpt(large->number) + ", expected a number that a double holds, at most 1.8e308");
  }
  if (parse_error == nullptr) throw InputError(file, std::string("cannot be read as JSON: ") + error.what());
  std::string message = error.what();
  // "[json.exception.parse_error.101] parse error at line 3, column 7: syntax error …": the place is ours to say.
  if (const std::size_t colon = message.find(": "); colon != std::string::npos) message.erase(0, colon + 2);
  // The reader counts from 1, and the byte that it does not like as read.
  const Place place = place_of_byte(text, std::max<std::size_t>(parse_error->byte, 1) - 1, file);
  // The reader counts the end of the text as one more byte.
  if (parse_error->byte > text.size()) {
    throw InputError(place, "the JSON ends here, before it is complete", "the file is truncated; write it again");
  }
  constexpr std::string_view quotes = "last read: '";
  if (const std::size_t quoted = message.find(quotes); quoted != std::string::npos) {
    const std::size_t begin = quoted + quotes.size();
    const std::size_t end = std::min(message.rfind("'; expected "), message.size() - 1);
    if (end > begin) message.replace(begin, end - begin, excerpt(std::string_view(message).substr(begin, end - begin)));
  }
  throw InputError(place, "not JSON: " + message);
}

namespace {

// Of two equal keys the parser keeps the last: what the file says first would count for nothing.
class UniqueKeys {
 public:
  explicit UniqueKeys(const std::string& file) : file_(file) {}

  bool operator()(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
      throw InputError(file_, "key '" + parsed.get_ref<const std::string&>() + "' stands twice in one object",
                       "leave one of the two");
    }
    return true;
  }

 private:
  const std::string& file_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  // The parser takes it for the end, and what a crash left behind it would count for nothing.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw InputError(place_of_byte(text, nul, file), "not JSON: a byte of zero", "the file is damaged; write it again");
  }
  try {
    return Json::parse(text, [keys = std::make_shared<UniqueKeys>(file)](int, Json::parse_event_t event, Json& parsed) {
      return (*keys)(event, parsed);
    });
  } catch (const nlohmann::json::exception& error) {
    throw_json_error(error, text, file);
  }
}

std::string to_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string to_text(const Json& value) { return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

JsonValue::JsonValue(const Json& value, std::string file, std::string path, std::string_view text)
    : value_(&value), file_(std::move(file)), path_(std::move(path)), text_(text) {}

void JsonValue::fail_at(const std::string& path, const std::string& problem, const std::string& hint) const {
  const std::string where = text_.empty() ? file_ : to_string(place_in_json(text_, path, file_));
  throw InputError(path_.empty() ? where : where + ": " + path_, problem, hint);
}

void JsonValue::fail(const std::string& problem, const std::string& hint) const { fail_at(path_, problem, hint); }

void JsonValue::fail_unknown_key(std::string_view key, const std::vector<std::string>& known) const {
  fail_at(path_of(key), "has an unknown key '" + excerpt(key) + "'", did_you_mean(key, known));
}

std::string JsonValue::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

JsonValue JsonValue::at(std::string_view key) const {
  std::optional<JsonValue> found = find(key);
  if (!found) fail("has no key '" + std::string(key) + "'");
  return *std::move(found);
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!value_->is_object()) fail(std::string("is ") + value_->type_name() + ", expected an object");
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) return std::nullopt;
  return JsonValue(*found, file_, path_of(key), text_);
}

void JsonValue::require_only(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) fail(std::string("is ") + value_->type_name() + ", expected an object");
  for (const auto& item : value_->items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
      fail_unknown_key(item.key(), {keys.begin(), keys.end()});
    }
  }
}

std::size_t JsonValue::size() const {
  if (!value_->is_array()) fail(std::string("is ") + value_->type_name() + ", expected an array");
  return value_->size();
}

JsonValue JsonValue::operator[](std::size_t index) const {
  if (index >= size()) fail("has " + std::to_string(size()) + " entries, expected more");
  return {(*value_)[index], file_, path_ + "[" + std::to_string(index) + "]", text_};
}

std::string JsonValue::text() const {
  if (!value_->is_string()) fail(std::string("is ") + value_->type_name() + ", expected text");
  return value_->get<std::string>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail(std::string("is ") + value_->type_name() + ", expected true or false");
  return value_->get<bool>();
}

double JsonValue::number() const {
  if (!value_->is_number()) fail(std::string("is ") + value_->type_name() + ", expected a number");
  return value_->get<double>();
}

double JsonValue::fraction() const {
  const double value = number();
  if (!(value >= 0 && value <= 1)) fail("expected a fraction from 0 to 1");
  return value;
}

std::int64_t JsonValue::integer(std::int64_t least, std::int64_t most) const {
  const bool unsigned_too_large =
      value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value_->is_number_integer() || unsigned_too_large || value_->get<std::int64_t>() < least ||
      value_->get<std::int64_t>() > most) {
    const bool above = value_->is_number() && value_->get<double>() > static_cast<double>(most);
    const bool bounded = above || most < std::numeric_limits<std::int32_t>::max();
    fail("is " + excerpt(to_line(*value_)) + ", expected an integer " +
         (bounded ? "from " + std::to_string(least) + " to " + std::to_string(most)
                  : "of at least " + std::to_string(least)));
  }
  return value_->get<std::int64_t>();
}

int JsonValue::small_integer(int least, int most) const { return static_cast<int>(integer(least, most)); }

Seconds JsonValue::seconds() const {
  const double value = number();
  if (!(value >= 0) || value > longest_time.value)
    fail("is " + excerpt(to_line(*value_)) + ", expected seconds from 0 to 1e9");
  return {value};
}

Bytes JsonValue::bytes() const { return {integer()}; }

}  // namespace plumb
