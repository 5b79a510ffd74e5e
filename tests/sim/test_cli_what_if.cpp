// What-if files, derivatives, uncertainty and ranking as the program `plumb` answers them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::Outcome;
using plumb::tests::refuses;
using plumb::tests::replaced;
using plumb::tests::run_plumb;
using plumb::tests::small;

namespace {

// Four ranks on machines whose numbers have uncertainties.
std::string on_gpus() {
  const std::string gpus = replaced(small, "{machine: local-cpu, ranks: 2, cores: 2}", "{machine: dgx-a100, ranks: 4}");
  return replaced(replaced(gpus, "pipeline: 2", "pipeline: 4"), "sequence: 32", "sequence: 32768");
}

}  // namespace

TEST_CASE("the shipped variants run on the demo, and what fails in them is named") {
#ifdef PLUMB_HAS_SIMGRID
  const Folder folder;
  const std::string file = folder.file("s.yaml", on_gpus());
  const std::string command =
      "simulate " + file + " --what-if '" + std::string(PLUMB_SOURCE_DIR) + "/scenarios/what-if/faults.yaml'";
  const Outcome outcome = run_plumb(folder, command + " --json");
  const Json answer = json_of(outcome);
  REQUIRE(answer["what_if"].size() == 11);
  const Json& planned = answer["what_if"][0];
  CHECK(planned["iteration_s"].get<double>() == Approx(answer["iteration_s"].get<double>()));
  CHECK(planned["change_fraction"] == 0);
  int failed = 0;
  for (const Json& row : answer["what_if"]) {
    if (!row["failed"]) {
      CHECK(row["iteration_s"].get<double>() > 0);
      continue;
    }
    ++failed;
    CHECK(row["iteration_s"].is_null());
    CHECK(row["never_ran"].get<int>() > 0);
    CHECK_THAT(row["failure"].get<std::string>(), ContainsSubstring("rank 2 failed at"));
  }
  CHECK(failed <= 1);  // the step may end before the date
  CHECK(run_plumb(folder, command + " --json").out == outcome.out);
  CHECK_THAT(run_plumb(folder, command).out, ContainsSubstring("as planned"));
#endif
}

TEST_CASE("a failure is an answer, and the longest path refuses what it does not know") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", on_gpus());
  const std::string variants = folder.file("w.yaml", "- {name: dies, host: {rank: 1, fails_at: 0 s}}\n");
  refuses(run_plumb(folder, "simulate " + file + " --engine path --what-if " + variants),
          {"dies", "no slow or failing link or host"});
#ifdef PLUMB_HAS_SIMGRID
  const Outcome text = run_plumb(folder, "simulate " + file + " --what-if " + variants);
  CHECK(text.status == 0);
  const Json failed = json_of(run_plumb(folder, "simulate " + file + " --json --what-if " + variants))["what_if"][1];
  REQUIRE(failed["causes"].size() == 1);
  CHECK(failed["causes"][0] == Json{{"what", "device"}, {"rank", 1}, {"at_s", 0.0}});
  CHECK(failed["first"]["rank"] == 1);
  CHECK(failed["first"]["action"].get<std::string>().starts_with("1"));
  CHECK_THAT(text.out, ContainsSubstring("rank 1 failed at 0 s"));
  CHECK_THAT(text.out, ContainsSubstring("actions never ended, the first: rank 1"));
#endif
  const std::string wrong = folder.file("x.yaml", "- {name: a, straggler: {rank: 4, slower: 2}}\n");
  refuses(run_plumb(folder, "simulate " + file + " --what-if " + wrong), {"x.yaml:1", "ranks 0 to 3, not 4"});
}

TEST_CASE("a variant's memory is that of the same plan alone, and that it does not fit is said") {
  const Folder folder;
  const std::string uniform = replaced(on_gpus(), "split: dynamic", "split: uniform");
  const std::string file = folder.file("s.yaml", uniform);
  const std::string grown = folder.file(
      "t.yaml", replaced(uniform, "global_batch: 8, microbatch: 1", "global_batch: 8192, microbatch: 1024"));
  const std::string variants =
      folder.file("w.yaml", "- {name: large, training: {global_batch: 8192, microbatch: 1024}}\n");
  const std::string command = "simulate " + file + " --engine path --what-if " + variants;
  const Json rows = json_of(run_plumb(folder, command + " --json"))["what_if"];
  const Json alone = json_of(run_plumb(folder, "simulate " + grown + " --engine path --json"));
  std::int64_t fullest = 0;
  for (const Json& rank : alone["ranks"]) fullest = std::max(fullest, rank["peak_bytes"].get<std::int64_t>());
  CHECK(rows[0]["fits"] == true);
  CHECK(rows[1]["peak_bytes"] == fullest);
  CHECK(alone["fits"] == false);
  CHECK(rows[1]["fits"] == false);
  CHECK_THAT(run_plumb(folder, command).out, ContainsSubstring("does NOT fit, "));
}

TEST_CASE("a date behind the step's end is said, where the step does not tell") {
#ifdef PLUMB_HAS_SIMGRID
  const Folder folder;
  const std::string file = folder.file("s.yaml", on_gpus());
  const std::string variants = folder.file("w.yaml",
                                           "- {name: late, host: {rank: 1, fails_at: 1000 s}}\n"
                                           "- {name: met, host: {rank: 1, slower: 2, from: 0 s}}\n");
  const std::string command = "simulate " + file + " --what-if " + variants;
  const Json rows = json_of(run_plumb(folder, command + " --json"))["what_if"];
  CHECK(rows[1]["change_fraction"] == 0);
  const std::string said = "nothing met of what begins at 1000 s: the step has ended by then";
  CHECK(rows[1]["note"] == said);
  CHECK(rows[2]["change_fraction"] > 0);
  CHECK_FALSE(rows[2].contains("note"));
  CHECK_THAT(run_plumb(folder, command).out, ContainsSubstring("of the step  " + said));
#endif
}

TEST_CASE("derivatives and uncertainty stand in the object of simulate, the same in every run") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", on_gpus());
  const std::string command = "simulate " + file + " --sensitivity --uncertainty --engine path --json";
  const Outcome outcome = run_plumb(folder, command);
  const Json answer = json_of(outcome);
  double sum = 0;
  for (const Json& entry : answer["sensitivity"]) {
    if (entry["of"] == "stage" || entry["of"] == "message") sum += entry["slope_fraction"].get<double>();
  }
  CHECK(sum == Approx(1));
  CHECK(answer["iteration_low_s"] < answer["iteration_s"]);
  CHECK(answer["iteration_high_s"] > answer["iteration_s"]);
  const Json& contributions = answer["uncertainty"]["contributions"];
  REQUIRE(contributions.size() > 3);
  double before = 1;
  for (const Json& entry : contributions) {  // the largest first, each the slope times the uncertainty
    const double part = entry["step_fraction"].get<double>();
    const double slope = entry["slope_fraction"].get<double>();
    CHECK(part == Approx(std::abs(slope * entry["uncertainty_fraction"].get<double>())));
    CHECK(part <= before + 1e-9);  // what is equal but for rounding stands by name
    before = part;
  }
  CHECK(run_plumb(folder, command).out == outcome.out);
  CHECK(run_plumb(folder, command + " --seed 2").out != outcome.out);
}

TEST_CASE("the tables of derivatives and of variants say in words what a row means, by a row of their own") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", on_gpus());
  const std::string command = "simulate " + file + " --engine path --sensitivity";
  const Json first = json_of(run_plumb(folder, command + " --json"))["sensitivity"][0];
  const std::string text = run_plumb(folder, command).out;
  CHECK_THAT(text, ContainsSubstring("A row moves one thing and leaves all else"));
  char slopes[64];
  std::snprintf(slopes, sizeof slopes, "it is %.3f%% shorter or %.3f%% longer",
                first["if_faster_fraction"].get<double>(), first["if_slower_fraction"].get<double>());
  std::string flowing = text;  // as if lines had no ends
  for (std::size_t at = 0; (at = flowing.find("\n  ", at)) != std::string::npos;) flowing.replace(at, 3, " ");
  CHECK_THAT(flowing, ContainsSubstring(slopes));
  char shorter[32];
  std::snprintf(shorter, sizeof shorter, "%.1f%% shorter", -100 * first["change_fraction"].get<double>());
  CHECK_THAT(flowing, ContainsSubstring("The first row says: " + first["name"].get<std::string>() +
                                        " 10% faster or better, predicted anew, makes the step " + shorter + ". If"));
  // What tied means is said where something is, by its numbers.
  const bool tied = text.find(" tied\n") != std::string::npos;
  CHECK(tied == (text.find("Make what is tied faster together") != std::string::npos));
  const std::string variants = folder.file("v.yaml", "- {name: slow, straggler: {rank: 0, slower: 1.5}}\n");
  CHECK_THAT(run_plumb(folder, "simulate " + file + " --engine path --what-if " + variants).out,
             ContainsSubstring(
                 "A row is one variant of the file, all else as planned; change: its step against `as planned`"));
}

TEST_CASE("two plans are ranked on the same draws") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", on_gpus());
  const std::string other = folder.file("t.yaml", replaced(on_gpus(), "schedule: 1f1b", "schedule: gpipe"));
  const Json answer = json_of(run_plumb(folder, "simulate " + file + " --against " + other + " --draws 20 --json"));
  CHECK(answer["against"]["draws"] == 20);
  CHECK(answer["against"]["same_machine"] == true);
  const std::string text = run_plumb(folder, "simulate " + file + " --against " + file).out;
  CHECK_THAT(text, ContainsSubstring("in 50% of draws"));
  const std::string longer = folder.file("u.yaml", replaced(on_gpus(), "global_batch: 8", "global_batch: 16"));
  const std::string settled = run_plumb(folder, "simulate " + file + " --against " + longer + " --draws 20").out;
  CHECK_THAT(settled, ContainsSubstring("in 100% of draws"));
  CHECK(settled.find("to decide") == std::string::npos);
  refuses(run_plumb(folder, "simulate " + file + " --against " + other + " --draws 1"), {"--draws"});
  refuses(run_plumb(folder, "simulate " + file + " --uncertainty --seed -1"), {"--seed", "a whole number from 0"});
  refuses(run_plumb(folder, "simulate " + file + " --uncertainty --draws 1"), {"--draws", "a whole number from 2 to"});
}

TEST_CASE("studies of the pipeline do not go with all ranks of the layout") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", on_gpus());
  for (const std::string& study : {std::string("--sensitivity"), std::string("--uncertainty"), "--against " + file}) {
    refuses(run_plumb(folder, "simulate " + file + " --unfold " + study), {"--unfold", "leave out"});
  }
  CHECK(run_plumb(folder, "simulate " + file + " --unfold").status == 0);
}
