#include "common/base/document/yaml.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <span>
#include <sstream>

#include "common/base/document/toml.hpp"
#include "common/base/document/unit_names.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/files.hpp"
#include "common/base/input_errors.hpp"
#include "common/base/synonyms.hpp"

namespace plumb {
namespace {

constexpr const char* whole = "the file";  // the path of its outermost value

// The number that `text` begins with; `rest` gets what follows.
std::optional<double> leading_number(std::string_view text, std::string_view& rest) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return value;
}

// The letter behind a count of tokens; 1 for any other.
std::int64_t token_unit(char letter) {
  if (letter == 'k' || letter == 'K') return std::int64_t{1} << 10;
  return letter == 'M' || letter == 'm' ? std::int64_t{1} << 20 : 1;
}

double quantity(const YamlValue& value, std::span<const Unit> units, const std::string& example) {
  const std::string text = value.text();
  std::string_view rest;
  const std::optional<double> number = leading_number(text, rest);
  const std::string hint = "write a number and a unit, for example " + example + "; units: " + unit_list(units);
  if (!number) value.fail(value.path() + ": expected a quantity, not '" + excerpt(text) + "'", hint);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (rest.empty()) value.fail(value.path() + ": '" + excerpt(text) + "' has no unit", hint);
  if (is_bits_or_bytes(rest, units)) {
    std::string prefix(1, static_cast<char>(std::toupper(static_cast<unsigned char>(rest.front()))));
    value.fail(value.path() + ": unit '" + excerpt(rest) + "' may mean bits or bytes",
               "write " + prefix + "b/s for bits, or " + prefix + "B/s for bytes");
  }
  const Unit* unit = find_unit(rest, units);
  if (unit == nullptr) value.fail(value.path() + ": unknown unit '" + excerpt(rest) + "'", hint);
  const double result = *number * unit->factor;
  if (!std::isfinite(result) || result < 0)
    value.fail(value.path() + ": '" + excerpt(text) + "' is out of range", hint);
  return result;
}

double positive_quantity(const YamlValue& value, std::span<const Unit> units, const std::string& example) {
  const double result = quantity(value, units, example);
  if (result <= 0) value.fail(value.path() + ": must be more than zero, not '" + excerpt(value.text()) + "'");
  return result;
}

// Remembers where a document begins.
class DocumentStart : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { place_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  [[nodiscard]] YAML::Mark place() const { return place_; }

 private:
  YAML::Mark place_;
};

// Not YAML::LoadAll, which never ends when a stray comma follows a document (yaml-cpp 0.7).
void require_one_document(std::string_view text, const std::string& file) {
  std::istringstream stream{std::string(text)};
  YAML::Parser parser(stream);
  DocumentStart start;
  if (!parser.HandleNextDocument(start)) throw InputError(file, "is empty");
  if (!parser.HandleNextDocument(start)) return;
  throw InputError(Place{file, start.place().line + 1, start.place().column + 1},
                   "something stands after the end of the first document, expected one document");
}

std::string shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : std::to_string(value);
}

// One map over another. Aliases may nest a map in itself, or stand for more keys than a machine's memory holds; what
// only looks at the keys it knows never meets those, but who merges walks through all that is there.
class Merge {
 public:
  explicit Merge(const std::string& file) : file_(file) {}

  [[nodiscard]] YAML::Node operator()(const YAML::Node& over, const YAML::Node& base, int depth = 0) {
    // A value with its source is one thing: a new value does not keep the source of the old one.
    if (!over.IsMap() || !base.IsMap() || over["value"].IsDefined()) return over;
    keys_ += over.size() + base.size();
    if (depth > deepest) fail(over, "is nested more than " + std::to_string(deepest) + " deep");
    if (keys_ > most_keys) fail(over, "has more than " + std::to_string(most_keys) + " keys with what is merged in");
    YAML::Node result(YAML::NodeType::Map);
    // Keys as nodes, which know their line; looked up in a set, since to ask a map of yaml-cpp adds to it.
    std::set<std::string> own;
    for (const auto& entry : over) {
      own.insert(entry.first.Scalar());
      const YAML::Node below = base[entry.first.Scalar()];
      result[entry.first] = below.IsDefined() ? (*this)(entry.second, below, depth + 1) : entry.second;
    }
    for (const auto& entry : base) {
      if (!own.contains(entry.first.Scalar())) result[entry.first] = entry.second;
    }
    return result;
  }

 private:
  static constexpr int deepest = 32;
  static constexpr std::size_t most_keys = 4096;

  [[noreturn]] void fail(const YAML::Node& node, const std::string& problem) const {
    const YAML::Mark mark = node.Mark();
    throw InputError(Place{file_, mark.is_null() ? 0 : mark.line + 1, mark.is_null() ? 0 : mark.column + 1}, problem,
                     "look for an alias (*name) within what it names, or aliases of aliases");
  }

  const std::string& file_;
  std::size_t keys_ = 0;
};

}  // namespace

struct YamlValue::Content {
  YAML::Node node;

  // yaml-cpp tags a plain scalar "?" and a quoted one "!".
  [[nodiscard]] bool quoted() const { return node.IsScalar() && node.Tag() == "!"; }
};

YamlValue::YamlValue(std::shared_ptr<const Content> content, const std::string& file, std::string path)
    : content_(std::move(content)), path_(std::move(path)) {
  const YAML::Mark mark = content_->node.Mark();
  place_ = Place{file, mark.is_null() ? 0 : mark.line + 1, mark.is_null() ? 0 : mark.column + 1};
}

YamlValue YamlValue::parse(std::string_view text, const std::string& file) {
  require_no_toml(text, file);
  try {
    require_one_document(text, file);
    const YAML::Node document = YAML::Load(std::string(text));
    if (document.IsNull()) throw InputError(file, "is empty");
    return {std::make_shared<const Content>(Content{document}), file, whole};
  } catch (const YAML::Exception& error) {
    const bool known = !error.mark.is_null();
    throw InputError(Place{file, known ? error.mark.line + 1 : 0, known ? error.mark.column + 1 : 0},
                     "is not valid YAML or JSON: " + error.msg);
  }
}

YamlValue YamlValue::load(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  return parse(text, path.string());
}

void YamlValue::fail(const std::string& problem, const std::string& hint) const {
  throw InputError(place_, problem, hint);
}

bool YamlValue::is_map() const { return content_->node.IsMap(); }
bool YamlValue::is_list() const { return content_->node.IsSequence(); }
bool YamlValue::is_scalar() const { return content_->node.IsScalar(); }
bool YamlValue::is_null() const { return content_->node.IsNull(); }

bool YamlValue::is_text() const {
  if (!is_scalar()) return false;
  if (content_->quoted()) return true;
  const std::string& word = content_->node.Scalar();
  std::string_view rest;
  const bool is_number = leading_number(word, rest).has_value() && rest.empty();
  return !is_number && word != "true" && word != "false";
}

bool YamlValue::is_number() const {
  if (!is_scalar() || content_->quoted()) return false;
  std::string_view rest;
  return leading_number(content_->node.Scalar(), rest).has_value() && rest.empty();
}

bool YamlValue::is_tokens() const {
  if (!is_scalar() || content_->quoted()) return false;
  const std::string& word = content_->node.Scalar();
  return word.size() > 1 && token_unit(word.back()) > 1 &&
         std::all_of(word.begin(), word.end() - 1, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::vector<std::string> YamlValue::keys() const {
  if (!is_map()) fail(path_ + ": expected keys and values");
  std::vector<std::string> keys;
  for (const auto& entry : content_->node) {
    if (!entry.first.IsScalar()) fail(path_ + ": a key must be a word");
    keys.push_back(entry.first.Scalar());
  }
  return keys;
}

void YamlValue::check_keys(const std::vector<std::string>& allowed) const {
  std::set<std::string> seen;
  InputErrors errors;
  if (!is_map()) fail(path_ + ": expected keys and values", "keys: " + did_you_mean("", allowed));
  for (const auto& entry : content_->node) {
    const YamlValue key(std::make_shared<const Content>(Content{entry.first}), place_.file, path_);
    if (!key.is_scalar()) key.fail(path_ + ": a key must be a word");
    const std::string& word = entry.first.Scalar();
    if (!seen.insert(word).second) key.fail("key '" + excerpt(word) + "' stands twice");
    if (std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
      const std::string meant = key_meant(word, allowed);
      errors.add(InputError(key.place(), "unknown key '" + excerpt(word) + "' in " + path_,
                            meant.empty() ? did_you_mean(word, allowed) : "the key is '" + meant + "' here"));
    }
  }
  errors.throw_if_any();
}

YamlEntry YamlValue::entry(const Content& key, const Content& value) const {
  const std::string word = key.node.IsScalar() ? key.node.Scalar() : "";
  const std::string name = (path_ == whole ? "" : path_ + ".") + word;
  YamlEntry entry{.key = YamlValue(std::make_shared<const Content>(key), place_.file, path_),
                  .value = YamlValue(std::make_shared<const Content>(value), place_.file, name)};
  // A value left out ("key:") has no mark of its own.
  if (entry.value.place_.line == 0 || value.node.IsNull()) entry.value.place_ = entry.key.place_;
  return entry;
}

std::vector<YamlEntry> YamlValue::entries() const {
  if (!is_map()) fail(path_ + ": expected keys and values");
  std::vector<YamlEntry> entries;
  for (const auto& one : content_->node) entries.push_back(entry(Content{one.first}, Content{one.second}));
  return entries;
}

std::optional<YamlValue> YamlValue::find(std::string_view key) const {
  if (!is_map()) fail(path_ + ": expected keys and values");
  std::optional<YamlValue> found;
  for (const auto& one : content_->node) {
    if (!one.first.IsScalar() || one.first.Scalar() != key) continue;
    YamlEntry same = entry(Content{one.first}, Content{one.second});
    if (found) same.key.fail("key '" + std::string(key) + "' stands twice");
    found = std::move(same.value);
  }
  return found;
}

YamlValue YamlValue::require(std::string_view key) const {
  std::optional<YamlValue> found = find(key);
  if (!found) fail("key '" + std::string(key) + "' is missing in " + path_);
  return *std::move(found);
}

YamlValue YamlValue::merged_over(const YamlValue& base) const {
  const YAML::Node merged = Merge(place_.file)(content_->node, base.content_->node);
  YamlValue result(std::make_shared<const Content>(Content{merged}), place_.file, path_);
  result.place_ = place_;
  return result;
}

YamlValue YamlValue::without(const std::vector<std::string>& keys) const {
  YAML::Node rest(YAML::NodeType::Map);
  for (const auto& entry : content_->node) {
    if (std::ranges::find(keys, entry.first.Scalar()) == keys.end()) rest[entry.first] = entry.second;
  }
  YamlValue result(std::make_shared<const Content>(Content{rest}), place_.file, path_);
  result.place_ = place_;
  return result;
}

std::vector<YamlValue> YamlValue::items() const {
  if (!is_list()) fail(path_ + ": expected a list");
  std::vector<YamlValue> items;
  for (const auto& item : content_->node) {
    const std::string name = path_ == whole ? "entry " + std::to_string(items.size() + 1)  // as a reader counts
                                            : path_ + "[" + std::to_string(items.size()) + "]";
    items.push_back(YamlValue(std::make_shared<const Content>(Content{item}), place_.file, name));
  }
  return items;
}

std::string YamlValue::text() const {
  if (!is_scalar()) fail(path_ + ": expected a word" + (is_null() ? ", not nothing" : ""));
  return content_->node.Scalar();
}

bool YamlValue::boolean() const {
  const bool plain = is_scalar() && !content_->quoted();
  if (plain && (content_->node.Scalar() == "true" || content_->node.Scalar() == "True")) return true;
  if (plain && (content_->node.Scalar() == "false" || content_->node.Scalar() == "False")) return false;
  fail(path_ + ": expected true or false" + (is_scalar() ? ", not '" + excerpt(content_->node.Scalar()) + "'" : ""));
}

std::int64_t YamlValue::integer(std::int64_t least, std::int64_t most) const {
  const std::string range = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (!is_scalar()) fail(path_ + ": expected " + range);
  const std::string& word = content_->node.Scalar();
  if (content_->quoted())
    fail(path_ + ": expected " + range + ", not the text '" + excerpt(word) + "'", "leave out the quotes");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_whole = error == std::errc() && end == word.data() + word.size();
  if (!is_whole || value < least || value > most) fail(path_ + ": expected " + range + ", not '" + excerpt(word) + "'");
  return value;
}

std::int64_t YamlValue::tokens(std::int64_t least, std::int64_t most) const {
  if (!is_tokens()) return integer(least, most);
  const std::string word = text();
  const std::int64_t unit = token_unit(word.back());
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size() - 1, count);
  if (error == std::errc() && count <= most / unit && count * unit >= least) return count * unit;
  fail(path_ + ": expected a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ", not '" +
           excerpt(word) + "'",
       "k is 1024 and M is 1048576 here");
}

std::int64_t YamlValue::integer() const {
  return tokens(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
}
double YamlValue::number() const {
  return number(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
}
double YamlValue::fraction() const { return fraction(std::numeric_limits<double>::max()); }

double YamlValue::number(double least, double most) const {
  const std::string range = "a number from " + shortest(least) + " to " + shortest(most);
  if (!is_scalar()) fail(path_ + ": expected " + range);
  const std::string& word = content_->node.Scalar();
  if (content_->quoted())
    fail(path_ + ": expected " + range + ", not the text '" + excerpt(word) + "'", "leave out the quotes");
  std::string_view rest;
  const std::optional<double> value = leading_number(word, rest);
  if (!value || !rest.empty() || *value < least || *value > most) {
    fail(path_ + ": expected " + range + ", not '" + excerpt(word) + "'");
  }
  return *value;
}

double YamlValue::fraction(double most) const {
  std::string_view rest;
  const std::string word = text();
  const std::optional<double> value = leading_number(word, rest);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const double scale = rest == "%" ? 0.01 : 1;
  if (!value || (rest != "%" && !rest.empty()) || *value < 0 || *value * scale > most) {
    fail(path_ + ": expected a fraction from 0 to " + shortest(most) +
         " or a percentage, such as 0.025 or 2.5%, not '" + excerpt(word) + "'");
  }
  return *value * scale;
}

std::size_t YamlValue::choice(const std::vector<std::string>& names) const {
  const std::string word = text();
  const std::optional<std::size_t> found = find_name(word, names);
  if (!found) fail(path_ + ": unknown '" + excerpt(word) + "'", did_you_mean(word, names));
  return *found;
}

Bytes YamlValue::bytes() const {
  const double value = positive_quantity(*this, byte_units, "'80 GB'");
  if (value > static_cast<double>(largest_amount.value))
    fail(path_ + ": '" + excerpt(text()) + "' is more than 10^18 bytes");
  return {static_cast<std::int64_t>(std::llround(value))};
}

Bytes YamlValue::bytes_or_none() const { return quantity(*this, byte_units, "'80 GB'") == 0 ? Bytes{} : bytes(); }

Seconds YamlValue::seconds() const {
  const Seconds value{quantity(*this, second_units, "'5 us'")};
  if (value > longest_time) fail(path_ + ": '" + excerpt(text()) + "' is more than 10^9 seconds");
  return value;
}

BytesPerSecond YamlValue::bytes_per_second() const {
  const BytesPerSecond value{positive_quantity(*this, bandwidth_units, "'50 GB/s'")};
  if (value < slowest_bandwidth || value > fastest_bandwidth) {
    fail(path_ + ": '" + excerpt(text()) + "' is not between 1 and 10^18 bytes per second");
  }
  return value;
}

FlopsPerSecond YamlValue::flops_per_second() const {
  const FlopsPerSecond value{positive_quantity(*this, flops_units, "'312 TFLOP/s'")};
  if (value < slowest_peak || value > fastest_peak) {
    fail(path_ + ": '" + excerpt(text()) + "' is not between 10^3 and 10^24 operations per second");
  }
  return value;
}

}  // namespace plumb
