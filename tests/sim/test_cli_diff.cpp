// `plumb diff` and `plumb report` from outside.
#include "common/base/files.hpp"
#include "common/cost/profile/profile.hpp"
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

#ifdef PLUMB_HAS_SIMGRID
TEST_CASE("diff adds up to the gap, and fails above a fraction with status 1") {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const std::string path = folder.file("path.json");
  const std::string simulated = folder.file("simgrid.json");
  const std::string shared = folder.file("shared.yaml", replaced(small, "ranks: 2, cores: 2", "ranks: 2, cores: 1"));
  REQUIRE(run_plumb(folder, "plan " + shared + " -o " + plan).status == 0);
  REQUIRE(run_plumb(folder, "simulate " + plan + " --engine path -o " + path).status == 0);
  REQUIRE(run_plumb(folder, "simulate " + plan + " -o " + simulated).status == 0);
  const std::string command = "diff " + path + " " + simulated;
  const Json difference = json_of(run_plumb(folder, command + " --json"));
  require_keys(difference, {"predicted_s", "measured_s", "replay_s", "causes"});
  double sum = 0;
  for (const Json& cause : difference["causes"]) {
    require_keys(cause, {"cause", "seconds", "actions"});
    sum += cause["seconds"].get<double>();
  }
  const Json& received = difference["received_by_axis"]["pipeline"];
  CHECK(received["predicted_bytes"] == received["measured_bytes"]);
  CHECK(received["predicted_bytes"].get<double>() > 0);
  const Json& messages = difference["communication"]["messages"];
  for (const char* side : {"predicted", "measured"}) {
    const double on_its_way = messages[side]["on_its_way_s"];
    CHECK(on_its_way > 0);
    CHECK(messages[side]["hidden_s"].get<double>() + messages[side]["exposed_s"].get<double>() == Approx(on_its_way));
  }
  CHECK_THAT(run_plumb(folder, command).out,
             ContainsSubstring("received by a rank") && ContainsSubstring("in flight, mean of the ranks"));
  const double gap = difference["measured_s"].get<double>() - difference["predicted_s"].get<double>();
  CHECK(gap > 0);
  CHECK(sum == Approx(gap));
  CHECK(run_plumb(folder, command + " --fail-above 0.9").status == 0);
  CHECK(run_plumb(folder, command + " --fail-above 0.01").status == 1);
  refuses(run_plumb(folder, command + " --profile-before a.yaml"), {"--profile-after"});
}
#endif

TEST_CASE("where every kind of action differs alike, diff asks for calibrations around the run") {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const std::string predicted = folder.file("predicted.json");
  REQUIRE(run_plumb(folder, "plan " + folder.file("small.yaml", small) + " -o " + plan).status == 0);
  REQUIRE(run_plumb(folder, "simulate " + plan + " --engine path -o " + predicted).status == 0);
  const auto run_of = [&](const std::string& name, double first, double others) {
    Json slow = Json::parse(plumb::read_file(plan));
    for (std::size_t stage = 0; stage < slow["costs"]["stages"].size(); ++stage) {
      for (const char* key : {"forward_s", "input_gradient_s", "weight_gradient_s"}) {
        Json& time = slow["costs"]["stages"][stage][key];
        time = (stage == 0 ? first : others) * time.get<double>();
      }
    }
    const std::string run = folder.file(name);
    REQUIRE(
        run_plumb(folder, "simulate " + folder.file("slow.json", slow.dump()) + " --engine path -o " + run).status ==
        0);
    Json trace = Json::parse(plumb::read_file(run));
    trace["plumb"]["source"] = "measured";
    return folder.file(name, trace.dump());
  };
  const std::string asks = "No kind of action stands out. Was the machine as fast as when it was calibrated?";
  const std::string uncalibrated = run_plumb(folder, "diff " + predicted + " " + run_of("all.json", 1.2, 1.2)).out;
  CHECK_THAT(uncalibrated, ContainsSubstring("nothing was measured for the prediction: its costs are from ") &&
                               ContainsSubstring("`plumb plan --profile profile.yaml`"));
  CHECK_THAT(uncalibrated, ContainsSubstring("prediction off by -1"));  // about 1/1.2 − 1
  Json calibrated = Json::parse(plumb::read_file(predicted));
  calibrated["plumb"]["costs"]["provenance"] = "profile of a machine";
  const std::string command = "diff " + folder.file("calibrated.json", calibrated.dump()) + " ";
  CHECK_THAT(run_plumb(folder, command + run_of("all.json", 1.2, 1.2)).out, ContainsSubstring(asks));
  CHECK_THAT(run_plumb(folder, command + run_of("most.json", 1.25, 1.2)).out, ContainsSubstring(asks));
  CHECK(run_plumb(folder, command + run_of("one.json", 1.5, 1)).out.find(asks) == std::string::npos);
  CHECK(run_plumb(folder, command + run_of("none.json", 1.01, 1.01)).out.find(asks) == std::string::npos);
}

TEST_CASE("diff judges nothing when the machine moved by more than 2% between two calibrations") {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const std::string faster = folder.file("faster.json");
  const std::string slower = folder.file("slower.json");
  const auto calibration = [&](const std::string& name, double forward) {
    plumb::Profile profile;
    profile.samples = 5;
    profile.transport = "local";
    profile.transfer.bandwidth = {1e9};
    profile.shapes.model = "m";
    profile.shapes.model_digest = "0123456789abcdef";
    profile.shapes.sequence = 8;
    profile.shapes.microbatch = 1;
    profile.blocks.emplace_back();
    profile.blocks.back().block = "head";
    profile.blocks.back().cost.forward = {forward};
    return folder.file(name, plumb::to_yaml(profile));
  };
  REQUIRE(run_plumb(folder, "plan " + folder.file("small.yaml", small) + " -o " + plan).status == 0);
  REQUIRE(run_plumb(folder, "simulate " + plan + " --engine path -o " + faster).status == 0);
  Json slow = Json::parse(plumb::read_file(plan));
  for (Json& stage : slow["costs"]["stages"]) stage["forward_s"] = 2 * stage["forward_s"].get<double>();
  REQUIRE(
      run_plumb(folder, "simulate " + folder.file("slow.json", slow.dump()) + " --engine path -o " + slower).status ==
      0);
  const std::string command =
      "diff " + faster + " " + slower + " --fail-above 0.01 --profile-before " + calibration("before.yaml", 1.00);

  const std::string steady = command + " --profile-after " + calibration("steady.yaml", 1.01);
  const Outcome judged = run_plumb(folder, steady + " --json");
  CHECK(judged.status == 1);
  CHECK(Json::parse(judged.out)["verdict"] == "above");
  CHECK(Json::parse(judged.out)["moved_fraction"] == Approx(0.01));
  CHECK(Json::parse(judged.out)["inconclusive"] == false);

  const std::string moved = command + " --profile-after " + calibration("moved.yaml", 1.05);
  const Json open = json_of(run_plumb(folder, moved + " --json"));  // exit status 0
  CHECK(open["verdict"] == "inconclusive");
  CHECK(open["moved_fraction"] == Approx(0.05));
  CHECK(open["inconclusive"] == true);
  CHECK_THAT(run_plumb(folder, moved).out, ContainsSubstring("inconclusive: the machine itself moved by 5"));

  CHECK(open["uneven_profile"] == false);
  Json noisy = Json::parse(plumb::read_file(faster));
  noisy.at("plumb").at("costs").at("provenance") = "measured on a made-up machine, measured too unevenly to trust";
  const std::string on_noisy = "diff " + folder.file("noisy.json", noisy.dump()) + " " + slower + " --json";
  CHECK(json_of(run_plumb(folder, on_noisy))["uneven_profile"] == true);

  const std::string report = replaced(replaced(moved, "diff ", "report "), "--fail-above 0.01", "") + " --json -o ";
  CHECK(json_of(run_plumb(folder, report + folder.file("moved.html")))["inconclusive"] == true);
  CHECK_THAT(plumb::read_file(folder.file("moved.html")),
             ContainsSubstring("<b>inconclusive: the machine itself moved by 5.0% between"));
  refuses(run_plumb(folder, "report " + faster + " --profile-after a.yaml"), {"--profile-before", "give both"});
}

TEST_CASE("diff and report make no finding of what the hosts' clocks may be apart") {
  const Folder folder;
  const std::string predicted = folder.file("predicted.json");
  const std::string plan = folder.file("small.yaml", small);
  REQUIRE(run_plumb(folder, "simulate " + plan + " --engine path -o " + predicted).status == 0);
  // Two hosts whose clocks agree within a second: whatever the messages took is no finding.
  Json run = Json::parse(plumb::read_file(predicted));
  run["plumb"]["source"] = "measured";
  run["plumb"]["clock_uncertainty_s"] = 1.0;
  run["plumb"]["clock_of_rank"] = {0, 1};
  double last = 0;
  for (Json& event : run["traceEvents"]) {
    if (event["ph"] != "X") continue;
    Json& times = event["args"];
    const int rank = event["pid"];  // of a message the receiver, while it starts on its sender's clock
    const auto ahead = [](int of) { return of == 1 ? 0.25 : 0; };
    times["start_s"] = times["start_s"].get<double>() + ahead(times.value("peer", rank));
    times["end_s"] = std::max(times["start_s"].get<double>(), times["end_s"].get<double>() + ahead(rank));
    last = std::max(last, times["end_s"].get<double>());
  }
  for (Json& step : run["plumb"]["steps"]) step["duration_s"] = last;
  const std::string command = "diff " + predicted + " " + folder.file("measured.json", run.dump());
  const Json difference = json_of(run_plumb(folder, command + " --fail-above 0.01 --json"));
  CHECK(difference["clock_uncertainty_s"] == 1.0);
  CHECK(difference["verdict"] == "within");
  CHECK(difference["error_fraction"].get<double>() > 0.01);
  for (const Json& cause : difference["causes"]) {
    INFO(cause.dump());
    const bool none = std::abs(cause["seconds"].get<double>()) < 1e-9 || cause["within_clock_uncertainty"] == true;
    CHECK(none);
  }
  const Outcome told = run_plumb(folder, command);
  CHECK_THAT(told.out, ContainsSubstring("The clocks of the hosts agree within 1.000 s"));
  CHECK_THAT(told.out, ContainsSubstring("as predicted, as far as the clocks agree"));
  const std::string page = folder.file("clocks.html");
  const std::string report = replaced(command, "diff", "report") + " --json -o " + page;
  CHECK(json_of(run_plumb(folder, report))["clock_uncertainty_s"] == 1.0);
  CHECK_THAT(plumb::read_file(page), ContainsSubstring("The clocks of the hosts agree within 1.000 s"));
  // Of one clock nothing is said, and the same times are a finding.
  run["plumb"].erase("clock_uncertainty_s");
  run["plumb"].erase("clock_of_rank");
  const std::string alone = "diff " + predicted + " " + folder.file("alone.json", run.dump());
  CHECK_FALSE(Json::parse(run_plumb(folder, alone + " --json").out).contains("clock_uncertainty_s"));
  CHECK(run_plumb(folder, alone + " --fail-above 0.01").status == 1);
  CHECK(run_plumb(folder, alone).out.find("clock") == std::string::npos);
}

TEST_CASE("a report is one page that needs no network") {
  const Folder folder;
  const std::string timeline = folder.file("predicted.json");
  REQUIRE(run_plumb(folder, "simulate " + scenario("demo") + " -o " + timeline).status == 0);
  const std::string page = folder.file("report.html");
  REQUIRE(run_plumb(folder, "report " + timeline + " -o " + page).status == 0);
  const std::string html = plumb::read_file(page);
  CHECK_THAT(html, ContainsSubstring("<html"));
  CHECK(html.find(" src=\"http") == std::string::npos);
  CHECK(html.find("<link") == std::string::npos);
}
