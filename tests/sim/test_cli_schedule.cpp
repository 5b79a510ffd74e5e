// What `plumb schedule` does with schedules that others wrote, and for others to read.
#include <map>

#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::Outcome;
using plumb::tests::refuses;
using plumb::tests::replaced;
using plumb::tests::require_keys;
using plumb::tests::run_plumb;
using plumb::tests::scenario;
using plumb::tests::small;

namespace {

constexpr const char* shape = " --ranks 4 --microbatches 8";

std::string exported(const Folder& folder, const std::string& arguments) {
  const Outcome outcome = run_plumb(folder, "schedule export " + arguments);
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  return outcome.out;
}

}  // namespace

// Of every kind one: all schedules go there and back in tests/common/schedule/interchange.
TEST_CASE("a schedule that can be exported comes back as the same bytes, in every format") {
  const Folder folder;
  for (const std::string name : {"zb-h1", "interleaved-1f1b", "zb-v", "dualpipe", "seq-1f1b", "bpipe", "pipedream"}) {
    for (const std::string format : {"pytorch-csv", "pytorch-csv-comms", "json"}) {
      CAPTURE(name, format);
      const std::string as = " --format " + format;
      const Outcome first = run_plumb(folder, "schedule export " + name + shape + as);
      if (first.status != 0) {
        CHECK(format != "json");
        refuses(first, {"PyTorch has no action for", "JSON"});
        continue;
      }
      const std::string file = folder.file("schedule.txt", first.out);
      CHECK(run_plumb(folder, "schedule check " + file).status == 0);
      CHECK(exported(folder, file + as) == first.out);
    }
  }
}

TEST_CASE("formats convert into each other") {
  const Folder folder;
  const std::string csv = exported(folder, std::string("zb-v") + shape);
  const std::string json = folder.file("a.json", exported(folder, std::string("zb-v --format json") + shape));
  const std::string comms =
      folder.file("b.csv", exported(folder, std::string("zb-v --format pytorch-csv-comms") + shape));
  const std::string old = folder.file("c.csv", exported(folder, std::string("zb-v --alphabet 2024") + shape));
  for (const std::string& file : {json, comms, old}) CHECK(exported(folder, file) == csv);
}

TEST_CASE("show draws a file as it does a name") {
  const Folder folder;
  const std::string file = folder.file("a.csv", exported(folder, std::string("zb-h1") + shape));
  Json by_name = json_of(run_plumb(folder, std::string("schedule show zb-h1 --times 3,2,1 --json") + shape));
  Json from_file = json_of(run_plumb(folder, "schedule show " + file + " --times 3,2,1 --json"));
  for (Json* shown : {&by_name, &from_file}) shown->erase("schedule");
  CHECK(by_name == from_file);
  CHECK_THAT(run_plumb(folder, "schedule show " + file).out,
             ContainsSubstring("a.csv: 4 ranks") && ContainsSubstring("PyTorch CSV, compute only"));
  refuses(run_plumb(folder, "schedule show " + file + " --ranks 4"), {"--ranks", "is a file"});
  refuses(run_plumb(folder, "schedule show zb-h1 --ranks 4"), {"--microbatches", "is required"});
  refuses(run_plumb(folder, "schedule show missing.csv"), {"missing.csv"});
  refuses(run_plumb(folder, "schedule show " + folder.file("bad.csv", "0B0,0F0\n")),
          {"bad.csv", "0B0 stands before 0F0"});
}

// torch's own `_validate_schedule` takes all of these but the last.
TEST_CASE("check finds what PyTorch's validator does not") {
  const Folder folder;
  const auto kinds = [&](const std::string& text, const std::string& options = "") {
    const Outcome outcome = run_plumb(folder, "schedule check --json " + folder.file("x.csv", text) + options);
    CHECK(outcome.status == 1);
    std::vector<std::string> found;
    const Json answer = Json::parse(outcome.out);
    for (const Json& problem : answer["problems"]) found.push_back(problem["kind"]);
    return found;
  };
  const auto has = [](const std::vector<std::string>& found, const std::string& kind) {
    return std::find(found.begin(), found.end(), kind) != found.end();
  };
  CHECK(has(kinds("0F0,0F0,0B0\n1F0,1B0\n"), "duplicate"));
  CHECK(has(kinds("0F0,0B0\n1B0,1F0\n"), "crossed"));
  CHECK(has(kinds("0F0,2F0,2B0,0B0,0F1,2F1,2B1,0B1\n1F1,1B1,1F0,1B0\n"), "deadlock"));
  CHECK(has(kinds("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n"), "unmatched message"));
  CHECK(has(kinds("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                  "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n"),
            "crossed messages"));
  // Rank 0 sends an activation of stage 0 and a gradient of stage 2; rank 1 takes them the other way around.
  const std::string mixed =
      "0F0,0SEND_F0,2RECV_F0,2F0,0F1,0SEND_F1,2B0,2SEND_B0,0RECV_B0,0B0,2RECV_F1,2F1,2B1,2SEND_B1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0,1RECV_F1,1F1,1SEND_F1,1RECV_B1,1B1,1SEND_B1\n";
  CHECK(kinds(mixed) == std::vector<std::string>{"crossed messages"});
  CHECK(has(kinds("0F0,0F1,0B0,0B1\n", " --memory-limit 1"), "over limit"));
  CHECK(has(kinds("0F0,0F1,0B0\n"), "missing"));
}

TEST_CASE("check says what it took a file for, and how much each rank holds") {
  const Folder folder;
  const std::string file = folder.file("x.csv", "0F0,0F1,0B0,0W0,0BW1\n");
  const Json checked = json_of(run_plumb(folder, "schedule check --json " + file + " --memory-limit 2"));
  require_keys(checked, {"valid", "taken_for", "ranks", "stages", "microbatches", "peak_activations", "notes"});
  CHECK(checked["taken_for"] == "PyTorch CSV, compute only, alphabet of 2024");
  CHECK(checked["peak_activations"] == Json::array({2.0}));
  const Outcome over = run_plumb(folder, "schedule check " + file + " --memory-limit 1.5");
  CHECK(over.status == 1);
  CHECK_THAT(over.out, ContainsSubstring("rank 0: holds 2 activations at its peak, the limit is 1.5; the first that is "
                                         "too many comes with 0F1"));
  refuses(run_plumb(folder, "schedule check " + file + " --alphabet today"), {"x.csv:1:17", "--alphabet 2024"});
  refuses(run_plumb(folder, "schedule check " + file + " --alphabet 2023"), {"--alphabet"});
  for (const std::string limit : {"nan", "-1", "inf", "4GiB"}) {
    const Outcome outcome = run_plumb(folder, "schedule check " + file + " --memory-limit=" + limit);
    refuses(outcome, {"--memory-limit: expected a number from 0 on, found '" + limit + "'"});
    CHECK(outcome.err.size() < 200);
  }
  refuses(run_plumb(folder, "schedule check " + file + " --memory-limit ''"), {"--memory-limit"});
  for (const std::string command : {"show", "compare"}) {
    refuses(run_plumb(folder, "schedule " + command + " 1f1b --ranks 2 --microbatches 4 --hidden nan"),
            {"--hidden: expected a number from 0 to 1, found 'nan'"});
  }
  refuses(run_plumb(folder, "schedule check " + folder.file("x.json", "{\"format\": 1}")), {"x.json:1:12: format"});
}

TEST_CASE("a plan's split is exported as Megatron's layout string, which a scenario takes") {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const std::string file = folder.file("s.yaml", replaced(small, "split: dynamic", "split: [4, 2]"));
  REQUIRE(run_plumb(folder, "plan " + file + " -o " + plan).status == 0);
  const std::string layout = exported(folder, plan + " --format megatron-layout");
  CHECK(layout == "Et*4|ttL\n");
  const std::string again = folder.file("t.yaml", replaced(small, "split: dynamic", "split: \"Et*4|ttL\""));
  CHECK(json_of(run_plumb(folder, "plan --json " + again))["candidates"].size() == 2);
  CHECK_THAT(run_plumb(folder, "schedule check " + plan).out, ContainsSubstring("the schedule of a plan"));
  refuses(run_plumb(folder, std::string("schedule export 1f1b --format megatron-layout") + shape), {"is not a plan"});
  refuses(run_plumb(folder, "schedule export " + file + " --format megatron-layout"), {"is not a plan"});
  refuses(run_plumb(folder, std::string("schedule export 1f1b --format csv") + shape), {"--format"});
  refuses(run_plumb(folder, std::string("schedule export 1f1b --format json --alphabet 2024") + shape), {"--alphabet"});
}

TEST_CASE("zb-auto is not slower than fixed schedules of either placement, and keeps no more than it needs") {
  const Folder folder;
  const auto rows_of = [&](const std::string& arguments) {
    const Json answer = json_of(run_plumb(folder, "schedule compare " + arguments + " --json"));
    std::map<std::string, Json> rows;
    for (const Json& row : answer.at("schedules")) rows.emplace(row.at("schedule"), row);  // the best first
    return rows;
  };
  auto timed = rows_of("all --ranks 8 --microbatches 16 --times 1,2,0.5");
  for (const std::string fixed : {"interleaved-zb", "zb-v", "zb-h1", "v-half", "v-min"}) {
    CAPTURE(fixed);
    CHECK(timed.at("zb-auto").at("makespan") <= timed.at(fixed).at("makespan"));
  }
  CHECK(timed.at("zb-auto").at("peak_activations") <= 8);

  auto predicted = rows_of(scenario("demo") + " zb-auto interleaved-zb zb-v");
  for (const std::string fixed : {"interleaved-zb", "zb-v"}) {
    CAPTURE(fixed);
    CHECK(predicted.at("zb-auto").at("iteration_s") <= predicted.at(fixed).at("iteration_s"));
  }
  CHECK(predicted.at("zb-auto").at("peak_activations") <= 4);
}

TEST_CASE("the table of docs/reference/schedules.md is what the command prints that the page names") {
  const Folder folder;
  const Outcome outcome = run_plumb(folder, "schedule compare " + scenario("hybrid-4-ranks") + " --markdown");
  REQUIRE(outcome.status == 0);
  const std::string page = plumb::read_file(std::string(PLUMB_SOURCE_DIR) + "/docs/reference/schedules.md");
  const std::size_t table = page.find("\n| schedule |");
  REQUIRE(table != std::string::npos);
  CHECK(page.substr(table + 1) == outcome.out);
}
