#include "common/base/files.hpp"

#include <filesystem>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("a file is written whole under its name, and nothing is left beside it") {
  const auto folder = std::filesystem::temp_directory_path() / "plumb_test_files";
  std::filesystem::create_directories(folder);
  const auto path = folder / "a.json";
  write_file(path, "first");
  write_file(path, "second");
  CHECK(read_file(path) == "second");
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
  CHECK_THROWS_AS(write_file(folder / "missing" / "a.json", "x"), InputError);
  CHECK_THROWS_AS(write_file(folder, "x"), InputError);
  CHECK_THROWS_AS(read_file(folder), InputError);
  CHECK_THROWS_AS(read_file(folder / "b.json"), InputError);
  std::filesystem::remove_all(folder);
}
