#include "common/timeline/report/report.hpp"

#include <algorithm>
#include <set>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/timeline/diff/replay.hpp"
#include "common/timeline/statistics.hpp"
#include "tests/catch.hpp"
#include "tests/common/timeline/graph_fixtures.hpp"

namespace plumb {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Empty if every element is closed in order, else what is wrong. Knows the elements that HTML lets stand open.
std::string nesting_problem(const std::string& text) {
  const std::set<std::string> never_closed{"meta", "br", "th", "!doctype"};
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return "an element without end";
    const std::string inside = text.substr(at + 1, end - at - 1);
    if (inside.back() == '/') continue;
    const bool closes = inside[0] == '/';
    std::string name = inside.substr(closes ? 1 : 0);
    name = name.substr(0, name.find(' '));
    if (never_closed.count(name) > 0) continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + "> closes <" + (open.empty() ? "" : open.back()) + ">";
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

// A prediction and a run of it in which stage 1 was slower.
std::vector<Timeline> predicted_and_measured(const std::string& schedule, const ScheduleShape& shape) {
  const test::Case made = test::make_case(schedule, shape);
  std::vector<Seconds> slow = durations(made.graph);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    if (made.graph.nodes[i].action.stage == 1 && made.graph.nodes[i].action.kind == ActionKind::forward) {
      slow[i] = slow[i] * 1.7;
    }
  }
  return {test::predicted_of(made), test::measured_of(made, slow)};
}

}  // namespace

TEST_CASE("a report is one page that needs nothing else") {
  std::vector<Timeline> timelines = predicted_and_measured("zb-h1", {.ranks = 4, .microbatches = 8, .chunks = 1});
  const std::string page = html_report(timelines);
  REQUIRE(nesting_problem(page) == "");
  REQUIRE(page.find("<!doctype html>") == 0);
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("})
    REQUIRE(count(page, outside) == 0);
  REQUIRE(count(page, "prefers-color-scheme: dark") == 1);
  REQUIRE(count(page, "<svg") == 2);
  REQUIRE(html_report(timelines) == page);
}

TEST_CASE("every event of a small schedule is drawn, with what it was") {
  const std::vector<Timeline> timelines = {
      predicted_and_measured("zb-h1", {.ranks = 4, .microbatches = 8, .chunks = 1})[0]};
  const std::string page = html_report(timelines);
  // Four lanes besides the events.
  REQUIRE(count(page, "<rect ") == timelines[0].steps[0].events.size() + 4);
  for (const Event& event : timelines[0].steps[0].events) {
    REQUIRE(count(page, "<title>" + to_string(event.action) + " · ") == 1);
  }
  REQUIRE(count(page, "drawn, evenly chosen") + count(page, "too many to draw") == 0);
}

TEST_CASE("a report of a prediction and its run says what made the difference") {
  const std::string page = html_report(predicted_and_measured("1f1b", {.ranks = 3, .microbatches = 6, .chunks = 1}));
  REQUIRE(count(page, "Most of it: <b>slower F of stage 1</b>") == 1);
  REQUIRE(count(page, "Why they differ") == 1);
  REQUIRE(count(page, "the graph explains this run") == 1);
  for (const char* row : {"predicted step", "measured step", "transfers", "host gaps", "residual"}) {
    REQUIRE(count(page, "<td class=\"left\">" + std::string(row) + "</td>") == 1);
  }
}

TEST_CASE("one meaning of bubble on the whole page: with the optimizer, and idle is not called so") {
  const Timeline predicted = predicted_and_measured("1f1b", {.ranks = 3, .microbatches = 6, .chunks = 1})[0];
  const std::string page = html_report({predicted});
  const StepStatistics statistics = step_statistics(predicted.steps[0], 3);
  const std::string bubble = percent_text(statistics.bubble_makespan_fraction);
  CHECK(count(page, "with the optimizer's time that is the bubble, " + bubble + ".") == 1);
  CHECK(count(page, "<td>" + bubble + "</td>") >= 1);
  CHECK(count(page, "of makespan, with the optimizer") == 1);
  CHECK(count(page, "nothing on its way yet: the bubble") == 0);
}

TEST_CASE("the table has each plan's layout, split and MFU, where they are known") {
  Timeline timeline = test::predicted_of(test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1}));
  CHECK(count(html_report({timeline}), "<td>–</td><td>–</td><td>1f1b, 4 microbatches</td>") == 1);
  timeline.layout_name = "pp2·tp4";
  timeline.split = "[3, 1]";
  timeline.model_flops = {3e15};
  timeline.peak_flops = {8e15 / timeline.steps[0].duration.value};
  const std::string page = html_report({timeline});
  CHECK(count(page, "<td>pp2·tp4</td><td>[3, 1]</td><td>1f1b, 4 microbatches</td>") == 1);
  CHECK(count(page, "<td>37.5%</td>") == 1);
}

TEST_CASE("a run that took several times as long is told so, and one as predicted too") {
  const test::Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  std::vector<Seconds> threefold = durations(made.graph);
  for (Seconds& duration : threefold) duration = duration * 3;
  const Timeline predicted = test::predicted_of(made);
  REQUIRE(count(html_report({predicted, test::measured_of(made, threefold)}), "<b>3.0 times as long</b>") == 1);
  REQUIRE(count(html_report({predicted, test::measured_of(made, durations(made.graph))}), "as long as predicted") == 1);
}

TEST_CASE("timelines find their partner by plan, whatever the order they are given in") {
  const std::vector<Timeline> first = predicted_and_measured("1f1b", {.ranks = 3, .microbatches = 6, .chunks = 1});
  std::vector<Timeline> second = predicted_and_measured("gpipe", {.ranks = 3, .microbatches = 6, .chunks = 1});
  for (Timeline& timeline : second) {
    timeline.plan_name = "other plan";
    timeline.plan_digest = "1111111111111111";
  }
  const std::string page = html_report({second[1], first[0], first[1], second[0]});
  REQUIRE(nesting_problem(page) == "");
  REQUIRE(count(page, "Why they differ") == 2);
  REQUIRE(count(page, "<h1>other plan; test plan</h1>") == 1);
}

TEST_CASE("every run of a plan is explained, beside the one prediction") {
  std::vector<Timeline> timelines = predicted_and_measured("1f1b", {.ranks = 4, .microbatches = 8, .chunks = 1});
  timelines.push_back(timelines[1]);
  timelines[0].memory_limit = Bytes{1};
  const std::string page = html_report(timelines);
  CHECK(nesting_problem(page) == "");
  CHECK(count(page, "Why they differ") == 2);
  CHECK(count(page, "1f1b, 8 microbatches") == 3);  // in the table
}

TEST_CASE("timelines with one name are told apart") {
  const std::vector<Timeline> first = predicted_and_measured("1f1b", {.ranks = 3, .microbatches = 6, .chunks = 1});
  std::vector<Timeline> second = predicted_and_measured("gpipe", {.ranks = 3, .microbatches = 6, .chunks = 1});
  for (Timeline& timeline : second) timeline.plan_digest = "1111111111111111";
  const std::string both = html_report({first[0], first[1], second[0], second[1]});
  REQUIRE(count(both, "<h2>test plan (1) <span class=\"quiet\">predicted and measured</span></h2>") == 1);
  REQUIRE(count(both, "<h2>test plan (2) <span class=\"quiet\">predicted and measured</span></h2>") == 1);
  REQUIRE(count(both, "<title>test plan (1) and 1 more – plumb</title>") == 1);
  const std::string sides = html_report({first[0], second[1]});
  REQUIRE(count(sides, "<h2>test plan <span class=\"quiet\">predicted</span></h2>") == 1);
  REQUIRE(count(sides, "<h2>test plan <span class=\"quiet\">measured</span></h2>") == 1);
}

TEST_CASE("names from outside stay text") {
  const Timeline timeline = test::random_gpipe(2, 3, 1, 1);  // its plan's name holds markup
  const std::string page = html_report({timeline});
  REQUIRE(count(page, "<b>hybrid</b>") == 0);
  REQUIRE(count(page, "tiny &quot;&lt;b&gt;hybrid&lt;/b&gt;&quot; &amp; co") >= 3);
  REQUIRE(nesting_problem(page) == "");
}

TEST_CASE("big schedules are folded, and the page says so") {
  const std::string many_actions =
      html_report({predicted_and_measured("1f1b", {.ranks = 16, .microbatches = 512, .chunks = 1})[0]});
  REQUIRE(count(many_actions, "too many to draw one by one") == 1);
  REQUIRE(count(many_actions, "<rect ") < 12000);
  REQUIRE(nesting_problem(many_actions) == "");
  const std::string many_ranks =
      html_report({predicted_and_measured("gpipe", {.ranks = 128, .microbatches = 2, .chunks = 1})[0]});
  REQUIRE(count(many_ranks, "96 of 128 ranks are drawn, evenly chosen") == 1);
  REQUIRE(count(many_ranks, ">rank 127</text>") == 1);
}

TEST_CASE("rows of the sum are parts of the measured step, and the measured one is all of it") {
  const std::string page = html_report(predicted_and_measured("1f1b", {.ranks = 3, .microbatches = 6, .chunks = 1}));
  const std::size_t row = page.find("<td class=\"left\">measured step</td>");
  REQUIRE(row != std::string::npos);
  CHECK(page.substr(row, 200).find("<td>100.00%</td>") != std::string::npos);
}

TEST_CASE("an all-reduce is no message, and legends of memory are whole, with the device's") {
  const test::Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1}, false, true);
  Timeline timeline = test::predicted_of(made);
  CHECK(count(html_report({timeline}), "all-reduce of gradients, with this rank") == 1);
  CHECK(count(html_report({timeline}), "a rank of the plan's device may use") == 0);
  timeline.memory_limit = {std::int64_t{80} << 30};
  const std::string page = html_report({timeline});
  CHECK(count(page, "<rect class=\"reduction\"") > 0);
  CHECK(count(page, "a rank of the plan's device may use 80.00 GiB") == 1);
  CHECK(count(page, "<i class=\"key activations\"></i>activations</span>") == 1);
  CHECK(nesting_problem(page) == "");
  const test::Case plain = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  CHECK(count(html_report({test::predicted_of(plain)}), "all-reduce of gradients") == 0);
}

TEST_CASE("the memory that a rank may use is a line across the bars, unless it is far beyond them") {
  const test::Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  Timeline timeline = test::predicted_of(made);
  timeline.ranks[0].parameter_bytes = {600};
  timeline.ranks[0].peak_bytes = {600};
  timeline.ranks[1].parameter_bytes = {300};
  timeline.ranks[1].peak_bytes = {300};
  const auto page_with = [&](std::int64_t limit) {
    timeline.memory_limit = {limit};
    return html_report({timeline});
  };
  // In parts of the widest: what is larger of 600 and the limit.
  const std::string roomy = page_with(1000);
  CHECK(count(roomy, "<i class=\"limit\" style=\"left:100.000%\" title=\"a rank may use: 1000 B\"></i>") == 2);
  CHECK(count(roomy, "<i class=\"parameters\" style=\"width:60.000%\"") == 1);
  CHECK(count(roomy, "<i class=\"parameters\" style=\"width:30.000%\"") == 1);
  CHECK(count(roomy, "what a rank may use</span>") == 1);
  CHECK(count(roomy, "a whole bar: 1000 B; a rank of the plan's device may use 1000 B") == 1);
  CHECK(nesting_problem(roomy) == "");
  const std::string tight = page_with(450);
  CHECK(count(tight, "<i class=\"limit\" style=\"left:75.000%\"") == 2);
  CHECK(count(tight, "<i class=\"parameters\" style=\"width:100.000%\"") == 1);
  for (const std::int64_t without : {0, 2404}) {
    const std::string none = page_with(without);
    CHECK(count(none, "<i class=\"limit\"") + count(none, "what a rank may use</span>") == 0);
    CHECK(count(none, "<i class=\"parameters\" style=\"width:100.000%\"") == 1);
  }
  CHECK(count(page_with(2400), "<i class=\"limit\"") == 2);
}

TEST_CASE("the machine's change between calibrations is printed under the headline") {
  const std::vector<Timeline> timelines = predicted_and_measured("1f1b", {.ranks = 3, .microbatches = 6, .chunks = 1});
  const std::string page = html_report(timelines, "inconclusive: the machine moved <much>");
  CHECK(count(page, "<b>inconclusive: the machine moved &lt;much&gt;</b></p>\n</header>") == 1);
  CHECK(count(html_report(timelines), "inconclusive") == 0);
  CHECK(nesting_problem(page) == "");
}

TEST_CASE("how well the hosts' clocks agree is said once, and what may be theirs is no finding") {
  const test::Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4, .chunks = 1});
  std::vector<Seconds> slow = durations(made.graph);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    if (made.graph.nodes[i].kind == NodeKind::transfer) slow[i] += Seconds{5e-6};
  }
  std::vector<Timeline> timelines{test::predicted_of(made), test::measured_of(made, slow)};
  for (Event& event : timelines[1].steps[0].events) {
    if (is_receive(event.action.kind)) event.peer = 1 - event.rank;
  }
  CHECK(count(html_report(timelines), "clocks of the hosts") == 0);
  CHECK(count(html_report(timelines), "Most of it: <b>transfers</b>") +
            count(html_report(timelines), "as long as predicted") ==
        1);
  timelines[1].clock_uncertainty = {5e-5};
  const std::string page = html_report(timelines);
  CHECK(count(page, "The clocks of the hosts agree within 50.00 µs") == 1);
  CHECK(count(page, "50.00 µs") == 1);
  CHECK(count(page, "Most of it") == 0);
  CHECK(count(page, "<tr class=\"none\"><td class=\"left\">within the clocks&#39; uncertainty</td>") == 1);
  CHECK(count(page, "too little to tell from nothing") >= 1);
  CHECK(nesting_problem(page) == "");
  // Each message is less than the clocks, and all together are more.
  timelines[1].clock_uncertainty = {6e-6};
  const std::string finding = html_report(timelines);
  CHECK(count(finding, "<tr><td class=\"left\">messages between hosts, each within the clocks&#39; uncertainty</td>") ==
        1);
  CHECK(count(finding, "Most of it: <b>messages between hosts") + count(finding, "within half a percent") == 1);
  CHECK(count(finding, "too little to tell from nothing") == 0);
  // Which part of a pause a message was on its way is not known better than the clocks for each message.
  timelines[1].clock_uncertainty = {1};
  CHECK(count(html_report({timelines[1]}), "of it while a message is on its way") == 0);
  CHECK(count(html_report({timelines[1]}), "title=\"within the clocks' uncertainty\"") > 0);
}

TEST_CASE("a report needs a timeline with a step") {
  REQUIRE_THROWS_AS(html_report({}), InputError);
  Timeline empty = test::random_gpipe(2, 3, 1, 1);
  empty.steps.clear();
  REQUIRE_THROWS_AS(html_report({empty}), InputError);
}

TEST_CASE("a run of all ranks of a layout is drawn rank by rank, beside the prediction of one pipeline") {
  const test::Case made = test::make_case("1f1b", {.ranks = 2, .microbatches = 4});
  const Timeline predicted = test::predicted_of(made);
  Timeline measured = of_all_ranks(predicted, {.pipeline = 2, .tensor = {}, .data = {.degree = 2}});
  measured.source = TimelineSource::measured;
  const std::string page = html_report({predicted, measured});
  CHECK(nesting_problem(page).empty());
  CHECK(page.find("4 ranks (pp2·dp2), 2 stages") != std::string::npos);
  CHECK(count(page, ">rank 3</text>") == 1);
  CHECK(count(page, ">rank 1</text>") == 2);
  CHECK(count(page, "<tr><td>3</td><td>1</td>") == 1);  // rank 3 has stage 1
}

}  // namespace plumb
