#include "common/base/document/json_schema.hpp"

#include <algorithm>
#include <map>
#include <span>

#include "common/base/document/json.hpp"
#include "common/base/document/unit_names.hpp"
#include "common/base/synonyms.hpp"

namespace plumb {
namespace {

constexpr const char* number_pattern = "[0-9]*\\.?[0-9]*([eE][+-]?[0-9]+)?";

std::string alternatives(std::span<const Unit> units) {
  std::string text;
  for_unit_names(units, [&](std::string_view name, const Unit&) { text.append(text.empty() ? "" : "|").append(name); });
  return text;
}

std::string pattern_of(const QuantityShape& quantity) {
  const auto units = [&]() -> std::span<const Unit> {
    switch (quantity.kind) {
      case QuantityKind::bytes:
        return byte_units;
      case QuantityKind::seconds:
        return second_units;
      case QuantityKind::bytes_per_second:
        return bandwidth_units;
      case QuantityKind::flops_per_second:
        return flops_units;
    }
    return {};
  }();
  const std::string not_zero = quantity.zero ? "" : "(?=[0.]*[1-9])";
  return "^(?=\\.?[0-9])" + not_zero + number_pattern + " *(" + alternatives(units) + ")$";
}

// The value as JSON if it is a scalar of this shape.
std::optional<Json> scalar_of(const std::string& text, const FieldShape& shape) {
  InputErrors errors;
  try {
    const YamlValue value = YamlValue::parse(text, "default");
    if (!value.is_scalar() || !check_fields(shape, value, errors)) return std::nullopt;
    if (value.is_number()) {
      const double number = value.number();
      if (number == static_cast<double>(static_cast<std::int64_t>(number))) return static_cast<std::int64_t>(number);
      return number;
    }
    // Some defaults are words of a sentence, which a text would take.
    const bool in_words = text.find(' ') != std::string::npos && (text.front() < '0' || text.front() > '9');
    if (value.is_text()) return in_words ? std::nullopt : std::optional<Json>(value.text());
    return value.boolean();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

class SchemaWriter {
 public:
  Json write(const FieldShape& shape, bool partial) {
    return std::visit([&](const auto& form) { return of(form, partial); }, shape.form);
  }

  Json definitions() { return std::move(definitions_); }

 private:
  static Json of(const BooleanShape&, bool) { return {{"type", "boolean"}}; }
  static Json of(const WholeShape& whole, bool) {
    Json number = {{"type", "integer"}, {"minimum", whole.least}, {"maximum", whole.most}};
    if (!whole.tokens) return number;
    return {{"anyOf", Json::array({number, Json{{"type", "string"}, {"pattern", "^[0-9]+[kKmM]$"}}})}};
  }
  static Json of(const NumberShape& number, bool) {
    return {{"type", "number"},
            {number.above_least ? "exclusiveMinimum" : "minimum", number.least},
            {"maximum", number.most}};
  }
  static Json of(const FractionShape& fraction, bool) {
    const Json number = {{"type", "number"}, {"minimum", 0}, {"maximum", fraction.most}};
    const Json percentage = {{"type", "string"}, {"pattern", std::string("^(?=\\.?[0-9])") + number_pattern + " *%$"}};
    return {{"anyOf", Json::array({number, percentage})}};
  }
  static Json of(const QuantityShape& quantity, bool) {
    return {{"type", "string"}, {"pattern", pattern_of(quantity)}};
  }
  static Json of(const ChoiceShape& choice, bool) { return {{"enum", all_names(choice.names)}}; }
  static Json of(const WordShape& word, bool) { return {{"const", word.word}}; }
  static Json of(const TextShape& text, bool) {
    const Json pattern = {{"type", "string"}, {"pattern", "^(" + text.pattern + ")$"}};
    if (text.names.empty()) return text.pattern.empty() ? Json{{"type", {"string", "number"}}} : pattern;
    const Json names = {{"enum", all_names(text.names)}};
    return text.pattern.empty() ? names : Json{{"anyOf", Json::array({names, pattern})}};
  }
  Json of(const BlockShape& block, bool partial) { return reference(*block.block, partial || block.partial); }
  Json of(const ListShape& list, bool partial) {
    return {{"type", "array"},
            {"items", write(list.of.front(), partial)},
            {"minItems", list.least},
            {"maxItems", list.most}};
  }
  Json of(const OneOfShape& one_of, bool partial) {
    Json any = Json::array();
    for (const FieldShape& shape : one_of.shapes) any.push_back(write(shape, partial));
    return {{"anyOf", any}};
  }

  static Json needs(const std::string& key) { return {{"required", std::vector<std::string>{key}}}; }

  static std::vector<std::string> all_names(std::vector<std::string> names) {
    for (const std::string& other : other_names(names)) {
      if (std::ranges::find(names, other) == names.end()) names.push_back(other);
    }
    return names;
  }

  Json reference(const FieldBlock& block, bool partial) {
    const auto [known, is_new] = names_.try_emplace({&block, partial});
    if (is_new) {
      std::string whole_name = partial ? "part-of-" + block.name : block.name;
      std::ranges::replace(whole_name, ' ', '-');
      std::string name = whole_name;
      for (int count = 2; definitions_.contains(name); ++count) name = whole_name + "-" + std::to_string(count);
      known->second = name;
      definitions_[name] = Json::object();
      definitions_[name] = body(block, partial);
    }
    return {{"$ref", "#/$defs/" + known->second}};
  }

  Json body(const FieldBlock& block, bool partial) {
    Json properties = Json::object();
    std::vector<std::string> required;
    Json conditions = Json::array();
    Json dependent = Json::object();
    for (const Field& field : block.fields) {
      properties[field.key] = property(field, partial);
      if (field.required && field.unless.empty()) required.push_back(field.key);
      if (field.required && !field.unless.empty()) {
        conditions.push_back(Json{{"anyOf", Json::array({needs(field.key), needs(field.unless)})}});
      }
      if (!field.with.empty()) dependent[field.with].push_back(field.key);
    }
    Json result = {{"title", block.title}, {"description", block.description}, {"type", "object"}};
    result["properties"] = properties;
    result["additionalProperties"] = block.open;
    if (partial) return result;
    if (!dependent.empty()) conditions.push_back(Json{{"dependentRequired", dependent}});
    if (!required.empty()) conditions.insert(conditions.begin(), Json{{"required", required}});
    if (conditions.empty()) return result;
    const Json all = conditions.size() == 1 ? conditions.front() : Json{{"allOf", conditions}};
    if (block.base.empty()) {
      result.update(all);
    } else {
      result["anyOf"] = Json::array({needs(block.base), all});
    }
    return result;
  }

  Json property(const Field& field, bool partial) {
    Json result = write(field.shape, partial);
    const std::optional<Json> usual =
        field.default_text.empty() ? std::nullopt : scalar_of(field.default_text, field.shape);
    const bool in_words = !usual && !field.default_text.empty();
    result["description"] = field.description + (in_words ? " Default: " + field.default_text + "." : "");
    if (usual) result["default"] = *usual;
    return result;
  }

  std::map<std::pair<const FieldBlock*, bool>, std::string> names_;
  Json definitions_ = Json::object();
};

}  // namespace

std::string json_schema(const std::string& title, const std::string& description, const FieldShape& shape) {
  SchemaWriter writer;
  Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}, {"description", description}};
  schema.update(writer.write(shape, false));
  schema["$defs"] = writer.definitions();
  return to_text(schema);
}

}  // namespace plumb
