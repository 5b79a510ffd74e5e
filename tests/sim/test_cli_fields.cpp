// plumb explain, plumb schema and plumb reference: the tables of fields, as users see them.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/sim/cli.hpp"

using namespace plumb;
using namespace plumb::tests;

namespace {

constexpr const char* pages = "scenario machine software model what-if table plan";

std::size_t words_of(const std::string& cell) {
  std::istringstream words(cell);
  std::size_t count = 0;
  for (std::string word; words >> word;) ++count;
  return count;
}

}  // namespace

TEST_CASE("explain prints meaning, values, default and example of a key") {
  const Folder folder;
  const Outcome one = run_plumb(folder, "explain training.recompute");
  REQUIRE(one.status == 0);
  for (const char* part : {"training.recompute  (in a scenario)", "none, selective, or full", "default  none",
                           "example  recompute: full", "layers", "every", "activation-checkpointing"}) {
    CHECK_THAT(one.out, ContainsSubstring(part));
  }
  const Outcome several = run_plumb(folder, "explain bandwidth");
  CHECK_THAT(several.out, ContainsSubstring("cluster.outside.bandwidth  (in a scenario)") &&
                              ContainsSubstring("inside.bandwidth  (in a machine)"));
  CHECK_THAT(run_plumb(folder, "explain tensor").out, ContainsSubstring("sequence_parallel"));
  CHECK_THAT(run_plumb(folder, "explain machine").out, ContainsSubstring("collective_bandwidth"));
}

TEST_CASE("explain knows the keys of other frameworks, and names the nearest key") {
  const Folder folder;
  const Outcome theirs = run_plumb(folder, "explain tensor_model_parallel_size");
  CHECK(theirs.status == 0);
  CHECK_THAT(theirs.out, ContainsSubstring("is called 'tensor' here") && ContainsSubstring("layout.tensor"));
  const Outcome slip = run_plumb(folder, "explain training.recompote");
  CHECK(slip.status == 2);
  CHECK_THAT(slip.err, ContainsSubstring("no key is called") && ContainsSubstring("did you mean 'recompute'?"));
}

TEST_CASE("explain as JSON has each match with its path, values and keys") {
  const Folder folder;
  const Outcome outcome = run_plumb(folder, "explain layout.data --json");
  REQUIRE(outcome.status == 0);
  const auto json = nlohmann::json::parse(outcome.out);
  REQUIRE(json["matches"].size() == 1);
  const auto& match = json["matches"][0];
  CHECK(match["path"] == "layout.data");
  CHECK(match["default"] == "1");
  CHECK(std::ranges::find(match["keys"], "sharding") != match["keys"].end());
}

TEST_CASE("schema prints a JSON Schema for each kind of file") {
  const Folder folder;
  for (const char* kind : {"scenario", "machine", "software", "model", "what-if", "table"}) {
    CAPTURE(kind);
    const Outcome outcome = run_plumb(folder, std::string("schema ") + kind);
    REQUIRE(outcome.status == 0);
    CHECK(nlohmann::json::parse(outcome.out)["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  }
  const Outcome unknown = run_plumb(folder, "schema senario");
  CHECK(unknown.status == 2);
  CHECK_THAT(unknown.err, ContainsSubstring("did you mean 'scenario'?"));
}

TEST_CASE("the committed reference pages are what `plumb reference docs/reference` writes") {
  const Folder folder;
  REQUIRE(run_plumb(folder, "reference '" + folder.file("pages") + "'").status == 0);
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("pages"))) {
    CAPTURE(entry.path().filename().string());
    const auto committed = std::filesystem::path(PLUMB_SOURCE_DIR) / "docs" / "reference" / entry.path().filename();
    REQUIRE(std::filesystem::exists(committed));
    CHECK(read_file(entry.path()) == read_file(committed));
    ++count;
  }
  std::istringstream names(pages);
  for (std::string name; names >> name; --count) CHECK(std::filesystem::exists(folder.file("pages/" + name + ".md")));
  CHECK(count < 100);  // at least these
}

TEST_CASE("a cell of a reference page has at most 25 words") {
  const Folder folder;
  REQUIRE(run_plumb(folder, "reference '" + folder.file("pages") + "'").status == 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("pages"))) {
    std::istringstream lines(read_file(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("| ")) continue;
      std::istringstream cells(line);
      for (std::string cell; std::getline(cells, cell, '|');) {
        CAPTURE(entry.path().filename().string(), cell);
        CHECK(words_of(cell) <= 25);
      }
    }
  }
}
