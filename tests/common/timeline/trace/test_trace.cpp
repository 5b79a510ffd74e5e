#include "common/timeline/trace/trace.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/timeline/diff/replay.hpp"
#include "tests/catch.hpp"
#include "tests/common/timeline/fixtures.hpp"

namespace plumb {
namespace {

using test::random_gpipe;

// A file of this process that is gone afterwards.
struct TemporaryFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("plumb_test_trace_" + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()) + ".json");
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path); }
};

Timeline read_back(const std::string& text) {
  const TemporaryFile file;
  write_file(file.path, text);
  return read_timeline(file.path);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t found = text.find(from);
  REQUIRE(found != std::string::npos);
  return text.replace(found, from.size(), to);
}

}  // namespace

TEST_CASE("a timeline survives its trace bit by bit") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 4);
    const Timeline timeline = random_gpipe(ranks, 1 + static_cast<int>(seed % 5), seed % 2 == 0 ? 1 : 3, seed);
    const std::string text = to_trace(timeline);
    const Timeline again = read_back(text);
    REQUIRE(again == timeline);
    REQUIRE(to_trace(again) == text);
  }
}

TEST_CASE("how long a reduction ran beside the backward is read back, and not written where it did not") {
  Timeline timeline = random_gpipe(2, 2, 1, 3);
  CHECK(to_trace(timeline).find("beside_s") == std::string::npos);
  timeline.steps[0].events[1].beside = {1.0 / 3};
  const std::string text = to_trace(timeline);
  CHECK(read_back(text) == timeline);
  CHECK_THROWS_WITH(read_back(replaced(text, "\"beside_s\":", "\"beside_s\":-")),
                    ContainsSubstring("ran beside others for less than nothing"));
}

TEST_CASE("a trace is what Perfetto expects") {
  Timeline timeline = random_gpipe(4, 6, 2, 11);
  // Messages that overlap on their way, as links allow: drawn one after another, true times kept.
  for (Event& event : timeline.steps[0].events) {
    if (event.action.kind == ActionKind::receive_forward) event.start = Seconds{event.start.value / 2};
  }
  timeline.steps[0] = ordered_step(timeline.steps[0].events);
  const std::string text = to_trace(timeline);
  // Perfetto's JSON reader ignores all that follows a key that it does not know (json_trace_tokenizer.cc).
  REQUIRE(text.find("{\n\"traceEvents\":[") == 0);
  const nlohmann::json trace = nlohmann::json::parse(text);
  REQUIRE(trace.size() == 2);
  std::map<std::pair<int, int>, double> track_end;
  std::map<int, std::string> process_names;
  std::map<std::pair<int, int>, std::string> track_names;
  std::set<std::string> names;
  std::map<int, std::pair<double, double>> arrows;
  std::size_t complete = 0;
  std::size_t clipped = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "M" && event.at("name") == "process_name")
      process_names[event.at("pid")] = event.at("args").at("name");
    if (phase == "M" && event.at("name") == "thread_name") {
      track_names[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
    if (phase == "s") arrows[event.at("id")].first = event.at("ts");
    if (phase == "f") arrows[event.at("id")].second = event.at("ts");
    if (phase != "X") continue;
    ++complete;
    const double start = event.at("ts");
    double& end = track_end[{event.at("pid"), event.at("tid")}];
    REQUIRE(start >= end - 1e-6);
    end = start + event.at("dur").get<double>();
    names.insert(event.at("name"));
    const double offset = event.at("args").at("step") == 0 ? 0 : timeline.steps[0].duration.value;
    const double true_start = event.at("args").at("start_s").get<double>() + offset;
    REQUIRE(start / 1e6 >= true_start - 1e-9);
    if (start / 1e6 > true_start + 1e-8) ++clipped;
    REQUIRE(end / 1e6 == Approx(event.at("args").at("end_s").get<double>() + offset).margin(2e-9));
  }
  REQUIRE(complete == timeline.steps[0].events.size() + timeline.steps[1].events.size());
  REQUIRE(clipped > 0);
  REQUIRE(process_names == std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}, {2, "rank 2"}, {3, "rank 3"}});
  REQUIRE(track_names.at({1, 0}) == "compute");
  REQUIRE(track_names.at({1, 1}) == "receive forward");
  REQUIRE(track_names.at({1, 2}) == "receive backward");
  REQUIRE(track_names.count({0, 1}) == 0);
  for (const char* name : {"PP:0F0", "PP:3B5", "PP:1RECV_F2", "PP:2STEP"}) REQUIRE(names.count(name) == 1);
  // Two neighbours, six microbatches, both directions, two steps; an arrow never goes back in time.
  REQUIRE(arrows.size() == 3 * 6 * 2 * 2);
  for (const auto& [id, ends] : arrows) REQUIRE(ends.first <= ends.second);
}

TEST_CASE("how well several hosts' clocks agree is read back, and of one clock nothing is written") {
  Timeline timeline = random_gpipe(2, 3, 1, 5);
  CHECK(to_trace(timeline).find("clock_uncertainty") == std::string::npos);
  timeline.clock_uncertainty = {4.25e-5};
  CHECK(read_back(to_trace(timeline)).clock_uncertainty == Seconds{4.25e-5});
  CHECK(read_back(to_trace(timeline)).clock_of_rank.empty());
  timeline.clock_of_rank = {0, 1};
  CHECK(read_back(to_trace(timeline)).clock_of_rank == std::vector<int>{0, 1});
  timeline.clock_of_rank = {0, 1, 1};
  CHECK_THROWS_WITH(read_back(to_trace(timeline)),
                    ContainsSubstring("clock_of_rank") && ContainsSubstring("3 entries for 2 ranks"));
}

TEST_CASE("two ranks are compared to within what their clocks agree, those of one clock exactly") {
  Timeline timeline = random_gpipe(3, 3, 1, 5);
  CHECK(uncertainty_between(timeline, 0, 2) == Seconds{});
  timeline.clock_uncertainty = {1e-5};
  CHECK(uncertainty_between(timeline, 0, 2) == Seconds{1e-5});
  CHECK(uncertainty_between(timeline, 1, 1) == Seconds{});
  timeline.clock_of_rank = {0, 1, 0};
  CHECK(uncertainty_between(timeline, 0, 2) == Seconds{});
  CHECK(uncertainty_between(timeline, 1, 2) == Seconds{1e-5});
}

TEST_CASE("the device's memory is read back, and not written where it is not known") {
  Timeline timeline = random_gpipe(2, 3, 1, 5);
  CHECK(to_trace(timeline).find("memory_limit") == std::string::npos);
  timeline.memory_limit = {80};
  CHECK(read_back(to_trace(timeline)).memory_limit == Bytes{80});
}

TEST_CASE("the layout, the split and the devices' peak are read back, and not written where they are not known") {
  Timeline timeline = random_gpipe(2, 3, 1, 5);
  CHECK(to_trace(timeline).find("peak_flops") == std::string::npos);
  timeline.layout_name = "pp2·tp4";
  timeline.split = "[3, 1]";
  timeline.peak_flops = {8e15};
  const Timeline again = read_back(to_trace(timeline));
  CHECK(again.layout_name == "pp2·tp4");
  CHECK(again.split == "[3, 1]");
  CHECK(again.peak_flops == FlopsPerSecond{8e15});
}

TEST_CASE("traffic by axis is read back where it is known") {
  Timeline timeline = random_gpipe(2, 3, 1, 5);
  CHECK(to_trace(timeline).find("by_axis") == std::string::npos);
  timeline.ranks[1].by_axis = {.tensor = {7},
                               .data = {8},
                               .pipeline = {9},
                               .tensor_within = CommunicationTime{.on_its_way = {0.5}, .hidden = {0.125}}};
  const Timeline again = read_back(to_trace(timeline));
  CHECK_FALSE(again.ranks[0].by_axis);
  CHECK(again.ranks[1] == timeline.ranks[1]);
  CHECK_FALSE(most_received(timeline));                                        // of one rank it is not known
  timeline.ranks[0].by_axis = {.tensor = {9}, .data = {2}, .pipeline = {10}};  // as measured
  CHECK(read_back(to_trace(timeline)).ranks[0] == timeline.ranks[0]);
  CHECK(most_received(timeline) == AxisTraffic{.tensor = {9}, .data = {8}, .pipeline = {10}});
}

TEST_CASE("memory over time is drawn as a counter of its rank") {
  Timeline timeline = random_gpipe(2, 3, 1, 5);
  timeline.memory = {{{{0}, {100}}, {{1e-6}, {250}}}, {{{0}, {7}}}};
  const auto trace = nlohmann::json::parse(to_trace(timeline));
  std::vector<std::string> counters;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "C") counters.push_back(event.dump());
  }
  CHECK(counters == std::vector<std::string>{R"({"args":{"bytes":100},"name":"memory","ph":"C","pid":0,"ts":0.0})",
                                             R"({"args":{"bytes":250},"name":"memory","ph":"C","pid":0,"ts":1.0})",
                                             R"({"args":{"bytes":7},"name":"memory","ph":"C","pid":1,"ts":0.0})"});
}

TEST_CASE("a message's arrow goes from the end of what made it to the start of what needs it") {
  const Timeline timeline = random_gpipe(3, 2, 1, 12);
  const nlohmann::json trace = nlohmann::json::parse(to_trace(timeline));
  using Point = std::pair<int, std::int64_t>;  // rank and nanosecond
  const auto point = [](const nlohmann::json& event, const char* key) {
    return Point{event.at("pid"), std::llround(event.at(key).get<double>() * 1e3)};
  };
  std::map<std::string, std::pair<Point, Point>> computes;  // start and end, by name
  std::map<int, std::pair<Point, Point>> arrows;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "s") arrows[event.at("id")].first = point(event, "ts");
    if (phase == "f") arrows[event.at("id")].second = point(event, "ts");
    if (phase != "X" || event.at("cat") != "compute") continue;
    const Point start = point(event, "ts");
    computes[event.at("name")] = {start, {start.first, start.second + point(event, "dur").second}};
  }
  std::set<std::pair<Point, Point>> expected;
  const auto expect = [&](const std::string& producer, const std::string& consumer) {
    const auto [start, end] = computes.at(producer);
    // One nanosecond before the end, where the slice is still this one.
    expected.insert({{end.first, std::max(start.second, end.second - 1)}, computes.at(consumer).first});
  };
  for (const char* k : {"0", "1"}) {
    for (const auto& [lower, upper] : {std::pair{"0", "1"}, {"1", "2"}}) {
      expect(std::string("PP:") + lower + "F" + k, std::string("PP:") + upper + "F" + k);
      expect(std::string("PP:") + upper + "B" + k, std::string("PP:") + lower + "B" + k);
    }
  }
  std::set<std::pair<Point, Point>> drawn;
  for (const auto& [id, ends] : arrows) drawn.insert(ends);
  REQUIRE(expected.size() == 8);
  REQUIRE(drawn == expected);
}

TEST_CASE("traces that plumb did not write are refused by name") {
  const std::string good = to_trace(random_gpipe(2, 3, 2, 5));
  const auto refused = [](const std::string& text, const std::string& said) {
    REQUIRE_THROWS_WITH(read_back(text), ContainsSubstring(".json") && ContainsSubstring(said));
    REQUIRE_THROWS_AS(read_back(text), InputError);
  };
  refused(R"({"traceEvents":[{"ph":"X","name":"aten::mm","pid":1,"tid":2,"ts":0,"dur":1}]})", "not one of plumb's");
  refused(R"({"a": 1})", "not a timeline");
  refused("[]", "not a timeline");
  refused("", "truncated");
  for (std::size_t part = 1; part < 8; ++part) refused(good.substr(0, part * good.size() / 8), "truncated");
  refused(replaced(good, "\"version\":1", "\"version\":7"), "plumb.version: is 7, this plumb reads version 1");
  refused(replaced(good, "\"measured\"", "\"guessed\""), "plumb.source");
  refused(replaced(good, "\"kind\":\"F\"", "\"kind\":\"X\""), "unknown kind 'X'");
  refused(replaced(good, "\"kind\":\"F\",", ""), "has no 'kind'");
  refused(replaced(good, "\"start_s\":", "\"start_s\":1e3,\"was_s\":"), "ends before it starts");
  // A step's times count from its start, as the type says, and end as all times do.
  refused(replaced(good, "\"start_s\":", "\"start_s\":-0.5,\"was_s\":"), "runs from -500.0 ms to ");
  refused(replaced(good, "\"end_s\":", "\"end_s\":2e9,\"was_s\":"), "expected 0 to 1e9 s");
  refused(replaced(good, "\"stage\":0", "\"stage\":2"), "is of stage 2 of 2");
  refused(replaced(good, "\"stage\":0", "\"stage\":99999999999"), "'stage' out of range");
  refused(replaced(good, "\"microbatch\":0", "\"microbatch\":3"), "is of microbatch 3 of 3");
  refused(replaced(good, "\"ph\":\"X\"", "\"ph\":\"B\""), "events in the trace, expected");
  refused(replaced(good, "\"step\":1", "\"step\":2"), "is of step 2 of 2");
  refused(replaced(good, "0F0 0F1", "0F0 0Q1"), "plumb.schedule.actions[0]");
  refused(replaced(good, "0F0 0F1", "0F0 5F1"), "holds 5F1 of 2 stages");
  refused(replaced(good, "\"rank_of_stage\":[0,1]", "\"rank_of_stage\":[0,2]"), "rank_of_stage[1]");
  refused(replaced(good, "\"boundary_bytes\":", "\"boundary_bites\":"), "plumb.costs");
}

TEST_CASE("a damaged trace is read or refused, never worse") {
  const std::string good = to_trace(random_gpipe(2, 2, 1, 9));
  std::mt19937_64 random(10);
  const std::string bytes = "\"{}[],:0123456789.-eaFBPnult\\ \x01\xff";
  int refusals = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = good;
    for (int change = 0; change < 1 + round % 3; ++change) {
      const std::size_t at = std::uniform_int_distribution<std::size_t>(0, text.size() - 1)(random);
      text[at] = bytes[std::uniform_int_distribution<std::size_t>(0, bytes.size() - 1)(random)];
    }
    try {
      const Timeline timeline = read_back(text);
      REQUIRE(timeline.steps.size() == 1);
    } catch (const InputError& error) {
      REQUIRE_FALSE(error.where().empty());
      ++refusals;
    }
  }
  REQUIRE(refusals > 100);
}

TEST_CASE("a time that is not finite is not written") {
  Timeline timeline = random_gpipe(1, 1, 1, 1);
  timeline.steps[0].events[0].end = {std::numeric_limits<double>::infinity()};
  REQUIRE_THROWS_AS(to_trace(timeline), InputError);
}

TEST_CASE("a timeline of all ranks of a layout survives its trace, and its ranks are checked against the layout") {
  Timeline timeline = of_all_ranks(random_gpipe(2, 3, 1, 7), {.pipeline = 2, .tensor = {}, .data = {.degree = 3}});
  timeline.clock_uncertainty = {1e-4};
  timeline.clock_of_rank = {0, 1, 2, 3, 4, 5};
  const std::string text = to_trace(timeline);
  const Timeline again = read_back(text);
  CHECK(again.layout == timeline.layout);
  CHECK(again.steps == timeline.steps);
  CHECK(again.ranks.size() == 6);
  CHECK(again.clock_of_rank == timeline.clock_of_rank);
  CHECK(text.find("\"name\":\"rank 5\"") != std::string::npos);
  CHECK_THROWS_WITH(read_back(replaced(text, "\"degree\":3", "\"degree\":2")),
                    ContainsSubstring("6 entries for 4 ranks"));
  CHECK_THROWS_WITH(read_back(replaced(text, "\"pipeline\":2", "\"pipeline\":3")),
                    ContainsSubstring("is 3, the schedule has 2 ranks"));
}

}  // namespace plumb
