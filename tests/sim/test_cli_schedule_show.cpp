// `plumb schedule show` and `compare` from outside.
#include <chrono>

#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/effort.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::schedule_entries;
using plumb::ScheduleEntry;
using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::on_terminal;
using plumb::tests::Outcome;
using plumb::tests::refuses;
using plumb::tests::require_keys;
using plumb::tests::run_plumb;
using plumb::tests::scenario;
using plumb::tests::small;

TEST_CASE("every schedule is shown, in words and with the keys that design names") {
  const Folder folder;
  for (const ScheduleEntry& entry : schedule_entries()) {
    INFO(entry.name);
    const std::string command = "schedule show " + entry.name + " --ranks 4 --microbatches 8 --times 1,1,1";
    const Json shown = json_of(run_plumb(folder, command + " --json"));
    require_keys(shown, {"schedule", "ranks", "microbatches", "chunks", "makespan", "bubble_makespan", "bubble_span",
                         "peak_activations", "slices", "replicas", "weight_versions"});
    CHECK(shown["microbatches"] == 8);
    CHECK(shown["peak_activations"].size() == 4);
    // All ranks compute 8 microbatches of 3; of two replicas too, whose share is one stage.
    CHECK(shown["makespan"].get<double>() - shown["bubble_makespan"].get<double>() == Approx(24));
    CHECK_THAT(run_plumb(folder, command).out, ContainsSubstring("makespan") && ContainsSubstring("rank 3 │"));
  }
}

TEST_CASE("options of the shape reach the schedules that use them, and others refuse them") {
  const Folder folder;
  const auto shown = [&](const std::string& arguments) {
    return json_of(run_plumb(folder, "schedule show " + arguments + " --ranks 4 --microbatches 8 --json"));
  };
  // Bubble (p − 1)(F + B) / n, memory (p − 1 + n) / n on the first rank.
  const Json sliced = shown("seq-1f1b --slices 4 --times 4,4,4");
  CHECK(sliced["slices"] == 4);
  CHECK(sliced["bubble_makespan"].get<double>() == Approx(3 * 12 / 4.0));
  CHECK(sliced["peak_activations"][0].get<double>() == Approx((3 + 4) / 4.0));
  CHECK(shown("interleaved-1f1b --group 8")["peak_activations"] > shown("interleaved-1f1b")["peak_activations"]);
  CHECK(shown("pipedream")["weight_versions"] == Json::array({4, 3, 2, 1}));
  CHECK(shown("pipedream-2bw --update-every 4")["weight_versions"][0] == 2);
  CHECK(shown("dualpipe")["replicas"] == 2);
  // [(p−1)(F+B) + (p(v−1)+1)(F+B) + (mv−p(v−1)−1)F&B]/v with F&B = F+B − F/2, of which 8·2 − 5 = 11 chunks hide.
  CHECK(shown("interleaved-1f1b --overlap --times 4,4,4 --hidden 0.5")["makespan"].get<double>() ==
        Approx((3 * 12 + 5 * 12 + 11 * 10) / 2.0));
  refuses(run_plumb(folder, "schedule show dualpipe --ranks 4 --microbatches 8 --hidden 1.5"), {"--hidden"});
  for (const std::string option : {"--chunks 2", "--slices 2", "--group 4", "--update-every 4", "--overlap"}) {
    refuses(run_plumb(folder, "schedule show 1f1b --ranks 4 --microbatches 8 " + option), {"1f1b"});
  }
}

TEST_CASE("a schedule is shown by the description that plans print, too") {
  const Folder folder;
  const std::string shape = " --ranks 4 --microbatches 8";
  const auto shown = [&](const std::string& name) {
    return json_of(run_plumb(folder, "schedule show " + name + shape + " --json"));
  };
  CHECK(shown("'interleaved-1f1b, 4 chunks, overlapped'") == shown("interleaved-1f1b --chunks 4 --overlap"));
  CHECK(shown("'interleaved-1f1b, 2 chunks, groups of 8'") == shown("interleaved-1f1b --chunks 2 --group 8"));
  CHECK(shown("'seq-1f1b, 8 slices'") == shown("seq-1f1b --slices 8"));
  CHECK(shown("'pipedream-2bw, an update every 4'") == shown("pipedream-2bw --update-every 4"));
  const std::string show = "schedule show ";
  refuses(run_plumb(folder, show + "'interleaved-1f1b, 2 chunks' --chunks 4" + shape), {"--chunks", "has it, too"});
  refuses(run_plumb(folder, show + "'seq-1f1b, slices of 16 + 8'" + shape), {"needs the sizes of a scenario"});
  refuses(run_plumb(folder, show + "'1f1b, 2 chunks'" + shape), {"'1f1b' has no use for '2 chunks'"});
  refuses(run_plumb(folder, show + "'1f1d, 2 chunks'" + shape), {"did you mean '1f1b'?"});
}

TEST_CASE("more chunks than any rank has are refused") {
  const Folder folder;
  refuses(run_plumb(folder, "schedule show interleaved-1f1b --ranks 2 --microbatches 4 --chunks 4097"),
          {"--chunks", "4096"});
}

TEST_CASE("a schedule of millions of actions says on a terminal what it is at") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string microbatches = std::to_string(plumb::testing::cases(1280));
  const auto shown =
      on_terminal("schedule show interleaved-1f1b --ranks 64 --chunks 12 --microbatches " + microbatches, "");
  const auto took = std::chrono::steady_clock::now() - begin;
  if (!shown) return;
  CHECK_THAT(*shown, ContainsSubstring("64 ranks, " + microbatches + " microbatches, 12 stages per rank"));
  // Progress is shown after the first second, and the chart takes less than half of the time.
  if (took > std::chrono::seconds(4)) CHECK_THAT(*shown, ContainsSubstring("showing the schedule: "));
}

TEST_CASE("a schedule's picture is written whole or not at all") {
  const Folder folder;
  const std::string command = "schedule show dualpipe --ranks 4 --microbatches 8 --svg ";
  const Outcome outcome = run_plumb(folder, command + folder.file("a.svg"));
  CHECK(outcome.status == 0);
  CHECK_THAT(plumb::read_file(folder.file("a.svg")), ContainsSubstring("</svg>"));
  refuses(run_plumb(folder, command + folder.file("no/a.svg")), {"no"});
  CHECK(folder.files() == 1);
}

TEST_CASE("the chart has as many columns as are asked for, and colour on a terminal only") {
  const Folder folder;
  const std::string command = "schedule show 1f1b --ranks 16 --microbatches 64 --width 60 --ascii";
  CHECK_THAT(run_plumb(folder, command).out, !ContainsSubstring("\033") && ContainsSubstring("x "));
  const auto text = on_terminal(command, "TERM=xterm");
  if (text) CHECK_THAT(*text, ContainsSubstring("\033[0;30;104m"));
}

TEST_CASE("schedules are compared on the same costs, best first, with what cannot be built") {
  const Folder folder;
  const std::string command = "schedule compare all --ranks 3 --microbatches 9 --times 1,1,1";
  const Json compared = json_of(run_plumb(folder, command + " --json"));
  REQUIRE(compared["schedules"].size() == schedule_entries().size() + 1);  // zb-auto with one chunk, and with two
  double before = 0;
  bool all_built = true;
  for (const Json& row : compared["schedules"]) {
    if (!row["built"].get<bool>()) {
      all_built = false;
      CHECK_FALSE(row["reason"].get<std::string>().empty());
      continue;
    }
    CHECK(all_built);
    CHECK(row["makespan"].get<double>() >= before);
    before = row["makespan"].get<double>();
    const Json alone =
        json_of(run_plumb(folder, "schedule show " + row["schedule"].get<std::string>() +
                                      " --ranks 3 --microbatches 9 --times 1,1,1 --json" +
                                      (row["schedule"] == "zb-auto" ? " --chunks " + row["chunks"].dump() : "")));
    CHECK(alone["makespan"] == row["makespan"]);
  }
  CHECK_FALSE(all_built);  // DualPipe wants an even number of ranks
  CHECK_THAT(run_plumb(folder, command).out, ContainsSubstring("Could not be built") && ContainsSubstring("dualpipe "));
  const Json two = json_of(run_plumb(folder, "schedule compare 1f1b zb-h1 --ranks 4 --microbatches 8 --json"));
  REQUIRE(two["schedules"].size() == 2);
  CHECK(two["schedules"][0]["schedule"] == "zb-h1");
  refuses(run_plumb(folder, "schedule compare 1f1c --ranks 4 --microbatches 8"), {"did you mean '1f1b'?"});
  refuses(run_plumb(folder, "schedule compare all --ranks 4"), {"--microbatches"});
}

TEST_CASE("a comparison says what to do about schedules that could not be built, and refuses to be without any") {
  const Folder folder;
  const std::string shape = " --ranks 3 --microbatches 8";
  const Json compared = json_of(run_plumb(folder, "schedule compare 1f1b dualpipe --json" + shape));
  CHECK(compared["schedules"][1]["hint"] == "take 2 or 4 ranks");
  CHECK_THAT(run_plumb(folder, "schedule compare 1f1b dualpipe" + shape).out, ContainsSubstring("; take 2 or 4 ranks"));
  for (const std::string json : {"", " --json"}) {
    refuses(run_plumb(folder, "schedule compare dualpipe" + shape + json), {"3 ranks", "hint: take 2 or 4 ranks"});
    refuses(run_plumb(folder, "schedule compare dualpipe chimera" + shape + json),
            {"none could be built", "dualpipe: 3 ranks", "chimera: "});
  }
}

TEST_CASE("a scenario's schedules are compared at what its stages cost") {
  const Folder folder;
  const std::string file = folder.file("small.yaml", small);
  const Json compared = json_of(run_plumb(folder, "schedule compare " + file + " 1f1b gpipe zb-v --json"));
  REQUIRE(compared["schedules"].size() == 3);
  for (const Json& row : compared["schedules"]) {
    require_keys(row, {"schedule", "iteration_s", "peak_bytes", "fits", "split", "microbatch", "peak_activations"});
    if (row["schedule"] != "1f1b") continue;
    const Json predicted = json_of(run_plumb(folder, "simulate " + file + " --engine path --json"));
    CHECK(row["iteration_s"] == predicted["iteration_s"]);
    CHECK(row["bubble_makespan_fraction"] == predicted["bubble_makespan_fraction"]);
  }
  const Json behind = json_of(run_plumb(folder, "schedule compare 1f1b gpipe " + file + " zb-v --json"));
  CHECK(behind == compared);
  refuses(run_plumb(folder, "schedule compare all " + file + " --ranks 4"), {"--ranks", "small.yaml"});
  refuses(run_plumb(folder, "schedule compare " + file + " " + file), {"unknown schedule"});
  refuses(run_plumb(folder, "schedule compare " + file + " --ranks 4"), {"--ranks", "small.yaml"});
  refuses(run_plumb(folder, "schedule compare nosuch.yaml"), {"nosuch.yaml"});
}

TEST_CASE("the documents have a row for every schedule") {
  const std::string text = plumb::read_file(std::string(PLUMB_SOURCE_DIR) + "/docs/reference/schedules.md");
  for (const ScheduleEntry& entry : schedule_entries()) {
    INFO(entry.name);
    CHECK_THAT(text, ContainsSubstring("| `" + entry.name + "` |") && ContainsSubstring(entry.bubble));
  }
}
