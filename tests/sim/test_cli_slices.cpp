// Slices of equal work from outside: chosen, said, pasted back, and the same in what the plan then predicts.
#include "common/base/files.hpp"
#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::read_file;
using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::Outcome;
using plumb::tests::run_plumb;

namespace {

std::string sliced_scenario(const std::string& schedule, int sequence = 32768) {
  return R"(model: {name: small, vocabulary: 8192, hidden: 1024, heads: 8, ffn: 4096, layers: "full/dense*8"}
cluster: {machine: dgx-a100, ranks: 4}
training: {sequence: )" +
         std::to_string(sequence) + R"(, global_batch: 8, microbatch: 1}
layout: {pipeline: 4}
split: uniform
schedule: )" +
         schedule + "\n";
}

}  // namespace

TEST_CASE("slices of equal work are said as a scenario may say them, which plans the same") {
  const Folder folder;
  const std::string file = folder.file("work.yaml", sliced_scenario("{name: seq-1f1b, slices: 4, slices_by: work}"));
  const std::string first = folder.file("first.json");
  const Outcome planned = run_plumb(folder, "plan " + file + " -o " + first);
  REQUIRE(planned.status == 0);
  CHECK_THAT(planned.out, ContainsSubstring("seq-1f1b, 4 slices by work"));
  const std::string head = "slices of equal work: `schedule: ";
  const std::size_t at = planned.out.find(head);
  REQUIRE(at != std::string::npos);
  const std::string said =
      planned.out.substr(at + head.size(), planned.out.find('`', at + head.size()) - at - head.size());
  CHECK(said.starts_with("seq-1f1b, slices of "));
  (void)folder.file("work.yaml", sliced_scenario(said));
  const std::string second = folder.file("second.json");
  REQUIRE(run_plumb(folder, "plan " + file + " -o " + second).status == 0);
  CHECK(read_file(first) == read_file(second));
  for (const char* command : {"show ", "simulate "}) {
    CHECK_THAT(run_plumb(folder, command + first).out, ContainsSubstring(said));
  }
  // A plan read back predicts what its scenario does.
  const Json of_plan = json_of(run_plumb(folder, "simulate " + first + " --json"));
  const Json of_scenario = json_of(run_plumb(folder, "simulate " + file + " --json"));
  CHECK(of_plan["iteration_s"] == of_scenario["iteration_s"]);
  // The unit of comparison: a timeline is nothing away from itself.
  const std::string timeline = folder.file("timeline.json");
  REQUIRE(run_plumb(folder, "simulate " + first + " -o " + timeline).status == 0);
  CHECK(json_of(run_plumb(folder, "diff " + timeline + " " + timeline + " --json"))["predicted_s"] ==
        of_plan["iteration_s"]);
  CHECK(run_plumb(folder, "report " + timeline + " -o " + folder.file("report.html")).status == 0);
}

TEST_CASE("plan's JSON has the tokens of slices where they differ, and the step is shorter than of equal ones") {
  const Folder folder;
  const auto best = [&](const std::string& schedule) {
    const std::string file = folder.file("slices.yaml", sliced_scenario(schedule));
    return json_of(run_plumb(folder, "plan " + file + " --json"))["candidates"][0];
  };
  const Json work = best("{name: seq-1f1b, slices_by: work}");
  REQUIRE(work["slice_tokens"].size() == 4);
  std::int64_t sum = 0;
  for (const Json& tokens : work["slice_tokens"]) sum += tokens.get<std::int64_t>();
  CHECK(sum == 32768);
  const Json equal = best("{name: seq-1f1b}");
  CHECK_FALSE(equal.contains("slice_tokens"));
  CHECK(work["iteration_s"].get<double>() < equal["iteration_s"].get<double>());
}

TEST_CASE("where equal tokens are as good, plan says that it took them") {
  const Folder folder;
  const std::string file = folder.file("short.yaml", sliced_scenario("{name: seq-1f1b, slices_by: work}", 512));
  CHECK_THAT(run_plumb(folder, "plan " + file).out,
             ContainsSubstring("slices of equal work are no better than 128 tokens each"));
}

TEST_CASE("every rank of a plan with such slices is simulated, and all layouts of them are searched") {
  const Folder folder;
  const std::string text =
      R"(model: {name: small, vocabulary: 8192, hidden: 1024, heads: 8, ffn: 4096, layers: "full/dense*8"}
cluster: {machine: dgx-a100, ranks: 8}
training: {sequence: 4096, global_batch: 8, microbatch: [1, 2]}
layout: {pipeline: auto, tensor: auto}
split: uniform
schedule: [1f1b, {name: seq-1f1b, slices_by: work}, "seq-1f1b, slices of 1536 + 1024 + 768 + 768"]
)";
  const std::string file = folder.file("open.yaml", text);
  const Json planned = json_of(run_plumb(folder, "plan " + file + " --json --top 20"));
  bool written = false;
  for (const Json& candidate : planned["candidates"]) {
    written = written || candidate.value("slice_tokens", Json()) == Json({1536, 1024, 768, 768});
  }
  CHECK(written);
  const std::string parallel =
      folder.file("tensor.yaml",
                  R"(model: {name: small, vocabulary: 8192, hidden: 1024, heads: 8, ffn: 4096, layers: "full/dense*8"}
cluster: {machine: dgx-a100, ranks: 8}
training: {sequence: 16384, global_batch: 8, microbatch: 1}
layout: {pipeline: 4, tensor: {degree: 2, sequence_parallel: true}}
split: uniform
schedule: {name: seq-1f1b, slices: [6144, 4096, 3072, 3072]}
)");
  const double folded = json_of(run_plumb(folder, "simulate " + parallel + " --json"))["iteration_s"].get<double>();
  const double all =
      json_of(run_plumb(folder, "simulate " + parallel + " --unfold --json"))["iteration_s"].get<double>();
  CHECK(all == Approx(folded).epsilon(0.05));
}
