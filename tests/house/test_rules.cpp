// The rules of the house themselves: each catches what it is for, and lets through what is right.
#include "tests/catch.hpp"
#include "tests/house/source_tree.hpp"

using namespace plumb::house;

namespace {

std::size_t directions(const std::string& path, const std::string& text) {
  return wrong_directions(source_file(path, text)).size();
}

std::size_t library_count(const std::string& path, const std::string& text) {
  ListedFiles listed;
  if (path.ends_with("public.hpp")) listed.public_headers.insert(path);
  return misplaced_libraries(source_file(path, text), listed).size();
}

std::size_t style(const std::string& path, const std::string& text) {
  return broken_style(source_file(path, text)).size();
}

}  // namespace

TEST_CASE("includes point down the house, never up or across") {
  CHECK(directions("sim/a.cpp", "#include \"common/base/error.hpp\"\n") == 0);
  CHECK(directions("exec/a.cpp", "#include \"kernels/a.hpp\"\n") == 0);
  CHECK(directions("tests/sim/a.cpp", "#include \"sim/a.hpp\"\n#include \"exec/a.hpp\"\n") == 0);
  CHECK(directions("common/a.cpp", "#include \"sim/a.hpp\"\n") == 1);
  CHECK(directions("common/a.cpp", "#include \"exec/a.hpp\"\n#include \"kernels/a.hpp\"\n") == 2);
  CHECK(directions("sim/a.cpp", "#include \"exec/a.hpp\"\n") == 1);
  CHECK(directions("exec/a.cpp", "#include \"sim/a.hpp\"\n") == 1);
  CHECK(directions("kernels/a.cpp", "#include \"common/base/units.hpp\"\n") == 1);
  CHECK(directions("kernels/a.cu", "#include \"kernels/a.cuh\"\n#include \"exec/a.hpp\"\n") == 1);
  CHECK(directions("sim/a.cpp", "#include \"tests/catch.hpp\"\n") == 1);
  CHECK(directions("sim/a.cpp", "  #  include <exec/a.hpp>\n") == 1);
  const auto named = wrong_directions(source_file("sim/a.cpp", "\n#include \"exec/a.hpp\"\n"));
  REQUIRE(named.size() == 1);
  CHECK(named.front() == "sim/a.cpp:2: sim must not include exec");
  const auto room = wrong_directions(source_file("common/split/a.cpp", "#include \"common/plan/plan.hpp\"\n"));
  REQUIRE(room.size() == 1);
  CHECK(room.front() == "common/split/a.cpp:1: common/split must not include common/plan");
  CHECK(wrong_directions(source_file("common/plan/a.cpp", "#include \"common/split/split.hpp\"\n")).empty());
}

TEST_CASE("heavy libraries stay in their folder, and out of public headers") {
  CHECK(library_count("sim/engine.cpp", "#include <simgrid/s4u.hpp>\n") == 0);
  CHECK(library_count("sim/public.hpp", "#include <simgrid/s4u.hpp>\n") == 1);
  CHECK(library_count("common/a.cpp", "#include <simgrid/s4u.hpp>\n") == 1);
  CHECK(library_count("exec/a.cpp", "#include <torch/types.h>\n#include <ATen/ATen.h>\n") == 0);
  CHECK(library_count("exec/private.hpp", "#include <ATen/core/Tensor.h>\n") == 0);
  CHECK(library_count("exec/public.hpp", "#include <torch/types.h>\n#include <ATen/ATen.h>\n") == 2);
  CHECK(library_count("sim/a.cpp", "#include <c10/core/Stream.h>\n") == 1);
  CHECK(library_count("kernels/a.cu", "#include <cuda_runtime.h>\n") == 0);
  CHECK(library_count("kernels/public.hpp", "#include <cuda_runtime.h>\n") == 1);
  CHECK(library_count("common/a.cpp", "#include <fmt/format.h>\n#include <yaml-cpp/yaml.h>\n") == 0);
  CHECK(library_count("common/public.hpp", "#include <fmt/format.h>\n#include <nlohmann/json.hpp>\n") == 2);
  CHECK(library_count("tests/exec/helper.hpp", "#include <ATen/ATen.h>\n") == 0);
}

TEST_CASE("a CMakeLists.txt is read for what it compiles and what it makes public") {
  const ListedFiles listed = files_listed_in("exec/stage",
                                             "target_sources(plumb_exec\n"
                                             "  PUBLIC FILE_SET HEADERS BASE_DIRS ${ROOT} FILES a.hpp b.hpp\n"
                                             "  PRIVATE a.cpp inner.hpp)\n");
  CHECK(listed.public_headers == std::set<std::string>{"exec/stage/a.hpp", "exec/stage/b.hpp"});
  CHECK(listed.all.contains("exec/stage/inner.hpp"));
  CHECK(listed.all.contains("exec/stage/a.cpp"));
  CHECK_FALSE(listed.all.contains("exec/stage/c.cpp"));
}

TEST_CASE("only one file of sim owns the engine") {
  const auto engine = source_file("sim/engine.cpp", "#include <simgrid/s4u.hpp>\n");
  const auto other = source_file("sim/other.cpp", "#include <simgrid/host.h>\n");
  CHECK(shared_engines({engine}).empty());
  CHECK(shared_engines({engine, other}).size() == 2);
}

TEST_CASE("our includes are paths from the root, without cycles") {
  const auto a = source_file("common/a.hpp", "#include \"common/b.hpp\"\n");
  const auto b = source_file("common/b.hpp", "#include \"common/a.hpp\"\n");
  const auto leaf = source_file("common/b.hpp", "#include <vector>\n");
  const auto relative = source_file("common/c.hpp", "#include \"b.hpp\"\n");
  CHECK(unresolved_includes({a, leaf}).empty());
  CHECK(unresolved_includes({relative, leaf}).size() == 1);
  CHECK(include_cycles({a, leaf}).empty());
  CHECK(include_cycles({a, b}) == std::vector<std::string>{"common/a.hpp -> common/b.hpp -> common/a.hpp"});
}

TEST_CASE("folders include each other in one direction, a program's main apart") {
  const auto up = source_file("exec/run/a.cpp", "#include \"exec/stage/b.hpp\"\n");
  const auto down = source_file("exec/stage/b.cpp", "#include \"exec/run/c.hpp\"\n");
  const auto within = source_file("exec/stage/d.cpp", "#include \"exec/stage/b.hpp\"\n");
  const auto main = source_file("exec/main.cpp", "#include \"exec/run/c.hpp\"\n");
  const auto to_root = source_file("exec/run/e.cpp", "#include \"exec/f.hpp\"\n");
  CHECK(folder_cycles({up, within, main}).empty());
  CHECK(folder_cycles({main, to_root}).empty());
  CHECK(folder_cycles({up, down}) == std::vector<std::string>{"exec/run -> exec/stage -> exec/run"});
}

TEST_CASE("a type of a namespace is defined in one header") {
  const std::string text = "namespace plumb {\nstruct A {\n};\nenum class B : int { one };\n}\n";
  const auto one = source_file("common/a.hpp", text);
  const auto apart = source_file("sim/b.hpp", "namespace plumb::sim {\nstruct A {\n};\nstruct B;\n}\n");
  const auto again =
      source_file("sim/c.hpp", "namespace plumb {\nclass A final : public Base {\n};\nenum class B {};\n}\n");
  CHECK(repeated_types({one, apart}).empty());
  CHECK(repeated_types({one, source_file("tests/a.hpp", text), source_file("sim/a.cpp", text)}).empty());
  const std::vector<std::string> found = repeated_types({one, again});
  REQUIRE(found.size() == 2);
  CHECK(found.front() == "sim/c.hpp:2: plumb::A is also defined at common/a.hpp:2: ");
}

TEST_CASE("a source includes its own header first") {
  const std::set<std::string> paths = {"common/a.cpp", "common/a.hpp", "common/b.cpp"};
  const std::string own = "#include \"common/a.hpp\"\n";
  CHECK(late_headers(source_file("common/a.cpp", own + "#include <vector>\n"), paths).empty());
  CHECK(late_headers(source_file("common/a.cpp", "#include <vector>\n" + own), paths).size() == 1);
  CHECK(late_headers(source_file("common/a.cpp", "int x;\n"), paths).size() == 1);
  CHECK(late_headers(source_file("common/b.cpp", "#include <vector>\n"), paths).empty());
  CHECK(late_headers(source_file("common/a.hpp", "#include <vector>\n"), paths).empty());
}

TEST_CASE("style that no tool checks") {
  CHECK(style("common/a.hpp", "// What it is.\n#pragma once\n") == 0);
  CHECK(style("common/a.hpp", "// What it is.\n") == 1);
  CHECK(style("common/a.hpp", "#pragma once\n") == 1);
  CHECK(style("common/a.cpp", "#include <vector>\n") == 0);
  CHECK(style("tests/a.cpp", "CHECK_THAT(text, ContainsSubstring(\"a\"));\n") == 0);
  CHECK(style("tests/a.cpp",
              "CHECK_THAT(text, Catch::Matchers::Contai"
              "ns(\"a\"));\n") == 1);
  CHECK(style("kernels/a.cu", "#include <vector>\n") == 0);
  CHECK(style("kernels/a.cuh", "#include <vector>\n") == 2);
  CHECK(style("common/a.cpp",
              "namespace plumb::pip"
              "e {\n") == 1);
  CHECK(style("common/a.cpp",
              "std::form"
              "at(\"{}\", 1);\n") == 1);
  CHECK(style("common/a.cpp", "fmt::format(\"{}\", 1);\n") == 0);
  CHECK(style("common/a.cpp",
              "for (int i : std::view"
              "s::iota(0, 3)) {}\n") == 1);
  CHECK(style("common/a.cpp",
              "// TO"
              "DO: later\n") == 1);
  const std::string begin = "TEST_CASE(\"a";
  CHECK(style("tests/a.cpp", begin + ", b\") {\n") == 0);
  CHECK(style("tests/a.cpp", begin + "; b\") {\n") == 1);
  CHECK(style("tests/a.cpp", begin + " [m, n]\") {\n") == 1);
}
