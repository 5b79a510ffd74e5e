// The tree keeps the rules of the house.
#include <filesystem>
#include <sstream>

#include "common/base/files.hpp"
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

// True if the CMakeLists.txt of the file's folder, or of one above it, names it.
bool is_listed(const std::string& path) {
  for (auto folder = std::filesystem::path(path).parent_path(); !folder.empty(); folder = folder.parent_path()) {
    const auto list = std::filesystem::path(PLUMB_SOURCE_DIR) / folder / "CMakeLists.txt";
    if (!std::filesystem::exists(list)) continue;
    std::string text = plumb::read_file(list);
    for (char& c : text) c = c == '(' || c == ')' ? ' ' : c;
    const std::string name = std::filesystem::path(path).lexically_relative(folder).generic_string();
    std::istringstream stream(text);
    for (std::string word; stream >> word;) {
      if (word == name) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("the tree is found") { REQUIRE(tree().size() > 40); }

TEST_CASE("the tree: directions of includes") {
  for (const SourceFile& file : tree()) check_none(wrong_directions(file));
}

TEST_CASE("the tree: libraries in their places") {
  for (const SourceFile& file : tree()) check_none(misplaced_libraries(file));
  check_none(shared_engines(tree()));
}

TEST_CASE("the tree: includes resolve, without cycles") {
  check_none(unresolved_includes(tree()));
  check_none(include_cycles(tree()));
}

TEST_CASE("the tree: style") {
  for (const SourceFile& file : tree()) check_none(broken_style(file));
}

// A header in no file set would not be compiled alone; a source in no list would not be compiled at all.
TEST_CASE("the tree: every file stands in a CMakeLists.txt") {
  for (const SourceFile& file : tree()) {
    if (is_header(file) && top_folder(file.path) == "tests") continue;
    if (!is_listed(file.path)) FAIL_CHECK(file.path + " stands in no CMakeLists.txt");
  }
}
