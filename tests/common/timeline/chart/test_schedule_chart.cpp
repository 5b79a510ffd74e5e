#include "common/timeline/chart/schedule_chart.hpp"

#include <sstream>

#include "common/base/text.hpp"
#include "common/timeline/chart/schedule_picture.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/common/timeline/graph_fixtures.hpp"

namespace plumb {
namespace {

struct Measured {
  Schedule schedule;
  StepTimeline step;
};

Measured measured(const std::string& name, const ScheduleShape& shape, const EvenTimes& times = {{1}, {1}, {1}}) {
  const Schedule schedule = lower(generate_schedule(name, shape), {.optimizer = false, .tied_embeddings = false});
  const ScheduleGraph graph = build_graph(schedule, even_costs(stages(schedule), times));
  StepTimeline step = test::step_of(graph, evaluate(graph));
  for (Event& event : step.events) {
    // The eviction's sender, which that leaves out.
    const bool evicts = event.action.kind == ActionKind::evict;
    if (!is_eviction(event.action.kind)) continue;
    const int holder = rank_of(schedule, event.action.stage, event.action.microbatch);
    event.peer = evicts ? holder : schedule.ranks - 1 - holder;
  }
  return {schedule, std::move(step)};
}

std::string chart(const Measured& of, const ScheduleChartStyle& style) {
  return schedule_chart(of.step, of.schedule, style);
}

std::vector<std::string> chart_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Without escape codes.
std::string plain(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033')
      i = text.find('m', i);
    else
      result += text[i];
  }
  return result;
}

}  // namespace

TEST_CASE("a small schedule is drawn action by action") {
  const auto drawn = chart_lines(
      chart(measured("1f1b", {.ranks = 2, .microbatches = 2}), {.width = 12, .colour = false, .unicode = false}));
  REQUIRE(drawn.size() >= 4);
  CHECK(drawn[2] == "rank 0 |01..aa.bb|  66.7%");
  CHECK(drawn[3] == "rank 1 |.0aa1bb..|  66.7%");
}

TEST_CASE("chunks, updates and evictions are told apart without colour") {
  const ScheduleChartStyle style{.width = 60, .colour = false, .unicode = false};
  const auto chunks =
      chart_lines(chart(measured("breadth-first", {.ranks = 2, .microbatches = 2, .chunks = 2}), style));
  CHECK_THAT(chunks[2], ContainsSubstring("|00001111"));
  CHECK_THAT(chunks[3], ContainsSubstring("|00000000"));
  const std::string steps = chart(measured("pipedream", {.ranks = 2, .microbatches = 4}), style);
  CHECK(count(steps.substr(0, steps.find("optimizer step")), "S") == 2 * 4 + 1);
  const std::string evictions = chart(measured("bpipe", {.ranks = 6, .microbatches = 8}), style);
  CHECK_THAT(evictions, ContainsSubstring("E") && ContainsSubstring("L") && ContainsSubstring("(EVICT; there e)"));
}

TEST_CASE("an eviction is marked where it leaves on one rank and where it arrives on the other") {
  const auto drawn = chart_lines(chart(measured("bpipe", {.ranks = 4, .microbatches = 6}, {{1}, {1}, {1}, {1}}),
                                       {.width = 200, .colour = false, .unicode = false}));
  const auto below = [&](const std::string& rank) {
    const auto at = std::ranges::find_if(drawn, [&](const std::string& line) { return line.starts_with(rank); });
    REQUIRE(at + 1 < drawn.end());
    return *(at + 1);
  };
  const std::string first = below("rank 0 ");
  const std::string last = below("rank 3 ");
  CHECK(first.find('E') < last.find('e'));  // 0EVICT2 takes one unit of time, and so does
  CHECK(last.find('l') < first.find('L'));  // 0LOAD2
  CHECK(first.find('L') != std::string::npos);
}

TEST_CASE("repeated segments are drawn once with their count") {
  const Measured many = measured("1f1b", {.ranks = 16, .microbatches = 64});
  const std::string text = chart(many, {.width = 110, .colour = false});
  CHECK_THAT(text, ContainsSubstring("warm-up") && ContainsSubstring("× ") && ContainsSubstring("cool-down"));
  CHECK(count(text, "rank 15 ") <= 2);
  CHECK_THAT(chart(many, {.width = 110, .colour = false, .unicode = false}), ContainsSubstring("x "));
  CHECK_THAT(chart(measured("1f1b", {.ranks = 2, .microbatches = 3}), {.width = 110}), !ContainsSubstring("warm-up"));
}

TEST_CASE("charts of every schedule keep to their width, with and without colour") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    for (const GridShape& grid : {GridShape{2, 4, 2}, GridShape{2, 64, 16}, GridShape{4, 8, 4}}) {
      if (!applies(entry, grid)) continue;
      const Measured of = measured(entry.name, shape_for(entry, grid), {{1}, {1.1}, {0.7}, {0.01}});
      for (const int width : {20, 80, 133}) {
        INFO(entry.name << ", width " << width << ", " << grid.ranks << " ranks");
        const ScheduleChartStyle style{.width = width, .colour = false, .unicode = false};
        const std::string text = chart(of, style);
        for (const char c : text) REQUIRE((c == '\n' || (c >= ' ' && c <= '~')));
        for (const std::string& line : chart_lines(text)) {
          if (line.starts_with("rank")) CHECK(text_width(line) <= static_cast<std::size_t>(width) + 9 + 8);
        }
        ScheduleChartStyle coloured = style;
        coloured.colour = true;
        const std::string bright = chart(of, coloured);
        for (const std::string& line : chart_lines(bright)) {
          const std::size_t last = line.rfind("\033[");
          if (last != std::string::npos) REQUIRE(line.compare(last, 4, "\033[0m") == 0);
        }
        CHECK(plain(bright).find('\033') == std::string::npos);
      }
    }
  }
}

TEST_CASE("parts get a shade each: chunks, replicas, slices") {
  const auto escapes = [](const Measured& of) {
    const std::string text = chart(of, {.width = 100, .colour = true});
    return std::pair{text.find(";104m") != std::string::npos, text.find(";44m") != std::string::npos};
  };
  CHECK(escapes(measured("1f1b", {.ranks = 2, .microbatches = 4})) == std::pair{true, false});
  CHECK(escapes(measured("zb-v", {.ranks = 2, .microbatches = 4, .chunks = 2})) == std::pair{true, true});
  CHECK(escapes(measured("chimera", {.ranks = 2, .microbatches = 4})) == std::pair{true, true});
  CHECK(escapes(measured("seq-1f1b", {.ranks = 2, .microbatches = 4, .slices = 2})) == std::pair{true, true});
}

TEST_CASE("nothing is drawn of a step without length") {
  CHECK_THAT(chart(measured("1f1b", {.ranks = 2, .microbatches = 2}, {}), {}), ContainsSubstring("nothing happens"));
}

TEST_CASE("the picture of a schedule stands alone, and every action has a tooltip") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    const GridShape grid{2, 8, 4};
    if (!applies(entry, grid)) continue;
    INFO(entry.name);
    const Measured of = measured(entry.name, shape_for(entry, grid));
    const std::string svg = schedule_picture(of.step, of.schedule, {.title = "a < b & c", .lines = {"bubble"}});
    CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    CHECK_THAT(svg, ContainsSubstring("a &lt; b &amp; c") && ContainsSubstring("prefers-color-scheme: dark"));
    CHECK_THAT(svg, !ContainsSubstring("href") && !ContainsSubstring("nan") && !ContainsSubstring("inf\""));
    std::size_t drawn = 1;  // the picture's own title
    for (const Event& event : of.step.events) {
      const Track track = track_of(event.action.kind);
      if (track == Track::compute || track == Track::host_copy) ++drawn;
    }
    CHECK(count(svg, "<title>") == drawn);
    for (const std::string element : {"svg", "text", "title", "style"}) {
      CHECK(count(svg, "<" + element) == count(svg, "</" + element + ">"));
    }
  }
}

}  // namespace plumb
