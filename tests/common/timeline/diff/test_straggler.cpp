// Which rank lags behind the others, and by how much: by hand, and by what the threshold was tested on.
#include "common/timeline/diff/straggler.hpp"

#include "tests/catch.hpp"
#include "tests/common/timeline/graph_fixtures.hpp"

namespace plumb {

// A machine that computes faster than it was calibrated: the rank that lags takes just as long as predicted.
TEST_CASE("a straggler's number is how it lags behind the median rank, whatever was predicted of both") {
  const test::Case made = test::make_case("1f1b", {.ranks = 4, .microbatches = 8});
  const std::vector<Seconds> predicted = durations(made.graph);
  for (const double machine : {0.93, 1.0, 1.07}) {
    for (const double lag : {1.04, 1.06, 1.25}) {
      CAPTURE(machine, lag);
      std::vector<Seconds> measured = predicted;
      for (std::size_t i = 0; i < measured.size(); ++i) {
        measured[i] = measured[i] * (made.graph.nodes[i].rank == 2 ? machine * lag : machine);
      }
      const std::vector<std::optional<double>> found = stragglers(made.graph, predicted, measured);
      REQUIRE(found.size() == 4);
      for (std::size_t rank = 0; rank < 4; ++rank) {
        REQUIRE(found[rank].has_value() == (rank == 2 && lag >= 1 + straggler_lag_fraction));
      }
      if (found[2]) CHECK(*found[2] == Approx(lag));
    }
  }
}

}  // namespace plumb
