#include "common/graph/memory.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"

using namespace plumb;

TEST_CASE("a rank above its limit is named with its peak and the action that makes it so") {
  const Schedule schedule = parse_pytorch_csv("0F0,0F1,0F2,,0B0,0B1,0B2\n,1F0,1B0,1F1,1B1,1F2,1B2\n", "x.csv");
  CHECK(check_activations(schedule, 3).empty());
  const std::vector<ScheduleProblem> problems = check_activations(schedule, 1.5);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].kind == ScheduleProblem::Kind::over_limit);
  CHECK(problems[0].ranks == std::vector<int>{0});
  CHECK(problems[0].actions == std::vector<Action>{{ActionKind::forward, 0, 1}});
  CHECK(problems[0].text ==
        "rank 0: holds 3 activations at its peak, the limit is 1.5; the first that is too many comes with 0F1");
  CHECK(check_activations(schedule, 0).size() == 2);
}

// The limit is counted as peak_activations counts, which other tests compare with closed forms.
TEST_CASE("ranks are above a limit exactly where their peak is") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    CAPTURE(entry.name);
    const Schedule schedule = entry.generate(shape_for(entry, {.chunks = 2, .microbatches = 8, .ranks = 4}));
    const std::vector<double> peaks = peak_activations(schedule);
    for (const double limit : {0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 6.0}) {
      std::vector<int> above;
      for (int rank = 0; rank < schedule.ranks; ++rank) {
        if (peaks[static_cast<std::size_t>(rank)] > limit) above.push_back(rank);
      }
      std::vector<int> found;
      for (const ScheduleProblem& problem : check_activations(schedule, limit)) found.push_back(problem.ranks.at(0));
      CHECK(found == above);
    }
  }
}
