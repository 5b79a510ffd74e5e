#include "common/timeline/chart/gantt.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "common/base/text.hpp"
#include "common/timeline/chart/time_axis.hpp"
#include "tests/catch.hpp"
#include "tests/common/timeline/fixtures.hpp"

namespace plumb {
namespace {

using test::action;

Event compute(ActionKind kind, int rank, int microbatch, double start, double end) {
  return {action(kind, rank, microbatch), rank, -1, {start}, {end}, {}, {}};
}

// Two ranks, times in whole seconds of ten.
StepTimeline by_hand() {
  return ordered_step({compute(ActionKind::forward, 0, 0, 0, 2),
                       compute(ActionKind::forward, 0, 11, 2, 4),
                       {action(ActionKind::receive_backward, 0, 0), 0, 1, {5}, {6}, {1}, {8}},
                       compute(ActionKind::input_gradient, 0, 0, 6, 8),
                       compute(ActionKind::weight_gradient, 0, 11, 8, 9),
                       compute(ActionKind::optimizer_step, 0, no_microbatch, 9, 10),
                       {action(ActionKind::receive_forward, 1, 0), 1, 0, {2}, {3}, {1}, {8}},
                       compute(ActionKind::forward, 1, 0, 3, 4),
                       compute(ActionKind::backward, 1, 0, 4, 5),
                       compute(ActionKind::recompute, 1, 1, 5, 6)});
}

std::vector<std::string> lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

}  // namespace

TEST_CASE("a Gantt chart in plain ASCII shows every action in its cell") {
  const std::vector<std::string> chart = lines(gantt(by_hand(), 2, {.width = 20, .colour = false, .unicode = false}));
  REQUIRE(chart.size() == 7);
  REQUIRE(chart[0] == "        0 s       5         10");
  REQUIRE(chart[1] == "        +---------+---------");
  REQUIRE(chart[2] == "rank 0 |00001111..--kkkkBB##|  80.0% busy");
  REQUIRE(chart[3] == "rank 1 |....--00aarr........|  30.0% busy");
  REQUIRE(chart[4] == "0-9 F   a-j B   k-t I   A-J W   r R   # optimizer");
  REQUIRE(chart[5] == "- waits for a message   . idle");
  REQUIRE(chart[6] == "(digits and letters: microbatch, its last digit)");
}

TEST_CASE("an axis in the user's own unit names none") {
  const GanttStyle style{.width = 20, .colour = false, .unicode = false, .in_seconds = false};
  REQUIRE(lines(gantt(by_hand(), 2, style))[0] == "        0         5         10");
}

TEST_CASE("colour changes nothing but colour and letters") {
  const GanttStyle plain{.width = 20, .colour = false, .unicode = true};
  GanttStyle coloured = plain;
  coloured.colour = true;
  const std::string text = gantt(by_hand(), 2, coloured);
  REQUIRE(text.find("\033[") != std::string::npos);
  REQUIRE(gantt(by_hand(), 2, plain).find('\033') == std::string::npos);
  // Every line ends without colour.
  for (const std::string& line : lines(text)) {
    const std::size_t last = line.rfind("\033[");
    if (last != std::string::npos) REQUIRE(line.compare(last, 4, "\033[0m") == 0);
  }
  REQUIRE(gantt(by_hand(), 2, coloured) == text);
}

TEST_CASE("charts of any width, of nothing, and of many ranks stay in shape") {
  REQUIRE_THAT(gantt({}, 2, {}), ContainsSubstring("nothing happens"));
  const Timeline timeline = test::random_gpipe(12, 7, 1, 3);
  for (const int width : {-5, 10, 37, 100, 333}) {
    const std::vector<std::string> chart =
        lines(gantt(timeline.steps[0], 12, {.width = width, .colour = false, .unicode = false}));
    REQUIRE(chart.size() >= 2 + 12 + 1);
    for (int rank = 0; rank < 12; ++rank) {
      const std::string& line = chart[static_cast<std::size_t>(rank + 2)];
      REQUIRE(line.find('|') == 8);
      REQUIRE(line.rfind('|') == 9 + static_cast<std::size_t>(std::max(10, width)));
    }
  }
}

TEST_CASE("with more actions than columns a chart shows kinds, and says so") {
  // 40 F of a second each, then 40 pairs of F and B of equal length, then 40 B; ten seconds a column.
  std::vector<Event> events;
  double now = 0;
  const auto add = [&](ActionKind kind, int microbatch) {
    events.push_back(compute(kind, 0, microbatch, now, now + 1));
    now += 1;
  };
  for (int i = 0; i < 40; ++i) add(ActionKind::forward, i);
  for (int i = 0; i < 40; ++i) {
    add(ActionKind::forward, 40 + i);
    add(ActionKind::backward, i);
  }
  for (int i = 0; i < 40; ++i) add(ActionKind::backward, 40 + i);
  const StepTimeline step = ordered_step(events);
  const GanttStyle style{.width = 16, .colour = false, .unicode = false};
  const std::vector<std::string> chart = lines(gantt(step, 1, style));
  REQUIRE(chart[2] == "rank 0 |FFFF++++++++BBBB| 100.0% busy");
  REQUIRE(chart[3] == "F   B   + several kinds");
  REQUIRE(chart[4] == "(a column holds several actions: their kind)");
  // Of three seconds out of ten the column is not idle, and not of one kind either.
  std::erase_if(events, [](const Event& event) { return std::fmod(event.start.value, 10) >= 3; });
  const std::vector<std::string> sparse = lines(gantt(ordered_step(events), 1, style));
  REQUIRE(sparse[2].find(":::::::::::::::") != std::string::npos);
  REQUIRE(sparse[3].find(": busy less than half") != std::string::npos);
  // As many columns as actions: every microbatch has its own.
  REQUIRE(lines(gantt(step, 1, {.width = 160, .colour = false, .unicode = false}))[2].find("|0123456789012") == 7);
  GanttStyle coloured = style;
  coloured.colour = true;
  REQUIRE_THAT(gantt(step, 1, coloured), ContainsSubstring("\033[30;104mFFFF\033[0m"));
}

TEST_CASE("no line of a chart is wider than its bars, their labels and shares") {
  const Timeline timeline = test::random_gpipe(12, 7, 1, 3);
  for (const int width : {40, 60, 100}) {
    for (const std::string& line : lines(gantt(timeline.steps[0], 12, {.width = width, .colour = false}))) {
      REQUIRE(text_width(line) <= static_cast<std::size_t>(width) + 22);
    }
  }
}

TEST_CASE("ticks are round, cover the duration and are not too many") {
  for (const double duration : {1e-9, 3.7e-6, 0.0123, 0.5, 1.0, 9.99, 10.0, 1234.5}) {
    for (const int most : {2, 5, 10, 30}) {
      const TimeUnit unit = time_unit({duration});
      const std::vector<Tick> ticks = round_ticks({duration}, most, unit);
      REQUIRE(static_cast<int>(ticks.size()) <= most);
      REQUIRE(ticks.front().time.value == 0);
      REQUIRE(ticks.back().time.value <= duration * (1 + 1e-9));
      if (ticks.size() < 2) continue;
      const double step = ticks[1].time.value * unit.per_second;
      const double mantissa = step / std::pow(10.0, std::floor(std::log10(step) + 1e-9));
      REQUIRE((mantissa == Approx(1) || mantissa == Approx(2) || mantissa == Approx(5)));
      REQUIRE(duration - ticks.back().time.value <= ticks[1].time.value * (1 + 1e-9));
    }
  }
}

TEST_CASE("changes are written with their sign") {
  REQUIRE(signed_text({0.0123456}) == "+12.35 ms");
  REQUIRE(signed_text({-2e-6}) == "-2.000 µs");
  REQUIRE(signed_text({0}) == "0 s");
}

}  // namespace plumb
