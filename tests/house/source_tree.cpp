#include "tests/house/source_tree.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "common/base/files.hpp"

namespace plumb::house {
namespace {

const std::vector<std::string> folders = {"common", "sim", "exec", "kernels", "tests"};

// Who may include whose headers; tests may include all.
const std::map<std::string, std::set<std::string>> may_include = {
    {"common", {"common"}},
    {"kernels", {"kernels"}},
    {"sim", {"sim", "common"}},
    {"exec", {"exec", "common", "kernels"}},
};

// A library by the start of its headers' names, and the only folder that may see it. Public headers see none of them.
struct Library {
  std::string prefix;
  std::string folder;  // any of ours if empty
};
const std::vector<Library> libraries = {
    {"nlohmann/json.hpp", ""},
    {"simgrid/", "sim"},
    {"torch/", "exec"},
    {"ATen/", "exec"},
    {"c10/", "exec"},
    {"gloo/", "exec"},
    {"nccl", "exec"},
    {"cuda", "kernels"},
    {"yaml-cpp/", "common"},
    {"CLI/", ""},
    {"fmt/", ""},
    {"boost/graph/topological_sort", ""},
    {"boost/graph/dag_", ""},
    {"boost/graph/graphviz", ""},
};

// The rooms of common in the order in which the data flow: each may include those before it.
const std::vector<std::string> rooms = {"base",      "capability", "model",    "cluster",    "layout",
                                        "placement", "split",      "schedule", "cost",       "program",
                                        "graph",     "timeline",   "scenario", "block_cost", "scenario_file",
                                        "plan",      "planner",    "study",    "search"};

// Returns the index of a path like common/ROOM/… in `rooms`; nullopt for other paths.
std::optional<std::size_t> room_of(std::string_view path) {
  if (top_folder(path) != "common") return std::nullopt;
  const std::string_view behind = path.substr(std::string_view("common/").size());
  const auto found = std::ranges::find(rooms, std::string(behind.substr(0, behind.find('/'))));
  if (found == rooms.end()) return std::nullopt;
  return static_cast<std::size_t>(found - rooms.begin());
}

std::string folder_of(std::string_view path) { return std::string(path.substr(0, path.rfind('/'))); }

std::string place(const SourceFile& file, int line) { return file.path + ":" + std::to_string(line) + ": "; }

}  // namespace

std::string top_folder(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

bool is_header(const SourceFile& file) { return file.path.ends_with(".hpp") || file.path.ends_with(".cuh"); }

SourceFile source_file(std::string path, std::string_view text) {
  SourceFile file{.path = std::move(path), .lines = {}};
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) file.lines.push_back(line);
  return file;
}

std::vector<SourceFile> source_files(const std::filesystem::path& root) {
  static const std::set<std::string> kinds = {".hpp", ".cpp", ".cu", ".cuh"};
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !kinds.contains(entry.path().extension().string())) continue;
      const std::string path = std::filesystem::relative(entry.path(), root).generic_string();
      files.push_back(source_file(path, read_file(entry.path())));
    }
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    std::smatch match;
    if (std::regex_search(file.lines[i], match, pattern)) {
      includes.push_back({.path = match[2], .quoted = match[1] == "\"", .line = static_cast<int>(i) + 1});
    }
  }
  return includes;
}

std::vector<std::string> wrong_directions(const SourceFile& file) {
  std::vector<std::string> found;
  const auto allowed = may_include.find(top_folder(file.path));
  if (allowed == may_include.end()) return found;
  for (const Include& include : includes_of(file)) {
    const std::string target = top_folder(include.path);
    const bool ours = std::ranges::find(folders, target) != folders.end();
    if (ours && !allowed->second.contains(target)) {
      found.push_back(place(file, include.line) + allowed->first + " must not include " + target);
    }
    const auto own = room_of(file.path);
    const auto other = room_of(include.path);
    if (own && other && *other > *own) {
      found.push_back(place(file, include.line) + "common/" + rooms[*own] + " must not include common/" +
                      rooms[*other]);
    }
  }
  return found;
}

ListedFiles files_listed_in(std::string_view folder, std::string_view text) {
  std::string spaced;
  for (const char c : text) spaced += c == '(' || c == ')' ? std::string{' ', c, ' '} : std::string{c};
  ListedFiles listed;
  std::istringstream stream(spaced);
  bool in_file_set = false;
  for (std::string word; stream >> word;) {
    if (word == "FILES") in_file_set = true;
    if (word == "PRIVATE" || word == ")") in_file_set = false;
    if (word.find('.') == std::string::npos) continue;
    const std::string path = (std::filesystem::path(folder) / word).lexically_normal().generic_string();
    listed.all.insert(path);
    if (in_file_set) listed.public_headers.insert(path);
  }
  return listed;
}

ListedFiles listed_files(const std::filesystem::path& root) {
  ListedFiles listed;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.path().filename() != "CMakeLists.txt") continue;
      const std::string inside = std::filesystem::relative(entry.path().parent_path(), root).generic_string();
      ListedFiles here = files_listed_in(inside, read_file(entry.path()));
      listed.all.merge(here.all);
      listed.public_headers.merge(here.public_headers);
    }
  }
  return listed;
}

std::vector<std::string> misplaced_libraries(const SourceFile& file, const ListedFiles& listed) {
  std::vector<std::string> found;
  const std::string folder = top_folder(file.path);
  for (const Include& include : includes_of(file)) {
    if (include.quoted) continue;
    for (const Library& library : libraries) {
      if (!include.path.starts_with(library.prefix)) continue;
      if (!library.folder.empty() && folder != library.folder && folder != "tests") {
        found.push_back(place(file, include.line) + include.path + " belongs to " + library.folder);
      } else if (listed.public_headers.contains(file.path)) {
        found.push_back(place(file, include.line) + include.path + " is heavy: it stays out of public headers");
      }
    }
  }
  return found;
}

std::vector<std::string> broken_style(const SourceFile& file) {
  // Split, so that this file does not find itself.
  static const std::vector<std::pair<std::regex, std::string>> forbidden = {
      {std::regex("namespace (\\w+::)*pip"
                  "e\\b"),
       "namespace pip"
       "e collides with unistd.h"},
      {std::regex("std::(form"
                  "at|print|expected)\\b"),
       "g++ 12 has no such library"},
      {std::regex("std::view"
                  "s::"),
       "clang 14's tools reject pipelines of views"},
      {std::regex("std::ranges::(uni"
                  "que|equal_ra"
                  "nge|sea"
                  "rch)\\("),
       "clang 14's tools reject what gives a subrange"},
      {std::regex("(Catch|Matchers)::Cont"
                  "ains\\b"),
       "Catch2 3 has it elsewhere: tests/catch.hpp has one name for both"},
      {std::regex("\\b(TO"
                  "DO|FIX"
                  "ME|XX"
                  "X)\\b"),
       "open ends belong into an issue"},
      {std::regex("using namespace std\\s*;"), "opens std"},
      {std::regex("TEST_CASE\\(\"[^\"]*[;\\[\\]*]"), "CTest would not find a test case of this name"},
  };
  std::vector<std::string> found;
  if (is_header(file)) {
    if (std::ranges::find(file.lines, "#pragma once") == file.lines.end()) {
      found.push_back(file.path + ": has no #pragma once");
    }
    if (file.lines.empty() || !file.lines.front().starts_with("// ")) {
      found.push_back(file.path + ":1: does not say in its first line what it is");
    }
  }
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const int number = static_cast<int>(i) + 1;
    for (const auto& [pattern, reason] : forbidden) {
      if (std::regex_search(file.lines[i], pattern)) found.push_back(place(file, number) + reason);
    }
  }
  return found;
}

std::vector<std::string> late_headers(const SourceFile& file, const std::set<std::string>& paths) {
  if (!file.path.ends_with(".cpp")) return {};
  const std::string header = file.path.substr(0, file.path.size() - 4) + ".hpp";
  const std::vector<Include> includes = includes_of(file);
  if (!paths.contains(header) || (!includes.empty() && includes.front().path == header)) return {};
  return {file.path + ": does not include " + header + " first"};
}

std::vector<std::string> shared_engines(const std::vector<SourceFile>& files) {
  std::vector<std::string> owners;
  for (const SourceFile& file : files) {
    const auto includes = includes_of(file);
    const bool sees = std::ranges::any_of(includes, [](const Include& i) { return i.path.starts_with("simgrid/"); });
    if (sees && top_folder(file.path) == "sim") owners.push_back(file.path);
  }
  if (owners.size() <= 1) return {};
  std::vector<std::string> found;
  for (const std::string& owner : owners) found.push_back(owner + ": one of several files that see SimGrid");
  return found;
}

std::vector<std::string> unresolved_includes(const std::vector<SourceFile>& files) {
  std::set<std::string> known;
  for (const SourceFile& file : files) known.insert(file.path);
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    for (const Include& include : includes_of(file)) {
      if (include.quoted && !known.contains(include.path)) {
        found.push_back(place(file, include.line) + "\"" + include.path + "\" is not a path from the root");
      }
    }
  }
  return found;
}

std::vector<std::string> include_cycles(const std::vector<SourceFile>& files) {
  std::map<std::string, std::vector<std::string>> graph;
  for (const SourceFile& file : files) {
    for (const Include& include : includes_of(file)) {
      if (include.quoted) graph[file.path].push_back(include.path);
    }
  }
  std::vector<std::string> found;
  std::set<std::string> done;
  std::vector<std::string> path;
  const std::function<void(const std::string&)> visit = [&](const std::string& name) {
    const auto again = std::ranges::find(path, name);
    if (again != path.end()) {
      std::string cycle;
      for (auto step = again; step != path.end(); ++step) cycle += *step + " -> ";
      found.push_back(cycle + name);
      return;
    }
    if (done.contains(name)) return;
    path.push_back(name);
    if (const auto node = graph.find(name); node != graph.end()) std::ranges::for_each(node->second, visit);
    path.pop_back();
    done.insert(name);
  };
  for (const SourceFile& file : files) visit(file.path);
  return found;
}

std::vector<std::string> folder_cycles(const std::vector<SourceFile>& files) {
  std::map<std::string, std::set<std::string>> includes;
  for (const SourceFile& file : files) {
    const std::string own = folder_of(file.path);
    // A program's main knows all that is below it.
    if (top_folder(file.path) == "tests" || file.path.ends_with("/main.cpp")) continue;
    for (const Include& include : includes_of(file)) {
      if (include.quoted && folder_of(include.path) != own) includes[own].insert(folder_of(include.path));
    }
  }
  std::vector<SourceFile> as_files;
  for (const auto& [folder, others] : includes) {
    as_files.push_back({.path = folder, .lines = {}});
    for (const std::string& other : others) as_files.back().lines.push_back("#include \"" + other + "\"");
  }
  return include_cycles(as_files);
}

std::vector<std::string> repeated_types(const std::vector<SourceFile>& files) {
  static const std::regex opens(R"(^namespace ([\w:]+) \{)");
  static const std::regex defines(R"(^(?:struct|class|enum class) (\w+)(?: final)?(?: :[^:{][^{;]*)? \{)");
  std::map<std::string, std::string> first;  // by namespace and name: where it stands
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (!is_header(file) || top_folder(file.path) == "tests") continue;
    std::string space;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (std::regex_search(file.lines[i], match, opens)) space = match[1];
      if (!std::regex_search(file.lines[i], match, defines)) continue;
      const std::string name = space + "::" + match[1].str();
      const std::string here = place(file, static_cast<int>(i) + 1);
      const auto [known, is_new] = first.try_emplace(name, here);
      if (!is_new) found.push_back(here + name + " is also defined at " + known->second);
    }
  }
  return found;
}

}  // namespace plumb::house
