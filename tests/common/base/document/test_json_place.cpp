// Where a value stands in its text, found by its path.
#include "common/base/document/json_place.hpp"

#include "common/base/document/json.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

const std::string document = R"({
  "name": "a \"quoted\" {name}, [with] all",
  "empty": [], "none": {},
  "stages": [
    {"forward_s": 1.5, "list": [1, 2]},
    {"forward_s": -2e-3,
     "kept": true}
  ],
  "last": null, "twice": 1,
  "twice": 2
})";

std::string place(const std::string& path, const std::string& text = document) {
  return to_string(place_in_json(text, path, "x"));
}

}  // namespace

TEST_CASE("a value is found by its path") {
  CHECK(place("") == "x:1:1");
  CHECK(place("name") == "x:2:11");
  CHECK(place("none") == "x:3:24");
  CHECK(place("stages") == "x:4:13");
  CHECK(place("stages[0].list[1]") == "x:5:36");
  CHECK(place("stages[1].forward_s") == "x:6:19");
  CHECK(place("stages[1].kept") == "x:7:14");
  CHECK(place("last") == "x:9:11");
  CHECK(place("stages[1].kept", "  " + document) == "x:7:14");
}

TEST_CASE("a key that stands twice is refused, and placed where it stands last") {
  CHECK_THROWS_AS(parse_json(document, "x"), InputError);
  CHECK(place("twice") == "x:10:12");
}

TEST_CASE("a byte of zero is no end of JSON") {
  using namespace std::string_literals;
  CHECK(parse_json("{\"a\": 1}\n", "x") == Json{{"a", 1}});
  for (const std::string& text : {"{\"a\": 1}\n\0"s, "{\"a\": 1}\n\0garbage"s, "{\"a\":\n\0 1}"s}) {
    CHECK_THROWS_WITH(parse_json(text, "x"), Catch::Matchers::StartsWith("x:2:1: not JSON: a byte of zero"));
  }
}

TEST_CASE("a missing value is placed at the nearest enclosing value") {
  CHECK(place("stages[7].forward_s") == "x:4:13");
  CHECK(place("stages[1].nothing") == "x:6:5");
  CHECK(place("empty[0]") == "x:3:12");
  CHECK(place("name.inside") == "x:2:11");
  CHECK(place("nowhere") == "x:1:1");
}

TEST_CASE("every value of a document is found where it stands") {
  // Written on one line each, so that the order of lines is the order of values.
  const Json value{{"a", {{"b", {1, 2, {{"c", "]}"}}}}, {"d", "\\"}}}, {"e", false}};
  const std::string text = to_text(value);
  for (const auto& [path, line] : std::vector<std::pair<std::string, std::string>>{
           {"a.b[0]", "1"}, {"a.b[1]", "2"}, {"a.b[2].c", "\"]}\""}, {"a.d", "\"\\\\\""}, {"e", "false"}}) {
    const Place found = place_in_json(text, path, "x");
    std::size_t at = 0;
    for (int skipped = 1; skipped < found.line; ++skipped) at = text.find('\n', at) + 1;
    CHECK(text.substr(at + static_cast<std::size_t>(found.column) - 1, line.size()) == line);
  }
}

TEST_CASE("text that is not JSON ends the search, never the program") {
  for (const std::string text : {"", "{", "[", "{\"a", "{\"a\":", "{\"a\": [1, ", "\"", "{\"a\\", "}{", "[[[["}) {
    CHECK_NOTHROW(place("a[3].b", text));
    CHECK_NOTHROW(place("[0][0]", text));
  }
}

TEST_CASE("a number that no double holds is refused with its line and key") {
  const std::string text = "{\n  \"name\": \"1e400\",\n  \"step_s\": [1.5, -1e309]\n}\n";
  CHECK_THROWS_WITH(parse_json(text, "plan.json"),
                    ContainsSubstring("plan.json:3:19: step_s: is -1e309, expected a number that a double holds"));
  CHECK_THROWS_WITH(parse_json("1e999", "x.json"), ContainsSubstring("x.json:1:1: is 1e999"));
  CHECK_NOTHROW(parse_json("[1e308, 1e-400]", "x.json"));
}
