// Tables of the fields of YAML files. Readers, messages, JSON Schemas and the reference pages use the same tables.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/document/yaml.hpp"
#include "common/base/input_errors.hpp"

namespace plumb {

struct FieldBlock;
struct FieldShape;

struct BooleanShape {};
struct WholeShape {
  std::int64_t least = 1;
  std::int64_t most = std::numeric_limits<int>::max();
  bool tokens = false;  // also 64k or 1M, as contexts are written: k is 1024, M is 1024²
};
struct NumberShape {
  double least = 0;
  double most = 0;
  bool above_least = false;  // `least` itself is refused, by the reader
};
// A number from 0 to `most`, or a percentage.
struct FractionShape {
  double most = 1;
};
enum class QuantityKind : std::uint8_t { bytes, seconds, bytes_per_second, flops_per_second };
struct QuantityShape {
  QuantityKind kind = QuantityKind::bytes;
  bool zero = false;  // zero is allowed
};
// One of the names, or a name that others have for one of them (find_name of synonyms.hpp).
struct ChoiceShape {
  std::vector<std::string> names;
};
// One word as it is written here: auto, none.
struct WordShape {
  std::string word;
};
// Text: a name, a file, a formula. If it has names, its reader resolves it.
struct TextShape {
  std::string what;                     // "a file"
  std::vector<std::string> names = {};  // values that are known
  std::string pattern = {};             // regular expression for whole texts that are no name; any text if empty
};
// Pattern of a file's name where a name may stand.
inline constexpr const char* file_pattern = ".*\\.(yaml|yml|json)";
struct BlockShape {
  const FieldBlock* block = nullptr;
  bool own_reader = false;  // its reader checks it: it may name a file, or another block that it changes
  bool partial = false;     // nothing in it is required: something else completes it
};
struct ListShape {
  std::vector<FieldShape> of;  // one shape
  std::size_t least = 1;
  std::size_t most = 1'000'000;
};
// Any of several shapes. The first that is no word is the usual one: a value that fits none is refused in its words.
struct OneOfShape {
  std::vector<FieldShape> shapes;
};
struct FieldShape {
  std::variant<BooleanShape, WholeShape, NumberShape, FractionShape, QuantityShape, ChoiceShape, WordShape, TextShape,
               BlockShape, ListShape, OneOfShape>
      form;
};

struct Field {
  std::string key = {};
  FieldShape shape = {};
  std::string description = {};
  std::string default_text = {};  // as YAML, or in words if it depends on other keys; empty if there is none
  std::string example = {};       // a value, as YAML
  bool required = false;
  std::string unless = {};  // key that stands in for a required one
  std::string with = {};    // key that makes this one required
};

struct FieldBlock {
  std::string name = {};   // "training"
  std::string title = {};  // "Training"
  std::string description = {};
  std::vector<Field> fields = {};
  std::string bare = {};  // key that a bare number in place of the block most likely is
  std::string base = {};  // key that names another block to change ("like"): with it nothing is required
  bool open = false;      // it may have other keys, which its reader checks
};

namespace shapes {

[[nodiscard]] FieldShape flag();
[[nodiscard]] FieldShape whole(std::int64_t least, std::int64_t most = std::numeric_limits<int>::max());
[[nodiscard]] FieldShape tokens(std::int64_t most, std::int64_t least = 1);
[[nodiscard]] FieldShape number(double least, double most);
[[nodiscard]] FieldShape fraction(double most);
[[nodiscard]] FieldShape bytes(bool zero = false);
[[nodiscard]] FieldShape seconds();
[[nodiscard]] FieldShape bytes_per_second();
[[nodiscard]] FieldShape flops_per_second();
[[nodiscard]] FieldShape choice(std::vector<std::string> names);
[[nodiscard]] FieldShape word(std::string word);
[[nodiscard]] FieldShape text(std::string what, std::vector<std::string> names = {}, std::string pattern = "");
[[nodiscard]] FieldShape block(const FieldBlock& block);
[[nodiscard]] FieldShape own(const FieldBlock& block);  // with a reader of its own
[[nodiscard]] FieldShape list(FieldShape of, std::size_t least = 1, std::size_t most = 1'000'000);
[[nodiscard]] FieldShape any_of(std::vector<FieldShape> shapes);
// A value, a list of values to choose from, or auto.
[[nodiscard]] FieldShape open(FieldShape shape);

}  // namespace shapes

// nullptr if the block has no such field.
[[nodiscard]] const Field* find_field(const FieldBlock& block, std::string_view key);
[[nodiscard]] std::vector<std::string> keys_of(const FieldBlock& block);

// "a whole number from 1 to 64, auto, or a list of these"
[[nodiscard]] std::string describe(const FieldShape& shape);
// "5 GiB": a value that has the shape; of a block its required keys.
[[nodiscard]] std::string example_of(const Field& field);

// Adds every fault of `value` that shows in one key: unknown, doubled and missing keys, wrong types, ranges, units and
// choices. A key of another block of `root` is answered with that block. Blocks with a reader of their own are left to
// it. Returns whether there was none.
bool check_fields(const FieldBlock& block, const YamlValue& value, InputErrors& errors,
                  const FieldBlock* root = nullptr);
bool check_fields(const FieldShape& shape, const YamlValue& value, InputErrors& errors,
                  const FieldBlock* root = nullptr);
// Throws InputError that names all of them.
void check_fields(const FieldBlock& block, const YamlValue& value, const FieldBlock* root = nullptr);

// Reads the sound values of a block, and keeps what is wrong with the others.
class CheckedBlock {
 public:
  CheckedBlock(const FieldBlock& block, const YamlValue& value, InputErrors& errors, const FieldBlock* root)
      : block_(block), value_(value), errors_(errors) {
    check_fields(block, value, errors, root);
  }

  // Calls `take` with the value of `key` if that is there and sound, and keeps the InputError that it throws.
  template <class Take>
  void read(const char* key, const Take& take) {
    errors_.attempt([&] {
      const std::optional<YamlValue> value = value_.find(key);
      InputErrors own;
      if (value && check_fields(find_field(block_, key)->shape, *value, own)) take(*value);
    });
  }

 private:
  const FieldBlock& block_;
  const YamlValue& value_;
  InputErrors& errors_;
};

// The checked value of `key`, or the table's default for it.
[[nodiscard]] YamlValue value_or_default(const FieldBlock& block, const std::optional<YamlValue>& value,
                                         std::string_view key);

}  // namespace plumb
