// The tree keeps the rules of the house.
#include "tests/catch.hpp"
#include "tests/house/source_tree.hpp"

using namespace plumb::house;

namespace {

const std::vector<SourceFile>& tree() {
  static const std::vector<SourceFile> files = source_files(PLUMB_SOURCE_DIR);
  return files;
}

void check_none(const std::vector<std::string>& violations) {
  for (const std::string& violation : violations) FAIL_CHECK(violation);
}

const ListedFiles& lists() {
  static const ListedFiles listed = listed_files(PLUMB_SOURCE_DIR);
  return listed;
}

}  // namespace

TEST_CASE("the tree is found") { REQUIRE(tree().size() > 40); }

TEST_CASE("the tree: directions of includes") {
  for (const SourceFile& file : tree()) check_none(wrong_directions(file));
}

TEST_CASE("the tree: libraries in their places") {
  for (const SourceFile& file : tree()) check_none(misplaced_libraries(file, lists()));
  REQUIRE(lists().public_headers.size() > 20);
  check_none(shared_engines(tree()));
}

TEST_CASE("the tree: includes resolve, without cycles") {
  check_none(unresolved_includes(tree()));
  check_none(include_cycles(tree()));
  check_none(folder_cycles(tree()));
}

TEST_CASE("the tree: no type is defined twice") { check_none(repeated_types(tree())); }

TEST_CASE("the tree: style") {
  for (const SourceFile& file : tree()) check_none(broken_style(file));
}

TEST_CASE("the tree: a source includes its own header first") {
  std::set<std::string> paths;
  for (const SourceFile& file : tree()) paths.insert(file.path);
  for (const SourceFile& file : tree()) check_none(late_headers(file, paths));
}

// A header in no file set would not be compiled alone; a source in no list would not be compiled at all.
TEST_CASE("the tree: every file stands in a CMakeLists.txt") {
  for (const SourceFile& file : tree()) {
    if (is_header(file) && top_folder(file.path) == "tests") continue;
    if (!lists().all.contains(file.path)) FAIL_CHECK(file.path + " stands in no CMakeLists.txt");
  }
}
