#include "common/schedule/interchange/schedule_file.hpp"

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"

using namespace plumb;

TEST_CASE("JSON says all that a schedule is: every schedule survives it, lowered too") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    CAPTURE(entry.name);
    const Schedule schedule = entry.generate(shape_for(entry, {.chunks = 2, .microbatches = 8, .ranks = 4}));
    for (const Schedule& written : {schedule, lower(schedule, {})}) {
      const std::string text = to_schedule_file(written);
      const ScheduleReading reading = read_schedule_text(text, "x.json");
      CHECK(reading.schedule == written);
      CHECK(to_schedule_file(reading.schedule) == text);
    }
  }
}

TEST_CASE("files are told apart by what they say") {
  const Schedule schedule = generate_schedule("zb-h1", {.ranks = 2, .microbatches = 2});
  const auto taken_for = [](const std::string& text) { return read_schedule_text(text, "x").taken_for; };
  CHECK(taken_for("\xEF\xBB\xBF \n" + to_schedule_file(schedule)) == "JSON of plumb");
  CHECK(taken_for(to_schedule_file(lower(schedule, {}))) == "JSON of plumb, with communication");
  CHECK(taken_for(to_pytorch_csv(schedule)) == "PyTorch CSV, compute only");
  CHECK(taken_for(to_pytorch_csv(schedule, {.form = CsvForm::compute_comms})) == "PyTorch CSV, with communication");
  CHECK(taken_for(to_pytorch_csv(schedule, {.alphabet = CsvAlphabet::of_2024})) ==
        "PyTorch CSV, compute only, alphabet of 2024");
}

TEST_CASE("JSON that cannot be read names line and key") {
  const std::string good = to_schedule_file(generate_schedule("1f1b", {.ranks = 2, .microbatches = 2}));
  const auto fails = [&](const std::string& from, const std::string& to, const char* with) {
    std::string text = good;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    CAPTURE(text);
    CHECK_THROWS_AS(read_schedule_text(text, "x.json"), InputError);
    CHECK_THROWS_WITH(read_schedule_text(text, "x.json"), ContainsSubstring(with));
  };
  fails("plumb schedule", "plumb timeline", "x.json:2:13: format: is 'plumb timeline', expected 'plumb schedule'");
  fails("\"format\"", "\"form\"", "has no key 'format'");
  fails("\"version\": 1", "\"version\": 7", "x.json:3:14: version: is 7, expected 1");
  fails("\"ranks\": 2", "\"ranks\": 3", "x.json:13:16: schedule.actions: has 2 lists for 3 ranks");
  fails("\"ranks\": 2", "\"rank\": 2", "did you mean 'ranks'?");
  fails("0F1", "0X1", "schedule.actions[0]: action 2: '0X1': expected one of");
  fails("\"microbatches\": 2", "\"microbatches\": 2000000000", "too few for 2000000000 microbatches");
  fails("\"microbatches\": 2", "\"microbatches\": 1000000000000", "expected an integer from 1 to 2147483647");
  fails("\"microbatches\": 2", "\"microbatches\": 1e12", "expected an integer from 1 to 2147483647");
  fails("\"1f1b\"", "\"\\q" + std::string(1000, '(') + "\"", "not JSON: ");
  fails("\"ranks\": 2", "\"" + std::string(1000, '(') + "\": 2",
        ("unknown key '" + std::string(40, '(') + "…'").c_str());
  fails("plumb schedule", std::string(1000, '('), ("is '" + std::string(40, '(') + "…', expected").c_str());
  fails("}\n}", "}", "truncated");
  CHECK_THROWS_WITH(read_schedule_text(good, "x.json", CsvAlphabet::today), ContainsSubstring("one alphabet"));
}
