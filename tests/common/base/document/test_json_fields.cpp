#include "common/base/document/json_fields.hpp"

#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

struct Named {
  std::string name = "one";
  int count = 0;
  std::vector<int> list = {};
  bool operator==(const Named&) const = default;
};

template <class Archive>
void fields(Archive& archive, Named& x) {
  archive("name", x.name);
  archive.unless_usual("count", x.count, 1);  // other than an object of its own begins with
  archive.unless_usual("list", x.list);
}

Named read_back(const std::string& text) {
  const Json json = Json::parse(text);
  return read_fields<Named>({json, "file.json", "", text});
}

}  // namespace

TEST_CASE("keys of usual values are left out, and read as these") {
  CHECK(to_line(write_fields(Named{.name = "a", .count = 1})) == R"({"name":"a"})");
  CHECK(to_line(write_fields(Named{.name = "a", .count = 0, .list = {2, 3}})) ==
        R"({"name":"a","count":0,"list":[2,3]})");
  CHECK(read_back(R"({"name": "a"})") == Named{.name = "a", .count = 1});
  CHECK(read_back(R"({"name": "a", "count": 1, "list": []})") == Named{.name = "a", .count = 1});
  CHECK(read_back(R"({"list": [2, 3], "count": 0, "name": "a"})") == Named{.name = "a", .count = 0, .list = {2, 3}});
}

TEST_CASE("keys that may be left out are known, and what they have is checked") {
  CHECK_THROWS_WITH(read_back(R"({"name": "a", "cont": 2})"), ContainsSubstring("did you mean 'count'?"));
  CHECK_THROWS_WITH(read_back(R"({"name": "a", "count": "2"})"), ContainsSubstring("count"));
  CHECK_THROWS_WITH(read_back(R"({"count": 2})"), ContainsSubstring("name"));
}
