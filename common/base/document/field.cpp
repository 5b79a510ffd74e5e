#include "common/base/document/field.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <set>

#include "common/base/document/unit_names.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/synonyms.hpp"

namespace plumb {

namespace shapes {

FieldShape flag() { return {BooleanShape{}}; }
FieldShape whole(std::int64_t least, std::int64_t most) { return {WholeShape{.least = least, .most = most}}; }
FieldShape tokens(std::int64_t most, std::int64_t least) {
  return {WholeShape{.least = least, .most = most, .tokens = true}};
}
FieldShape number(double least, double most) { return {NumberShape{.least = least, .most = most}}; }
FieldShape fraction(double most) { return {FractionShape{.most = most}}; }
FieldShape bytes(bool zero) { return {QuantityShape{.kind = QuantityKind::bytes, .zero = zero}}; }
FieldShape seconds() { return {QuantityShape{.kind = QuantityKind::seconds, .zero = true}}; }
FieldShape bytes_per_second() { return {QuantityShape{.kind = QuantityKind::bytes_per_second}}; }
FieldShape flops_per_second() { return {QuantityShape{.kind = QuantityKind::flops_per_second}}; }
FieldShape choice(std::vector<std::string> names) { return {ChoiceShape{std::move(names)}}; }
FieldShape word(std::string word) { return {WordShape{std::move(word)}}; }
FieldShape text(std::string what, std::vector<std::string> names, std::string pattern) {
  return {TextShape{std::move(what), std::move(names), std::move(pattern)}};
}
FieldShape block(const FieldBlock& block) { return {BlockShape{.block = &block}}; }
FieldShape own(const FieldBlock& block) { return {BlockShape{.block = &block, .own_reader = true}}; }
FieldShape list(FieldShape of, std::size_t least, std::size_t most) {
  return {ListShape{.of = {std::move(of)}, .least = least, .most = most}};
}
FieldShape any_of(std::vector<FieldShape> shapes) { return {OneOfShape{std::move(shapes)}}; }
FieldShape open(FieldShape shape) {
  FieldShape several = list(shape);
  if (auto* one_of = std::get_if<OneOfShape>(&shape.form)) {
    one_of->shapes.push_back(word("auto"));
    one_of->shapes.push_back(std::move(several));
    return shape;
  }
  return any_of({std::move(shape), word("auto"), std::move(several)});
}

}  // namespace shapes

const Field* find_field(const FieldBlock& block, std::string_view key) {
  const auto found = std::ranges::find(block.fields, key, &Field::key);
  return found == block.fields.end() ? nullptr : &*found;
}

std::vector<std::string> keys_of(const FieldBlock& block) {
  std::vector<std::string> keys;
  for (const Field& field : block.fields) keys.push_back(field.key);
  return keys;
}

namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

const char* quantity_example(QuantityKind kind) {
  switch (kind) {
    case QuantityKind::bytes:
      return "80 GB";
    case QuantityKind::seconds:
      return "5 us";
    case QuantityKind::bytes_per_second:
      return "50 GB/s";
    case QuantityKind::flops_per_second:
      return "312 TFLOP/s";
  }
  return "";
}

std::string joined(const std::vector<std::string>& words, const std::string& last) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 < words.size() ? ", " : words.size() == 2 ? " " + last + " " : ", " + last + " ";
    text += words[i];
  }
  return text;
}

// A list of what stands before it is "a list of these".
std::string describe_one_of(const OneOfShape& one_of) {
  std::vector<std::string> parts;
  std::vector<std::string> values;
  for (const FieldShape& shape : one_of.shapes) {
    const auto* list = std::get_if<ListShape>(&shape.form);
    const bool of_these = list != nullptr && describe(list->of.front()) == joined(values, "or");
    parts.push_back(of_these ? "a list of these" : describe(shape));
    if (!std::holds_alternative<WordShape>(shape.form)) values.push_back(parts.back());
  }
  return joined(parts, "or");
}

// "whole numbers from 1 to 8"
std::string describe_several(const FieldShape& shape) {
  std::string text = describe(shape);
  for (const std::string one : {"a whole number", "a number"}) {
    if (text.starts_with(one)) return text.substr(2).replace(one.size() - 2, 0, "s");
  }
  return text;
}

}  // namespace

std::string describe(const FieldShape& shape) {
  return std::visit(
      Overloaded{[](const BooleanShape&) -> std::string { return "true or false"; },
                 [](const WholeShape& whole) {
                   return fmt::format("a whole number from {} to {}", whole.least, whole.most) +
                          (whole.tokens ? ", also as 64k or 1M" : "");
                 },
                 [](const NumberShape& number) {
                   return fmt::format("a number {} {} to {}", number.above_least ? "above" : "from", number.least,
                                      number.most);
                 },
                 [](const FractionShape& fraction) {
                   return fmt::format("a fraction from 0 to {} or a percentage", fraction.most);
                 },
                 [](const QuantityShape& quantity) {
                   return fmt::format("a number with its unit, such as {}", quantity_example(quantity.kind));
                 },
                 [](const ChoiceShape& choice) { return joined(choice.names, "or"); },
                 [](const WordShape& word) { return word.word; }, [](const TextShape& text) { return text.what; },
                 [](const BlockShape&) -> std::string { return "a block of keys and values"; },
                 [](const ListShape& list) { return "a list of " + describe_several(list.of.front()); },
                 [](const OneOfShape& one_of) { return describe_one_of(one_of); }},
      shape.form);
}

namespace {

std::string example_of_block(const FieldBlock& block) {
  std::string text;
  for (const Field& field : block.fields) {
    if (field.required) text += (text.empty() ? "" : ", ") + field.key + ": " + example_of(field);
  }
  if (text.empty() && !block.fields.empty()) {
    text = block.fields.front().key + ": " + example_of(block.fields.front());
  }
  return "{" + text + "}";
}

std::string example_of_shape(const FieldShape& shape) {
  return std::visit(
      Overloaded{[](const BooleanShape&) -> std::string { return "true"; },
                 [](const WholeShape& whole) { return std::to_string(std::max<std::int64_t>(whole.least, 1)); },
                 [](const NumberShape& number) { return fmt::format("{}", std::min(number.most, 0.5)); },
                 [](const FractionShape&) -> std::string { return "5%"; },
                 [](const QuantityShape& quantity) -> std::string { return quantity_example(quantity.kind); },
                 [](const ChoiceShape& choice) { return choice.names.front(); },
                 [](const WordShape& word) { return word.word; },
                 [](const TextShape& text) { return text.names.empty() ? std::string("…") : text.names.front(); },
                 [](const BlockShape& block) { return example_of_block(*block.block); },
                 [](const ListShape& list) { return "[" + example_of_shape(list.of.front()) + "]"; },
                 [](const OneOfShape& one_of) { return example_of_shape(one_of.shapes.front()); }},
      shape.form);
}

}  // namespace

std::string example_of(const Field& field) {
  return field.example.empty() ? example_of_shape(field.shape) : field.example;
}

namespace {

bool is_flag(const YamlValue& value) {
  return value.is_scalar() && !value.is_null() && !value.is_text() && !value.is_number();
}

// Keys that are missing in all blocks of a file, each with a line to add: one message for the whole file.
class MissingKeys {
 public:
  void look_in(const YamlValue& value, const FieldBlock& block) {
    if (!block.base.empty() && value.find(block.base)) return;
    std::string names;
    std::string lines;
    int count = 0;
    for (const Field& field : block.fields) {
      const bool needed = field.required || (!field.with.empty() && value.find(field.with));
      if (!needed || value.find(field.key) || (!field.unless.empty() && value.find(field.unless))) continue;
      names.append(count++ == 0 ? "'" : ", '").append(field.key).append("'");
      lines.append(lines_of(field, "\n    "));
    }
    if (count == 0) return;
    problem_ += (problem_.empty() ? "" : "; ") + std::string(count == 1 ? "key " : "keys ") + names +
                (count == 1 ? " is missing in " : " are missing in ") + value.path();
    const std::string line = lines.substr(lines.find_first_not_of("\n "));
    const bool first = hint_.empty();
    hint_ += first && count == 1 && line.find('\n') == std::string::npos
                 ? "add " + line + " to " + value.path()
                 : (first ? "add to " : "\n  and to ") + value.path() + lines;
    if (!block.base.empty()) {
      hint_ += "\n  or begin with " + block.base + ": " + example_of(*find_field(block, block.base)) +
               ", and write only what differs";
    }
    places_.push_back(value);
  }

  void add_to(InputErrors& errors, const YamlValue& file) const {
    if (places_.empty()) return;
    errors.add(InputError((places_.size() == 1 ? places_.front() : file).place(), problem_, hint_));
  }

 private:
  // A block of more than three required keys has a line for each of them.
  static std::string lines_of(const Field& field, const std::string& indent) {
    const auto* block = std::get_if<BlockShape>(&field.shape.form);
    const bool short_block = block == nullptr || !field.example.empty() ||
                             std::ranges::count(block->block->fields, true, &Field::required) <= 3;
    if (short_block) return indent + field.key + ": " + example_of(field);
    std::string lines = indent + field.key + ":";
    for (const Field& inner : block->block->fields) {
      if (inner.required) lines += lines_of(inner, indent + "  ");
    }
    return lines;
  }

  std::string problem_;
  std::string hint_;
  std::vector<YamlValue> places_;
};

void for_blocks(const FieldShape& shape, const auto& take) {
  if (const auto* block = std::get_if<BlockShape>(&shape.form)) take(*block->block);
  if (const auto* list = std::get_if<ListShape>(&shape.form)) for_blocks(list->of.front(), take);
  if (const auto* one_of = std::get_if<OneOfShape>(&shape.form)) {
    for (const FieldShape& one : one_of->shapes) for_blocks(one, take);
  }
}

struct KeyPlace {
  std::string path;  // of the block, from the root; empty: the root
  const FieldBlock* block = nullptr;
};

// Every block of the tables below `root`, the nearest first.
std::vector<KeyPlace> blocks_below(const FieldBlock& root) {
  std::vector<KeyPlace> places = {{"", &root}};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const KeyPlace at = places[i];
    for (const Field& field : at.block->fields) {
      for_blocks(field.shape, [&](const FieldBlock& inner) {
        const bool known = std::ranges::find(places, &inner, &KeyPlace::block) != places.end();
        if (!known) places.push_back({(at.path.empty() ? "" : at.path + ".") + field.key, &inner});
      });
    }
  }
  return places;
}

// "layout: {tensor: {degree: …}}"
std::string written(const std::string& path, const std::string& inside) {
  const std::size_t dot = path.find('.');
  if (path.empty()) return inside;
  return path.substr(0, dot) + ": {" + (dot == std::string::npos ? inside : written(path.substr(dot + 1), inside)) +
         "}";
}

std::string places_text(const std::vector<KeyPlace>& places, const std::string& key) {
  std::vector<std::string> texts;
  for (const KeyPlace& place : places) {
    if (texts.size() == 3) break;
    texts.push_back(written(place.path, key + ": …"));
  }
  return joined(texts, "or");
}

// The key that somebody means who writes `word` in `block`, with the block where it belongs.
std::string hint_for(const std::string& word, const FieldBlock& block, const FieldBlock& root) {
  const std::vector<std::string> keys = keys_of(block);
  if (std::string advice = advice_for_key(word); !advice.empty()) return advice;
  if (const std::string meant = key_meant(word, keys); !meant.empty()) return "the key is '" + meant + "' here";
  std::vector<KeyPlace> exact;
  std::vector<KeyPlace> others;
  std::string key_of_others;
  std::vector<std::string> all;
  for (const KeyPlace& place : blocks_below(root)) {
    if (place.block == &block) continue;
    const std::vector<std::string> own = keys_of(*place.block);
    all.insert(all.end(), own.begin(), own.end());
    if (find_field(*place.block, word) != nullptr) exact.push_back(place);
    const std::string meant = key_meant(word, own);
    if (meant.empty() || (!others.empty() && meant != key_of_others)) continue;
    key_of_others = meant;
    others.push_back(place);
  }
  if (nearest_word(word, keys)) return did_you_mean(word, keys);
  if (!exact.empty()) return "it belongs into " + places_text(exact, word);
  if (!others.empty()) return "the key is '" + key_of_others + "', in " + places_text(others, key_of_others);
  if (const auto nearest = nearest_word(word, all)) {
    std::vector<KeyPlace> places;
    for (const KeyPlace& place : blocks_below(root)) {
      if (find_field(*place.block, all[*nearest]) != nullptr) places.push_back(place);
    }
    return "did you mean '" + all[*nearest] + "', in " + places_text(places, all[*nearest]) + "?";
  }
  return did_you_mean(word, keys);
}

class Checker {
 public:
  Checker(InputErrors& errors, const FieldBlock* root) : errors_(errors), root_(root) {}

  void block(const FieldBlock& block, const YamlValue& value, bool partial) {
    if (!value.is_map()) return refuse_no_block(block, value);
    std::set<std::string> seen;
    for (const YamlEntry& entry : value.entries()) {
      if (!entry.key.is_scalar()) {
        fail(entry.key, value.path() + ": a key must be a word");
        continue;
      }
      const std::string word = entry.key.text();
      if (!seen.insert(word).second) {
        fail(entry.key, "key '" + excerpt(word) + "' stands twice");
      } else if (const Field* field = find_field(block, word)) {
        hint_ = field;
        shape(field->shape, entry.value);
      } else if (!block.open) {
        fail(entry.key, "unknown key '" + excerpt(word) + "' in " + value.path(),
             hint_for(word, block, root_ == nullptr ? block : *root_));
      }
    }
    if (!partial && sound_keys(value, seen)) missing_.look_in(value, block);
  }

  void shape(const FieldShape& shape, const YamlValue& value) {
    if (const auto* one_of = std::get_if<OneOfShape>(&shape.form)) return any_of(*one_of, value);
    errors_.attempt([&] { one(shape, value); });
  }

  void finish(const YamlValue& file) const { missing_.add_to(errors_, file); }

 private:
  // Doubled keys, which `find` refuses, are told already.
  static bool sound_keys(const YamlValue& value, const std::set<std::string>& seen) {
    return seen.size() == value.entries().size();
  }

  void fail(const YamlValue& at, const std::string& problem, const std::string& hint = "") {
    errors_.add(InputError(at.place(), problem, hint));
  }

  // A word or a number where keys belong is most likely the value of one of them.
  void refuse_no_block(const FieldBlock& block, const YamlValue& value) {
    const std::string name = value.path().substr(value.path().find_last_of('.') + 1);
    std::string problem = value.path() + ": expected keys and values";
    if (!value.is_scalar() || value.is_null()) {
      return fail(value, problem, "keys: " + did_you_mean("", keys_of(block)));
    }
    problem += ", not '" + excerpt(value.text()) + "'";
    std::string inside = block.bare.empty() ? "" : block.bare + ": " + (value.is_number() ? value.text() : "1");
    for (const Field& field : block.fields) {
      if (value.is_text() && knows(field.shape, value.text())) inside = field.key + ": " + value.text();
    }
    fail(value, problem, inside.empty() ? "keys: " + did_you_mean("", keys_of(block)) : name + ": {" + inside + "}");
  }

  static bool knows(const FieldShape& shape, const std::string& word) {
    if (const auto* choice = std::get_if<ChoiceShape>(&shape.form)) return find_name(word, choice->names).has_value();
    const auto* one_of = std::get_if<OneOfShape>(&shape.form);
    return one_of != nullptr &&
           std::ranges::any_of(one_of->shapes, [&](const FieldShape& one) { return knows(one, word); });
  }

  // A value of one of the block's keys: "2d" is a kind of tensor layout.
  static bool names_a_value(const FieldBlock& block, const std::string& word) {
    return std::ranges::any_of(block.fields, [&](const Field& field) { return knows(field.shape, word); });
  }

  void one(const FieldShape& shape, const YamlValue& value) {
    std::visit(Overloaded{[&](const BooleanShape&) { (void)value.boolean(); },
                          [&](const WholeShape& whole) {
                            (void)(whole.tokens ? value.tokens(whole.least, whole.most)
                                                : value.integer(whole.least, whole.most));
                          },
                          [&](const NumberShape& number) { (void)value.number(number.least, number.most); },
                          [&](const FractionShape& fraction) { (void)value.fraction(fraction.most); },
                          [&](const QuantityShape& quantity) { check_quantity(quantity, value); },
                          [&](const ChoiceShape& choice) { (void)value.choice(choice.names); },
                          [&](const WordShape& word) {
                            if (value.text() != word.word) value.fail(value.path() + ": expected " + word.word);
                          },
                          [&](const TextShape&) { (void)value.text(); },
                          [&](const BlockShape& inner) {
                            if (!inner.own_reader || !value.is_map()) block(*inner.block, value, inner.partial);
                          },
                          [&](const ListShape& list) { check_list(list, value); },
                          [&](const OneOfShape& one_of) { any_of(one_of, value); }},
               shape.form);
  }

  static void check_quantity(const QuantityShape& quantity, const YamlValue& value) {
    switch (quantity.kind) {
      case QuantityKind::bytes:
        (void)(quantity.zero ? value.bytes_or_none() : value.bytes());
        return;
      case QuantityKind::seconds:
        (void)value.seconds();
        return;
      case QuantityKind::bytes_per_second:
        (void)value.bytes_per_second();
        return;
      case QuantityKind::flops_per_second:
        (void)value.flops_per_second();
        return;
    }
  }

  // A text that has names is resolved by its reader, which knows files and names of others too.
  static bool matches(const TextShape& text, const std::string& word) {
    if (text.pattern.empty() || !text.names.empty()) return true;
    constexpr std::size_t longest = 4096;  // std::regex recurses
    return word.size() <= longest && std::regex_match(word, std::regex(text.pattern));
  }

  void check_list(const ListShape& list, const YamlValue& value) {
    const std::vector<YamlValue> items = value.items();
    if (items.empty() && list.least > 0) {
      value.fail("the list is empty, expected at least one value");
    }
    if (items.size() < list.least || items.size() > list.most) {
      value.fail(fmt::format("{}: expected {}{} values", value.path(), list.least,
                             list.most > list.least ? fmt::format(" to {}", list.most) : ""));
    }
    for (const YamlValue& item : items) shape(list.of.front(), item);
  }

  // By what can be seen of a value without reading it.
  static bool has_form(const FieldShape& shape, const YamlValue& value) {
    const bool scalar = value.is_scalar() && !value.is_null();
    return std::visit(
        Overloaded{[&](const BooleanShape&) { return scalar && is_flag(value); },
                   [&](const WholeShape& whole) {
                     return scalar && (value.is_number() || (whole.tokens && value.is_tokens()));
                   },
                   [&](const NumberShape&) { return scalar && value.is_number(); },
                   [&](const FractionShape&) { return scalar; }, [&](const QuantityShape&) { return scalar; },
                   [&](const ChoiceShape&) { return scalar; },
                   [&](const WordShape& word) { return scalar && value.text() == word.word; },
                   [&](const TextShape& text) { return scalar && matches(text, value.text()); },
                   [&](const BlockShape&) { return value.is_map(); }, [&](const ListShape&) { return value.is_list(); },
                   [&](const OneOfShape& one_of) {
                     return std::ranges::any_of(one_of.shapes,
                                                [&](const FieldShape& one) { return has_form(one, value); });
                   }},
        shape.form);
  }

  // Fit of a map to a block: true if its required keys are there, then the number of its known keys.
  static std::pair<bool, std::size_t> fit_of(const FieldShape& shape, const YamlValue& value) {
    const auto* inner = std::get_if<BlockShape>(&shape.form);
    if (inner == nullptr) return {false, 0};
    std::set<std::string> known;
    for (const YamlEntry& entry : value.entries()) {
      if (entry.key.is_scalar() && find_field(*inner->block, entry.key.text()) != nullptr) {
        known.insert(entry.key.text());
      }
    }
    const bool complete = std::ranges::all_of(
        inner->block->fields, [&](const Field& field) { return !field.required || known.contains(field.key); });
    return {complete, known.size()};
  }

  void any_of(const OneOfShape& one_of, const YamlValue& value) {
    std::vector<const FieldShape*> fitting;
    for (const FieldShape& shape : one_of.shapes) {
      if (has_form(shape, value)) fitting.push_back(&shape);
    }
    if (fitting.empty()) return refuse(one_of, value);
    if (value.is_map()) {
      const auto best =
          std::ranges::max_element(fitting, {}, [&](const FieldShape* candidate) { return fit_of(*candidate, value); });
      return shape(**best, value);
    }
    for (const FieldShape* candidate : fitting) {
      InputErrors own;
      Checker alone(own, root_);
      alone.shape(*candidate, value);
      if (own.none()) return shape(*candidate, value);
    }
    if (std::holds_alternative<ChoiceShape>(fitting.front()->form)) return refuse(one_of, value);
    shape(*fitting.front(), value);
  }

  static void add_names(const FieldShape& shape, std::vector<std::string>& names) {
    if (const auto* choice = std::get_if<ChoiceShape>(&shape.form)) {
      names.insert(names.end(), choice->names.begin(), choice->names.end());
    }
    if (const auto* text = std::get_if<TextShape>(&shape.form)) {
      names.insert(names.end(), text->names.begin(), text->names.end());
    }
    if (const auto* word = std::get_if<WordShape>(&shape.form)) names.push_back(word->word);
    if (const auto* one_of = std::get_if<OneOfShape>(&shape.form)) {
      for (const FieldShape& one : one_of->shapes) add_names(one, names);
    }
  }

  void refuse(const OneOfShape& one_of, const YamlValue& value) {
    const bool left_to_reader = std::ranges::any_of(one_of.shapes, [](const FieldShape& shape) {
      const auto* inner = std::get_if<BlockShape>(&shape.form);
      return inner != nullptr && inner->own_reader;
    });
    if (left_to_reader) return;
    const std::string example = hint_ == nullptr || hint_->example.empty() ? "" : hint_->key + ": " + hint_->example;
    if (value.is_scalar() && !value.is_null()) {
      std::vector<std::string> names;
      for (const FieldShape& shape : one_of.shapes) add_names(shape, names);
      const std::string word = value.text();
      for (const FieldShape& shape : one_of.shapes) {
        const auto* inner = std::get_if<BlockShape>(&shape.form);
        const Field* field = inner == nullptr ? nullptr : find_field(*inner->block, word);
        if (field == nullptr) continue;
        return fail(value, value.path() + ": '" + word + "' needs a value",
                    "{" + word + ": " + example_of(*field) + "}");
      }
      const bool named = std::ranges::any_of(one_of.shapes, [](const FieldShape& shape) {
        return std::holds_alternative<ChoiceShape>(shape.form) || std::holds_alternative<TextShape>(shape.form);
      });
      if (named || (!value.is_number() && nearest_word(word, names))) {
        return fail(value, value.path() + ": unknown '" + excerpt(word) + "'", did_you_mean(word, names));
      }
      for (const FieldShape& shape : one_of.shapes) {
        const auto* inner = std::get_if<BlockShape>(&shape.form);
        if (inner != nullptr && (example.empty() || value.is_number() || names_a_value(*inner->block, word)))
          return refuse_no_block(*inner->block, value);
      }
    }
    const std::string found = !value.is_scalar() || value.is_null() ? "" : ", not '" + excerpt(value.text()) + "'";
    fail(value, value.path() + ": expected " + describe(FieldShape{one_of}) + found, example);
  }

  InputErrors& errors_;
  const FieldBlock* root_;
  const Field* hint_ = nullptr;  // field whose value is looked at
  MissingKeys missing_;
};

}  // namespace

bool check_fields(const FieldBlock& block, const YamlValue& value, InputErrors& errors, const FieldBlock* root) {
  InputErrors own;
  Checker checker(own, root == nullptr ? &block : root);
  checker.block(block, value, false);
  checker.finish(value);
  errors.add(own);
  return own.none();
}

bool check_fields(const FieldShape& shape, const YamlValue& value, InputErrors& errors, const FieldBlock* root) {
  InputErrors own;
  Checker checker(own, root);
  checker.shape(shape, value);
  checker.finish(value);
  errors.add(own);
  return own.none();
}

void check_fields(const FieldBlock& block, const YamlValue& value, const FieldBlock* root) {
  InputErrors errors;
  check_fields(block, value, errors, root);
  errors.throw_if_any();
}

YamlValue value_or_default(const FieldBlock& block, const std::optional<YamlValue>& value, std::string_view key) {
  if (value) {
    if (auto given = value->find(key)) return *std::move(given);
  }
  return YamlValue::parse(find_field(block, key)->default_text, "default of " + std::string(key));
}

}  // namespace plumb
