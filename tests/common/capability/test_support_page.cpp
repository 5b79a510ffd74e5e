// The committed page is what the table prints.
#include "common/capability/support_page.hpp"

#include <sstream>
#include <string>

#include "common/base/files.hpp"
#include "common/capability/feature.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("docs/reference/support.md is printed from the table of capabilities") {
  const std::string committed = read_file(std::string(PLUMB_SOURCE_DIR) + "/docs/reference/support.md");
  INFO("the page is stale: it must hold what support_page() returns");
  CHECK(committed == support_page());
}

TEST_CASE("the page has a row for each feature, and no cell of more than 25 words") {
  const std::string page = support_page();
  for (std::size_t i = 0; i < feature_count; ++i) {
    CHECK_THAT(page, ContainsSubstring("| " + std::string(facts_of(static_cast<Feature>(i)).name) + " |"));
  }
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() != '|') continue;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, '|');) {
      std::istringstream words(cell);
      int count = 0;
      for (std::string word; words >> word;) ++count;
      CAPTURE(cell);
      CHECK(count <= 25);
    }
  }
}
