#include "common/base/files.hpp"

#include <unistd.h>

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

TEST_CASE("whether a file can be written is known before it is") {
  const auto folder = std::filesystem::temp_directory_path() / "plumb_test_writable";
  std::filesystem::create_directories(folder);
  CHECK_NOTHROW(require_writable(folder / "new.json"));
  CHECK_NOTHROW(require_writable("new.json"));
  CHECK_NOTHROW(require_writable("/dev/null"));
  CHECK(std::filesystem::is_empty(folder));
  CHECK_THROWS_WITH(require_writable(folder / "missing/a.json"), ContainsSubstring("mkdir -p "));
  CHECK_THROWS_WITH(require_writable(folder), ContainsSubstring("is a folder"));
  CHECK_THROWS_AS(require_writable(""), InputError);
  if (std::filesystem::is_directory("/proc/self")) {  // in which nobody makes files, whatever its permissions say
    CHECK_THROWS_WITH(require_writable("/proc/self/x.json"), ContainsSubstring("cannot be written"));
  }
  // Whose folder belongs to somebody else; root may write to it nevertheless.
  std::filesystem::permissions(folder, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  if (::access(folder.c_str(), W_OK) != 0) {
    CHECK_THROWS_WITH(require_writable(folder / "a.json"), ContainsSubstring("Permission denied"));
  }
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  std::filesystem::remove_all(folder);
}

TEST_CASE("special files are written to, not replaced, and a link stays a link") {
  const auto folder = std::filesystem::temp_directory_path() / "plumb_test_special_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  write_file(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  write_file(folder / "link", "new");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "target") == "new");

  std::filesystem::create_symlink("/dev/null", folder / "nothing");
  write_file(folder / "nothing", "x");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  if (std::filesystem::is_character_file("/dev/full")) {
    std::filesystem::create_symlink("/dev/full", folder / "full");
    CHECK_THROWS_AS(write_file(folder / "full", "x"), RunError);
    CHECK(std::filesystem::is_character_file("/dev/full"));
  }
  CHECK_THROWS_AS(write_file("", "x"), InputError);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a pipe is read to its end, and a device without one is refused") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::write(ends[1], "a: 1\n", 5) == 5);
  ::close(ends[1]);
  CHECK(read_file("/dev/fd/" + std::to_string(ends[0])) == "a: 1\n");
  ::close(ends[0]);
  CHECK(read_file("/dev/null").empty());
  if (std::filesystem::is_character_file("/dev/zero")) {
    CHECK_THROWS_WITH(read_file("/dev/zero"), ContainsSubstring("/dev/zero: is no regular file, and has not ended"));
  }
}
