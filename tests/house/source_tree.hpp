// What the tests of the house see of the tree: files with their lines and includes, and the rules as pure functions.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace plumb::house {

struct Include {
  std::string path;     // as written between the quotes or angle brackets
  bool quoted = false;  // "…": one of ours
  int line = 0;
};

struct SourceFile {
  std::string path;  // relative to the root, with '/'
  std::vector<std::string> lines;
};

// All C++ and CUDA files of common, sim, exec, kernels and tests, by path.
[[nodiscard]] std::vector<SourceFile> source_files(const std::filesystem::path& root);

[[nodiscard]] SourceFile source_file(std::string path, std::string_view text);
[[nodiscard]] std::vector<Include> includes_of(const SourceFile& file);
[[nodiscard]] bool is_header(const SourceFile& file);

// The first folder of a path: "common/base/error.hpp" -> "common".
[[nodiscard]] std::string top_folder(std::string_view path);

// What a CMakeLists.txt names: sources and private headers, and the headers of its file sets, which are public.
struct ListedFiles {
  std::set<std::string> all;
  std::set<std::string> public_headers;
};
[[nodiscard]] ListedFiles files_listed_in(std::string_view folder, std::string_view text);
// Of all CMakeLists.txt of the tree.
[[nodiscard]] ListedFiles listed_files(const std::filesystem::path& root);

// Each returns one line per violation, "path:line: what", or nothing. Of one file:
[[nodiscard]] std::vector<std::string> wrong_directions(const SourceFile& file);
[[nodiscard]] std::vector<std::string> misplaced_libraries(const SourceFile& file, const ListedFiles& listed);
[[nodiscard]] std::vector<std::string> broken_style(const SourceFile& file);
// A source includes the header of its name first, so that the header is seen to compile alone.
[[nodiscard]] std::vector<std::string> late_headers(const SourceFile& file, const std::set<std::string>& paths);
// Of the tree:
[[nodiscard]] std::vector<std::string> shared_engines(const std::vector<SourceFile>& files);
[[nodiscard]] std::vector<std::string> unresolved_includes(const std::vector<SourceFile>& files);
[[nodiscard]] std::vector<std::string> include_cycles(const std::vector<SourceFile>& files);
// Folders, those below others included, include each other in one direction.
[[nodiscard]] std::vector<std::string> folder_cycles(const std::vector<SourceFile>& files);
// Two types of one name in one namespace break a program that links both, wherever they are seen (ODR): those that the
// headers outside of tests define, by name and namespace.
[[nodiscard]] std::vector<std::string> repeated_types(const std::vector<SourceFile>& files);

}  // namespace plumb::house
