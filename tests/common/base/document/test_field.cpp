// Tables of fields: every fault of a value is named, with its place and with what is allowed.
#include "common/base/document/field.hpp"

#include <nlohmann/json.hpp>

#include "common/base/document/field_page.hpp"
#include "common/base/document/json_schema.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

const FieldBlock& inner() {
  static const FieldBlock block{
      .name = "inner",
      .title = "Inner",
      .description = "An inner block.",
      .fields = {{.key = "degree", .shape = shapes::whole(1, 8), .description = "Degree.", .default_text = "1"},
                 {.key = "kind", .shape = shapes::choice({"ring", "tree"}), .description = "Kind.", .required = true}},
      .bare = "degree"};
  return block;
}

const FieldBlock& outer() {
  static const FieldBlock block{
      .name = "outer",
      .title = "Outer",
      .description = "An outer block.",
      .fields = {{.key = "size", .shape = shapes::tokens(1 << 20), .description = "Size.", .example = "4k"},
                 {.key = "share", .shape = shapes::fraction(1), .description = "Share."},
                 {.key = "rate", .shape = shapes::number(0, 10), .description = "Rate."},
                 {.key = "memory", .shape = shapes::bytes(), .description = "Memory.", .with = "share"},
                 {.key = "flag", .shape = shapes::open(shapes::flag()), .description = "Flag."},
                 {.key = "ways",
                  .shape = shapes::open(shapes::any_of({shapes::choice({"none", "some"}), shapes::block(inner())})),
                  .description = "Ways."}}};
  return block;
}

std::string faults(const std::string& text) {
  InputErrors errors;
  check_fields(outer(), YamlValue::parse(text, "f.yaml"), errors);
  try {
    errors.throw_if_any();
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("values of every shape are accepted as they are written") {
  for (const char* text : {"size: 64k", "size: 1M", "size: 17", "share: 5%\nmemory: 1 GiB", "share: 0.5\nmemory: 1 GiB",
                           "rate: 1e-3", "flag: true", "flag: auto", "flag: [true, false]", "ways: some",
                           "ways: {kind: ring}", "ways: auto", "ways: [none, {kind: tree, degree: 2}]"}) {
    CAPTURE(text);
    CHECK(faults(text) == "none");
  }
}

TEST_CASE("each kind of fault is named with its place and the allowed values") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"sise: 1", "f.yaml:1:1: unknown key 'sise' in the file\n  hint: did you mean 'size'?"},
      {"size: 1\nsize: 2", "f.yaml:2:1: key 'size' stands twice"},
      {"size: 0", "f.yaml:1:7: size: expected a whole number from 1 to 1048576, not '0'"},
      {"size: 2M", "f.yaml:1:7: size: expected a whole number from 1 to 1048576, not '2M'"},
      {"size: [1]", "f.yaml:1:7: size: expected a whole number from 1"},
      {"share: 2\nmemory: 1 GB", "f.yaml:1:8: share: expected a fraction from 0 to 1"},
      {"share: 1%", "key 'memory' is missing in the file"},
      {"rate: 1e309", "f.yaml:1:7: rate: expected a number from 0 to 10, not '1e309'"},
      {"memory: 5", "f.yaml:1:9: memory: '5' has no unit"},
      {"memory: 0 GB", "f.yaml:1:9: memory: must be more than zero"},
      {"flag: 3", "f.yaml:1:7: flag: expected true or false, auto, or a list of these, not '3'"},
      {"flag: []", "f.yaml:1:7: the list is empty"},
      {"ways: somee", "f.yaml:1:7: ways: unknown 'somee'\n  hint: did you mean 'some'?"},
      {"ways: ring", "f.yaml:1:7: ways: unknown 'ring'"},
      {"ways: {degree: 9}", "f.yaml:1:16: ways.degree: expected a whole number from 1 to 8, not '9'"},
      {"ways: {degree: 2}", "key 'kind' is missing in ways\n  hint: add kind: ring to ways"},
      {"ways: [some, {knd: ring}]", "f.yaml:1:15: unknown key 'knd' in ways[1]"},
      {"degree: 2", "f.yaml:1:1: unknown key 'degree' in the file\n  hint: it belongs into ways: {degree: …}"},
      {"[1]", "f.yaml:1:1: the file: expected keys and values"}};
  for (const auto& [text, part] : cases) {
    CAPTURE(text);
    CHECK_THAT(faults(text), ContainsSubstring(part));
  }
}

TEST_CASE("all faults of a file are one error with a line for each") {
  const std::string all = faults("size: 0\nrate: -1\nways: {degree: 9, kind: rong}\nflag: maybe\nother: 1\n");
  for (const char* part : {"f.yaml:1:7", "f.yaml:2:7", "f.yaml:3:16", "f.yaml:3:25", "f.yaml:4:7", "f.yaml:5:1"}) {
    CHECK_THAT(all, ContainsSubstring(part));
  }
}

TEST_CASE("descriptions, defaults and examples of shapes") {
  CHECK(describe(shapes::open(shapes::whole(1, 8))) == "a whole number from 1 to 8, auto, or a list of these");
  CHECK(describe(shapes::list(shapes::whole(1, 8))) == "a list of whole numbers from 1 to 8");
  CHECK(example_of(*find_field(outer(), "ways")) == "none");
  CHECK(value_or_default(inner(), std::nullopt, "degree").integer() == 1);
  CHECK(value_or_default(inner(), YamlValue::parse("degree: 3", "f.yaml"), "degree").integer() == 3);
}

TEST_CASE("the JSON Schema has types, ranges, units, names and required keys") {
  const auto schema = nlohmann::json::parse(json_schema("outer", "A file.", shapes::block(outer())));
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  const auto& definition = schema["$defs"]["outer"];
  CHECK(definition["additionalProperties"] == false);
  CHECK(definition["properties"]["rate"]["maximum"] == 10);
  CHECK(definition["dependentRequired"]["share"] == nlohmann::json{"memory"});
  CHECK(schema["$defs"]["inner"]["required"] == nlohmann::json{"kind"});
  CHECK(schema["$defs"]["inner"]["properties"]["degree"]["default"] == 1);
}

TEST_CASE("the reference page has a heading for each block and a row for each key") {
  const std::string page = tables_of({.block = outer()});
  CHECK_THAT(page, ContainsSubstring("| `size` | tokens from 1 to 1048576, such as 8k |  | Size. |") &&
                       ContainsSubstring("[a block](#ways)") && ContainsSubstring("## `ways`") &&
                       ContainsSubstring("| `kind` | `ring`, `tree` | required | Kind. |"));
}
