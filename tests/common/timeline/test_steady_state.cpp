#include "common/timeline/steady_state.hpp"

#include <algorithm>
#include <cmath>

#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/common/timeline/graph_fixtures.hpp"
#include "tests/effort.hpp"

namespace plumb {
namespace {

struct Measured {
  Schedule schedule;
  StepTimeline step;
};

Measured measured(const ScheduleEntry& entry, const GridShape& shape, EvenTimes times = {{1}, {1}, {1}}) {
  const Schedule schedule =
      lower(entry.generate(shape_for(entry, shape)), {.optimizer = false, .tied_embeddings = false});
  const ScheduleGraph graph = build_graph(schedule, even_costs(stages(schedule), times));
  return {schedule, test::step_of(graph, evaluate(graph))};
}

// Where every compute action of a rank starts, without microbatches: what a chart of it looks like. What runs from
// before starts at 0.
struct Bar {
  int rank;
  ActionKind kind;
  int stage;
  double start;
};

std::vector<Bar> bars_between(const StepTimeline& step, double from, double to) {
  std::vector<Bar> bars;
  for (const Event& event : step.events) {
    if (!is_compute(event.action.kind) || event.end.value <= from + 1e-9 || event.start.value >= to - 1e-9) continue;
    const double start = std::max(event.start.value, from) - from;
    bars.push_back({event.rank, event.action.kind, event.action.stage, start});
  }
  return bars;
}

bool alike(const std::vector<Bar>& a, const std::vector<Bar>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Bar& x, const Bar& y) {
    return x.rank == y.rank && x.kind == y.kind && x.stage == y.stage && std::abs(x.start - y.start) < 1e-6;
  });
}

}  // namespace

TEST_CASE("folded segments repeat as often as printed and cover the step") {
  int folded = 0;
  std::size_t tried = 0;
  for (const ScheduleEntry& entry : schedule_entries()) {
    for (const GridShape& shape :
         {GridShape{2, 64, 4}, GridShape{2, 16, 4}, GridShape{2, 8, 2}, GridShape{2, 32, 8}, GridShape{4, 64, 16}}) {
      if (!applies(entry, shape)) continue;
      for (const EvenTimes& times :
           {EvenTimes{{1}, {1}, {1}}, EvenTimes{{1}, {1.5}, {0.5}}, EvenTimes{{1}, {1.3}, {0.9}, {0.05}}}) {
        if (!testing::tries(tried++)) continue;
        const auto [schedule, step] = measured(entry, shape, times);
        INFO(entry.name << ", " << shape.microbatches << " microbatches, " << shape.ranks << " ranks");
        const std::vector<Segment> segments = steady_segments(step, schedule);
        double end = 0;
        for (const Segment& segment : segments) {
          CHECK(segment.from.value == Approx(end).margin(1e-6));
          const double length = (segment.to - segment.from).value;
          end = segment.from.value + length * segment.repeats;
          if (segment.repeats == 1) continue;
          ++folded;
          const std::vector<Bar> once = bars_between(step, segment.from.value, segment.to.value);
          CHECK_FALSE(once.empty());
          for (int k = 1; k < segment.repeats; ++k) {
            const double from = segment.from.value + k * length;
            if (alike(once, bars_between(step, from, from + length))) continue;
            FAIL_CHECK("repeat " << k << " is another one");
            break;
          }
        }
        CHECK(end == Approx(step.duration.value));
      }
    }
  }
  CHECK(folded > testing::found_in(60));
}

TEST_CASE("1F1B's steady state is one F and one B a rank") {
  const auto [schedule, step] = measured(find_schedule("1f1b"), {1, 64, 16});
  const std::vector<Segment> segments = steady_segments(step, schedule);
  REQUIRE(segments.size() == 3);
  CHECK((segments[1].to - segments[1].from).value == Approx(3));
  // The first rank's first B is the last to come in, after p F and p − 1 B; the last rank's last B, which it waits for
  // from then on, leaves p − 1 B before the end.
  CHECK(segments[1].repeats >= 64 - 16 - 1);
  CHECK(segments[1].repeats <= 64);
}

TEST_CASE("where nothing repeats there is one segment") {
  const auto [schedule, step] = measured(find_schedule("gpipe"), {1, 2, 2});
  CHECK(steady_segments(step, schedule) == std::vector<Segment>{{.from = {}, .to = step.duration}});
  CHECK(steady_segments({}, schedule).size() == 1);
}

}  // namespace plumb
