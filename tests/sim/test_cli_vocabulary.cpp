// A vocabulary over the pipeline from outside: its schedules drawn, exported and checked; both engines, folded or not;
// and what refuses it.
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "common/base/files.hpp"
#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::refuses;
using plumb::tests::run_plumb;

namespace {

std::string divided(const std::string& layout) {
  return "model: {vocabulary: 65536, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*8\"}\n"
         "cluster: {machine: dgx-a100, ranks: 8}\n"
         "training: {sequence: 1024, global_batch: 32, microbatch: 1}\n"
         "layout: {vocabulary: {over: pipeline, barriers: 2}, " +
         layout + "}\nschedule: 1f1b\nsplit: dynamic\n";
}

}  // namespace

TEST_CASE("schedule show --vocabulary: microbatches held, and S and T drawn as parts") {
  const Folder folder;
  for (const int barriers : {1, 2}) {
    const std::string command =
        "schedule show 1f1b --ranks 4 --microbatches 12 --times 4,4,4 --head-times 1,1,1 "
        "--vocabulary " +
        std::to_string(barriers);
    const Json shown = json_of(run_plumb(folder, command + " --json"));
    CHECK(shown["peak_activations"] == Json({4 + barriers, 3 + barriers, 2 + barriers, 1 + barriers}));
    CHECK(shown["makespan"].get<double>() - shown["bubble_makespan"].get<double>() == Approx(12 * (12 + 3)));
    CHECK_THAT(run_plumb(folder, command).out, ContainsSubstring("(below a rank: h head part, e embedding part)"));
  }
  refuses(run_plumb(folder, "schedule show gpipe --ranks 4 --microbatches 8 --vocabulary 1"),
          {"1 barrier, but its 4 ranks do not divide the vocabulary", "1f1b, zb-h1"});
  refuses(run_plumb(folder, "schedule show 1f1b --ranks 4 --microbatches 8 --vocabulary 3"), {"--vocabulary"});
}

TEST_CASE("a schedule with a divided vocabulary is written as JSON, checked, and refused where it has no words") {
  const Folder folder;
  const std::string shape = " 1f1b --ranks 4 --microbatches 6 --vocabulary 2";
  const std::string file =
      folder.file("divided.json", run_plumb(folder, "schedule export" + shape + " --format json").out);
  const Json checked = json_of(run_plumb(folder, "schedule check " + file + " --json"));
  CHECK(checked["valid"] == true);
  CHECK(checked["peak_activations"] == Json({6, 5, 4, 3}));
  refuses(run_plumb(folder, "schedule export" + shape + " --format pytorch-csv"),
          {"PyTorch has no stages that divide a vocabulary"});
}

TEST_CASE("simulate: a vocabulary over the pipeline by both engines, of one rank a stage or of all") {
  const Folder folder;
  const std::string in_tensors =
      folder.file("tensors.yaml", divided("pipeline: 4, tensor: {degree: 2, sequence_parallel: true}"));
  const std::string file = folder.file("divided.yaml", divided("pipeline: 4, data: {degree: 2}"));
  double path = 0;
  for (const std::string& each : {in_tensors, file}) {
    path = json_of(run_plumb(folder, "simulate " + each + " --engine path --json"))["iteration_s"];
    for (const char* options : {"--engine simgrid", "--engine path --unfold", "--engine simgrid --unfold"}) {
      INFO(options);
      const Json found = json_of(run_plumb(folder, "simulate " + each + " " + options + " --json"));
      CHECK(found["iteration_s"].get<double>() == Approx(path).epsilon(0.01));
    }
  }
  const std::string plan = folder.file("plan.json");
  const auto planned = run_plumb(folder, "plan " + file + " -o " + plan);
  CHECK(planned.status == 0);
  CHECK(planned.out.find("offload") == std::string::npos);  // which is refused beside it
  const std::string shown = run_plumb(folder, "show " + plan).out;
  CHECK(std::regex_search(shown, std::regex("\\n +3 +3 +2 ")));     // four stages of two layers
  CHECK(std::regex_search(shown, std::regex("\\n +4 +0 +head ")));  // and behind them the parts
  CHECK(std::regex_search(shown, std::regex("\\n +11 +3 +embedding ")));
  const std::string timeline = folder.file("timeline.json");
  const std::string again = run_plumb(folder, "simulate " + plan + " --engine path --json -o " + timeline).out;
  CHECK(Json::parse(again)["iteration_s"].get<double>() == path);
  CHECK(run_plumb(folder, "report " + timeline + " -o " + folder.file("report.html")).status == 0);
  const Json same = json_of(run_plumb(folder, "diff " + timeline + " " + timeline + " --json"));
  CHECK(same["replay_s"].get<double>() == Approx(path));
  refuses(run_plumb(folder, "schedule export " + plan + " --format megatron-layout"), {"no words for a vocabulary"});
}

TEST_CASE("plan searches a vocabulary over the pipeline beside open degrees, and says what falls out and why") {
  const Folder folder;
  const std::string open =
      "model: {vocabulary: 65536, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*8\"}\n"
      "cluster: {machine: dgx-a100, ranks: 8}\n"
      "training: {sequence: 1024, global_batch: 64, microbatch: 1}\n"
      "layout: {pipeline: [4, 8], tensor: {degree: [1, 2], asynchronous: auto, sequence_parallel: true}, data: "
      "{degree: auto, sharding: [none, zero2]}, "
      "vocabulary: auto}\nschedule: [1f1b, gpipe]\nsplit: dynamic\n";
  const std::string file = folder.file("open.yaml", open);
  const std::string plan = folder.file("plan.json");
  const Json found = json_of(run_plumb(folder, "plan " + file + " --engine path --explain --json -o " + plan));
  const Json& best = found["candidates"][0];
  CHECK(best["vocabulary_barriers"].get<int>() > 0);
  CHECK_THAT(best["layout"].get<std::string>(), ContainsSubstring("·vocabulary"));
  const Json again = json_of(run_plumb(folder, "simulate " + plan + " --engine path --json"));
  CHECK(again["iteration_s"] == best["iteration_s"]);
  std::string reasons;
  for (const Json& group : found["explain"]) reasons += group.value("reason", "") + "\n";
  CHECK_THAT(
      reasons,
      ContainsSubstring("with asynchronous tensor parallelism") && ContainsSubstring("with sharding zero2") &&
          ContainsSubstring("the whole head of gpipe cannot be planned yet with a vocabulary over the pipeline"));
  const std::string told = run_plumb(folder, "plan " + file + " --engine path --explain").out;
  CHECK_THAT(told, ContainsSubstring("pp8·vocabulary1") || ContainsSubstring("pp8·vocabulary2") ||
                       ContainsSubstring("pp4·dp2·vocabulary") || ContainsSubstring("pp4·tp2·vocabulary"));
}

TEST_CASE("a word in place of a vocabulary's block is refused with the block that it means") {
  const Folder folder;
  for (const char* word : {"none", "pipeline"}) {
    std::string text = divided("pipeline: 8");
    const std::string block = "{over: pipeline, barriers: 2}";
    text.replace(text.find(block), block.size(), word);
    refuses(run_plumb(folder, "show " + folder.file("word.yaml", text)),
            {"layout.vocabulary: expected keys and values", std::string("vocabulary: {over: ") + word + "}"});
  }
}

TEST_CASE("schedule check counts stages and parts, show refuses times of a head that is whole") {
  const Folder folder;
  const std::string shape = " 1f1b --ranks 4 --microbatches 6";
  const std::string divided =
      folder.file("divided.json", run_plumb(folder, "schedule export" + shape + " --vocabulary 1 --format json").out);
  CHECK_THAT(run_plumb(folder, "schedule check " + divided).out,
             ContainsSubstring("4 ranks, 4 stages and 8 parts of a vocabulary that the ranks divide, 6 microbatches"));
  CHECK(json_of(run_plumb(folder, "schedule check " + divided + " --json"))["parts"] == 8);
  const std::string whole =
      folder.file("whole.json", run_plumb(folder, "schedule export" + shape + " --format json").out);
  CHECK_THAT(run_plumb(folder, "schedule check " + whole).out, ContainsSubstring("4 ranks, 4 stages, 6 microbatches"));
  for (const std::string& command : {"schedule show" + shape, "schedule compare" + shape, "schedule show " + whole}) {
    refuses(run_plumb(folder, command + " --head-times 1,1,1"),
            {"--head-times", "the head is whole", "--vocabulary 1"});
  }
  CHECK(run_plumb(folder, "schedule show " + divided + " --head-times 1,1,1").status == 0);
}

TEST_CASE("schedule check names ranks and actions of a vocabulary's sums in crossed orders, and others the file") {
  const Folder folder;
  Json file = Json::parse(
      run_plumb(folder, "schedule export 1f1b --ranks 2 --microbatches 3 --vocabulary 2 --format json").out);
  // The embedding's part of microbatch 2 behind the head's part of microbatch 0 on rank 1, before it on rank 0.
  std::string list = file["schedule"]["actions"][1].get<std::string>();
  list.erase(list.find("5F2 "), 4);
  list.insert(list.find("3F0 ") + 4, "5F2 ");
  file["schedule"]["actions"][1] = list;
  const std::string crossed = folder.file("crossed.json", file.dump(1));
  const auto checked = run_plumb(folder, "schedule check " + crossed);
  CHECK(checked.status == 1);
  CHECK_THAT(checked.out, ContainsSubstring("rank 1 joins 3ALLRED0 where rank 0 joins 4REDUCE2"));
  refuses(run_plumb(folder, "schedule show " + crossed), {"crossed.json: rank 1 joins 3ALLRED0", "schedule check"});
  const std::string scenario =
      folder.file("scenario.yaml",
                  "model: {vocabulary: 256, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*2\"}\n"
                  "cluster: {machine: local-cpu, ranks: 2}\n"
                  "training: {sequence: 32, global_batch: 3, microbatch: 1}\n"
                  "layout: {pipeline: 2, vocabulary: {over: pipeline, barriers: 2}}\n"
                  "schedule: {file: crossed.json}\nsplit: uniform\n");
  refuses(run_plumb(folder, "simulate " + scenario), {"scenario.yaml:5:", "crossed.json", "rank 1 joins 3ALLRED0"});
}

TEST_CASE("schedule check tells a part's action out of its order once") {
  const Folder folder;
  Json file = Json::parse(
      run_plumb(folder, "schedule export 1f1b --ranks 2 --microbatches 3 --vocabulary 1 --format json").out);
  std::string list = file["schedule"]["actions"][0].get<std::string>();
  const std::string w = "2W0 ";
  list.erase(list.find(w), w.size());
  list.insert(list.find("2F0 "), w);
  file["schedule"]["actions"][0] = list;
  const auto outcome = run_plumb(folder, "schedule check " + folder.file("early.json", file.dump(1)) + " --json");
  CHECK(outcome.status == 1);
  const Json checked = Json::parse(outcome.out);
  std::vector<std::string> problems;
  for (const Json& problem : checked["problems"]) problems.push_back(problem.dump());
  CHECK(!problems.empty());
  std::ranges::sort(problems);
  CHECK(std::ranges::adjacent_find(problems) == problems.end());
}

TEST_CASE("schedules of a scenario whose vocabulary is open are compared with what each has, and parts can be slower") {
  const Folder folder;
  std::string open = divided("pipeline: 8");
  open.replace(open.find("over: pipeline"), 14, "over: [none, pipeline]");
  const std::string file = folder.file("open.yaml", open);
  const Json compared = json_of(run_plumb(folder, "schedule compare " + file + " 1f1b eager-1f1b --json"));
  std::map<std::string, int> barriers;
  for (const Json& row : compared["schedules"]) barriers[row["schedule"]] = row["vocabulary_barriers"];
  CHECK(barriers == std::map<std::string, int>{{"1f1b", 2}, {"eager-1f1b", 0}});
  CHECK_THAT(run_plumb(folder, "schedule compare " + file + " 1f1b eager-1f1b").out, ContainsSubstring("vocabulary2"));
  // Stage 8 is the first rank's part of the head.
  const std::string slow = folder.file("slow.yaml", "- {name: part, straggler: {stage: 8, slower: 100}}\n");
  const Json rows = json_of(run_plumb(folder, "simulate " + folder.file("two.yaml", divided("pipeline: 8")) +
                                                  " --engine path --json --what-if " + slow))["what_if"];
  CHECK(rows[1]["change_fraction"].get<double>() > 0.5);
}

TEST_CASE("schedule compare says which schedules cannot divide the vocabulary, and no file takes --vocabulary") {
  const Folder folder;
  const std::string command = "schedule compare all --ranks 4 --microbatches 8 --vocabulary 2";
  const std::string told = run_plumb(folder, command).out;
  CHECK_THAT(told,
             ContainsSubstring("Could not be built:") &&
                 ContainsSubstring("gpipe              a vocabulary divided with 2 barriers, but its 4 ranks do not") &&
                 ContainsSubstring("that belongs to 1f1b, zb-h1"));
  std::vector<std::string> built;
  const Json compared = json_of(run_plumb(folder, command + " --json"));
  for (const Json& row : compared["schedules"]) {
    if (row["built"].get<bool>()) {
      built.push_back(row["schedule"]);
    } else {
      CHECK_THAT(row["reason"].get<std::string>(), ContainsSubstring("do not divide the vocabulary"));
    }
  }
  std::ranges::sort(built);
  CHECK(built == std::vector<std::string>{"1f1b", "zb-h1"});
  // Formulas are of the vocabulary that is compared.
  const std::string formulas = run_plumb(folder, command + " --markdown").out;
  CHECK_THAT(formulas,
             ContainsSubstring("| (p−1)(F+B), less min(w, B) with one barrier, for F = B/2 | min(m, p+b) |") &&
                 ContainsSubstring("| no form known | min(m, p+b) |"));
  refuses(run_plumb(folder, "schedule compare gpipe zb-v --ranks 4 --microbatches 8 --vocabulary 1"),
          {"none could be built", "gpipe: a vocabulary"});
  // Of a file, and of a scenario, the vocabulary is its own.
  const std::string file =
      folder.file("own.json", run_plumb(folder, "schedule export 1f1b --ranks 4 --microbatches 6 --format json").out);
  refuses(run_plumb(folder, "schedule show " + file + " --vocabulary 1"), {"--vocabulary", "own.json is a file"});
  refuses(run_plumb(folder, "schedule export " + file + " --vocabulary 1"), {"--vocabulary", "own.json is a file"});
  const std::string scenario = folder.file("own.yaml", divided("pipeline: 8"));
  refuses(run_plumb(folder, "schedule compare " + scenario + " 1f1b --vocabulary 1"),
          {"--vocabulary", "follows from the scenario"});
  // A description says chunks and the like, not what the layout does.
  refuses(run_plumb(folder, "schedule show 'interleaved-1f1b, 4 chunks' --ranks 4 --microbatches 8 --vocabulary 1"),
          {"do not divide the vocabulary"});
}

TEST_CASE("charts, pictures, traces and reports say which action is of a head part or an embedding part") {
  const Folder folder;
  // A column each: on rank 1 S and T of the head between F and B of its layers.
  const std::string command =
      "schedule show 1f1b --ranks 2 --microbatches 4 --vocabulary 2 --times 2,2,2 "
      "--head-times 1,1,1 --width 60 --svg " +
      folder.file("picture.svg");
  const std::string chart = run_plumb(folder, command).out;
  CHECK(std::regex_search(chart, std::regex("rank 1 .*\n *│ *h+ *h+")));
  const std::string picture = plumb::read_file(folder.file("picture.svg"));
  CHECK_THAT(picture, ContainsSubstring("<rect class=\"F odd\"") && ContainsSubstring(", head part</title>") &&
                          ContainsSubstring("paler: head part") && ContainsSubstring("palest: embedding part"));
  const std::string timeline = folder.file("timeline.json");
  std::string text = divided("pipeline: 8");
  text.replace(text.find("global_batch: 32"), 16, "global_batch: 12");
  const std::string file = folder.file("divided.yaml", text);
  const std::string gantt = run_plumb(folder, "simulate " + file + " --engine path --width 300 -o " + timeline).out;
  CHECK(std::regex_search(gantt, std::regex("rank 3 │[^\n]*%")));
  CHECK_THAT(gantt, ContainsSubstring("% head part"));
  // 8 stages of layers, then 8 parts of the head and 8 of the embedding.
  int named = 0;
  const Json trace = Json::parse(plumb::read_file(timeline));
  for (const Json& event : trace["traceEvents"]) {
    if (!event.contains("args") || !event["args"].contains("stage")) continue;
    const int stage = event["args"]["stage"];
    const std::string part = event["args"].value("part", "");
    CHECK(part == (stage < 8 ? "" : stage < 16 ? "head part" : "embedding part"));
    ++named;
  }
  CHECK(named > 500);
  const std::string page = folder.file("page.html");
  REQUIRE(run_plumb(folder, "report " + timeline + " -o " + page).status == 0);
  const std::string report = plumb::read_file(page);
  CHECK_THAT(report, ContainsSubstring(" · head part") && ContainsSubstring(" · embedding part") &&
                         ContainsSubstring("paler: head part, palest: embedding part") &&
                         ContainsSubstring("2, 10 (head part), 18 (embedding part)"));
}

TEST_CASE("diff says how a divided vocabulary's traffic is counted, and proposes no profile, which is refused") {
  const Folder folder;
  const std::string predicted = folder.file("predicted.json");
  const std::string slower = folder.file("slower.json");
  std::string text = divided("pipeline: 8");
  REQUIRE(run_plumb(folder, "simulate " + folder.file("fast.yaml", text) + " --engine path -o " + predicted).status ==
          0);
  text.replace(text.find("machine: dgx-a100"), 17,
               "machine: {like: dgx-a100, name: slow, device: {matmul_efficiency: {value: 0.2, source: slow}}}");
  const std::string slow = folder.file("slow.yaml", text);
  REQUIRE(run_plumb(folder, "simulate " + slow + " --engine path -o " + slower).status == 0);
  // As a run of the same plan on a machine that is slower than was thought.
  std::string trace = plumb::read_file(slower);
  const std::string source = "\"source\":\"predicted\"";
  trace.replace(trace.find(source), source.size(), "\"source\":\"measured\"");
  const std::string measured = folder.file("measured.json", trace);
  const std::string told = run_plumb(folder, "diff " + predicted + " " + measured).out;
  CHECK_THAT(told, ContainsSubstring("are predicted over rings") && ContainsSubstring("together receive as much") &&
                       ContainsSubstring("A profile covers whole heads alone") &&
                       ContainsSubstring("matmul_efficiency") && !ContainsSubstring("-o profile.yaml"));
  const Json json = json_of(run_plumb(folder, "diff " + predicted + " " + measured + " --json"));
  CHECK_THAT(json["received_note"].get<std::string>(), ContainsSubstring("over rings"));
  CHECK_FALSE(json_of(run_plumb(folder, "diff " + predicted + " " + predicted + " --json")).contains("received_note"));
}

TEST_CASE("layout compare sets a vocabulary whole and divided side by side") {
  const Folder folder;
  const std::string set = "{over: pipeline, barriers: 2}";
  std::string open = divided("pipeline: 8");
  open.replace(open.find(set), set.size(), "auto");
  const std::string file = folder.file("open.yaml", open);
  const Json compared = json_of(run_plumb(folder, "layout compare " + file + " --json"));
  std::map<int, Json> rows;
  for (const Json& row : compared["layouts"]) rows[row["vocabulary_barriers"]] = row;
  REQUIRE(rows.size() == 3);
  // Each of 8 ranks receives 7/8 of 1024 hidden states of 2 bytes, sent and added up for the head and the embedding,
  // and a ring's 2·7/8 of three numbers in fp32, all for 1024 tokens.
  CHECK(rows[0]["vocabulary_bytes"] == 0);
  for (const int barriers : {1, 2}) {
    CHECK(rows[barriers]["vocabulary_bytes"] == 4 * 7 * 1024 * 1024 * 2 / 8 + 2 * 7 * 1024 * 12 / 8);
  }
  for (const auto& [barriers, row] : rows) {
    std::string alone = divided("pipeline: 8");
    const std::string block = "vocabulary: " + set;
    const std::string chosen =
        barriers == 0 ? "{over: none}" : "{over: pipeline, barriers: " + std::to_string(barriers) + "}";
    alone.replace(alone.find(block), block.size(), "vocabulary: " + chosen);
    const Json simulated =
        json_of(run_plumb(folder, "simulate " + folder.file("alone.yaml", alone) + " --engine path --json"));
    CHECK(simulated["iteration_s"] == row["iteration_s"]);
  }
  const std::string table = run_plumb(folder, "layout compare " + folder.file("set.yaml", divided("pipeline: 8"))).out;
  CHECK_THAT(table, ContainsSubstring("vocabulary whole") && ContainsSubstring("vocabulary 2") &&
                        ContainsSubstring("parts") && !ContainsSubstring("vocabulary 1"));
  // Beside a tensor degree each of its layouts has both; where one cannot be planned its row says so.
  std::string parallel = divided("pipeline: 4, tensor: {degree: 2, kind: auto, sequence_parallel: auto}");
  parallel.replace(parallel.find(set), set.size(), "auto");
  const Json both = json_of(run_plumb(folder, "layout compare " + folder.file("both.yaml", parallel) + " --json"));
  std::map<int, int> counts;
  for (const Json& row : both["layouts"]) {
    ++counts[row["vocabulary_barriers"]];
    CHECK((row["built"].get<bool>() || !row["reason"].get<std::string>().empty()));
  }
  CHECK(counts[0] >= 2);
  CHECK(counts[1] == counts[0]);
  CHECK(counts[2] == counts[0]);
}

TEST_CASE("plan makes no candidates of a divided vocabulary with data degrees by stage, and says so once") {
  const Folder folder;
  std::string text = divided("pipeline: [2, 4], data: {by_stage: auto}");
  const std::string set = "{over: pipeline, barriers: 2}";
  text.replace(text.find(set), set.size(), "auto");
  text.replace(text.find("microbatch: 1"), 13, "microbatch: 2");
  const std::string command = "plan " + folder.file("both.yaml", text) + " --engine path --explain";
  const Json planned = json_of(run_plumb(folder, command + " --json --top 1000"));
  int told = 0;
  for (const Json& group : planned["explain"]) {
    if (group.value("reason", "").find("with data degrees by stage") == std::string::npos) continue;
    ++told;
    CHECK(group["candidates"] == 0);
  }
  CHECK(told == 1);
  // Whole vocabularies have them, divided ones have stages of one degree.
  int by_stage = 0;
  int divides = 0;
  for (const Json& candidate : planned["candidates"]) {
    const bool differs = candidate["layout"].get<std::string>().find("-") != std::string::npos;
    by_stage += differs;
    divides += candidate["vocabulary_barriers"].get<int>() > 0;
    CHECK((!differs || candidate["vocabulary_barriers"] == 0));
  }
  CHECK(by_stage > 0);
  CHECK(divides > 0);
  CHECK_THAT(
      run_plumb(folder, command).out,
      ContainsSubstring("none made  cannot be built  a vocabulary over the pipeline cannot be planned yet with data "
                        "degrees by stage"));
}
