// What `plumb` does with tensor layouts of kind 2d to 3d: plans, simulates, compares, and refuses where it must.
#include <cmath>
#include <map>
#include <tuple>

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

namespace {

constexpr double b = 8;
constexpr double s = 128;
constexpr double h = 256;

const std::string gpt =
    R"(model: {vocabulary: 1024, hidden: 256, heads: 16, ffn: 1024, activation: gelu, layers: "full/dense*4"}
cluster: {machine: dgx-a100, nodes: 2}
training: {sequence: 128, global_batch: 64, microbatch: 8, precision: bf16}
layout: {pipeline: 2, tensor: {degree: 8}}
schedule: 1f1b
split: uniform
)";

std::string in(const std::string& tensor) { return replaced(gpt, "degree: 8", tensor); }

// Two norms' all-reduce of 4 bytes for each token of a rank, over q ranks.
double statistics(double tokens, double q) { return 16 * (q - 1) / q * tokens; }

}  // namespace

TEST_CASE("layout compare has every kind that a tensor degree allows, and what the papers say that each moves") {
  const Folder folder;
  const std::string file = folder.file("gpt.yaml", gpt);
  std::map<std::string, Json> rows;
  double before = 0;
  const Json compared = json_of(run_plumb(folder, "layout compare " + file + " --json"));
  for (const Json& row : compared.at("layouts")) {
    require_keys(row, {"iteration_s", "peak_bytes", "fits", "exposed_communication_s", "tensor_exposed_s"});
    const auto mark = [&](const char* key, const char* text) { return row.at(key).get<bool>() ? text : ""; };
    rows[row.at("kind").get<std::string>() + mark("sequence_parallel", " sp") + mark("asynchronous", " async") +
         mark("reshard_after_forward", " reshard")] = row;
    CHECK(row.at("iteration_s").get<double>() >= before);
    before = row.at("iteration_s").get<double>();
  }
  REQUIRE(rows.size() == 7);  // 8 is 2·2² and 2³, and no square; three of these have a choice more
  const std::string any = folder.file(
      "any.yaml",
      in("degree: 8, kind: auto, sequence_parallel: auto, asynchronous: auto, reshard_after_forward: auto"));
  CHECK(json_of(run_plumb(folder, "layout compare " + any + " --json")) == compared);
  const auto check = [&](const std::string& kind, double forward, double backward, double once) {
    const Json& layer = rows.at(kind).at("layer");
    CHECK(layer.at("forward_bytes") == std::llround(forward));
    CHECK(layer.at("input_gradient_bytes").get<std::int64_t>() +
              layer.at("weight_gradient_bytes").get<std::int64_t>() ==
          std::llround(backward));
    CHECK(layer.at("once_bytes") == std::llround(once));
  };
  const double each = 2 * 7.0 / 8 * b * s * h;
  const double weights = 12 * h * h;
  check("1d", 4 * each, 4 * each, 0);
  check("1d sp", 4 * each, 6 * each, 4 * 2 * 7.0 / 8 * 2 * h);
  check("1d sp async", 4 * each, 6 * each, 4 * 2 * 7.0 / 8 * 2 * h);
  const double deep = 2 * (7 * b * s * h / 8 + weights / 4);
  const double norms = statistics(b * s / 4, 2);
  for (const char* kind : {"2.5d", "2.5d async"}) {
    check(kind, deep + norms, 2 * deep + norms, 4 * (2 * 1.0 / 2 * weights / 4 + 2 * 2 * 3.0 / 4 * h / 2));
  }
  const double cube = 2.0 / 8 * (16 * b * s * h + weights);
  check("3d", cube + norms, cube + norms, 4 * 2 * 2 * 3.0 / 4 * h / 2);
  // Inputs of 7bsh and weights are gathered once more.
  check("3d reshard", cube + norms, cube + 2.0 / 8 * (7 * b * s * h + weights) + norms, 4 * 2 * 2 * 3.0 / 4 * h / 2);
  const Outcome table = run_plumb(folder, "layout compare " + file);
  CHECK(table.status == 0);
  CHECK_THAT(table.out, ContainsSubstring("2.5d, depth 2") && ContainsSubstring("1d, sp"));
  const Outcome markdown = run_plumb(folder, "layout compare --markdown " + file);
  CHECK(markdown.out.starts_with("| tensor layout | microbatch |"));
}

// Sixteen ranks on two machines: of a grid of 4 × 4 the columns are inside, along the rows weights go (F, I) and their
// gradients (W); of four layers of 2 × 2 each is inside.
TEST_CASE("layout compare says what goes between machines") {
  const Folder folder;
  const std::string text = replaced(replaced(gpt, "pipeline: 2", "pipeline: 1"), "degree: 8", "degree: 16");
  std::map<std::string, Json> layers;
  const Json compared = json_of(run_plumb(folder, "layout compare " + folder.file("gpt.yaml", text) + " --json"));
  for (const Json& row : compared.at("layouts")) {
    CHECK(row.at("recompute") == "none");
    if (!row.at("sequence_parallel").get<bool>()) layers[row.at("kind").get<std::string>()] = row.at("layer");
  }
  REQUIRE(layers.size() == 3);
  const auto all = [&](const std::string& kind) {
    std::int64_t sum = 0;
    for (const std::string part : {"forward_bytes", "input_gradient_bytes", "weight_gradient_bytes"}) {
      sum += layers.at(kind).at(part).get<std::int64_t>();
    }
    return sum;
  };
  CHECK(layers.at("1d").at("across_machines_bytes") == all("1d"));
  CHECK(layers.at("2d").at("across_machines_bytes") == std::llround(3 * 2 * 3.0 / 16 * 12 * h * h));
  CHECK(layers.at("2.5d").at("across_machines_bytes") == 0);
  CHECK(all("2.5d") > 0);
}

TEST_CASE("layout compare names what cannot be built beside what can, and refuses what is no comparison") {
  const Folder folder;
  const std::string odd = folder.file("odd.yaml", replaced(gpt, "microbatch: 8", "microbatch: 2"));
  const Outcome table = run_plumb(folder, "layout compare " + odd);
  CHECK(table.status == 0);
  CHECK_THAT(table.out, ContainsSubstring("Could not be built:") &&
                            ContainsSubstring("among 4 ranks, which do not divide 2; microbatch: 4"));
  refuses(run_plumb(folder, "layout compare " + folder.file("one.yaml", in("degree: 1}, data: {degree: 8"))),
          {"tensor degree of 1"});
  refuses(run_plumb(folder, "layout compare " + folder.file("open.yaml", in("degree: [4, 8]}, data: {degree: [1, 2]"))),
          {"is open"});
  refuses(run_plumb(folder, "layout"), {"subcommand is required"});
}

TEST_CASE("a grid is planned and simulated, one rank for all of a stage or each rank") {
  const Folder folder;
  const std::string four = replaced(gpt, "nodes: 2", "nodes: 1");
  for (const auto& [text, tensor, name] : {std::tuple{four, "degree: 4, kind: 2d", "tp4·2d"},
                                           {gpt, "degree: 8, kind: 2.5d, depth: 2", "tp8·2.5d·depth2"},
                                           {gpt, "degree: 8, kind: 3d", "tp8·3d"}}) {
    CAPTURE(tensor);
    const std::string file = folder.file("grid.yaml", replaced(text, "degree: 8", tensor));
    const std::string plan = folder.file("plan.json");
    const Json planned = json_of(run_plumb(folder, "plan " + file + " --json -o " + plan));
    CHECK_THAT(planned.at("candidates").at(0).at("layout").get<std::string>(), ContainsSubstring(name));
    const Json of_scenario = json_of(run_plumb(folder, "simulate " + file + " --json"));
    const Json of_plan = json_of(run_plumb(folder, "simulate " + plan + " --json"));
    CHECK(of_plan.at("iteration_s") == of_scenario.at("iteration_s"));
    CHECK(of_plan.at("ranks") == of_scenario.at("ranks"));
    const Json unfolded = json_of(run_plumb(folder, "simulate " + file + " --engine path --unfold --json"));
    const Json folded = json_of(run_plumb(folder, "simulate " + file + " --engine path --json"));
    const double step = folded.at("iteration_s").get<double>();
    CHECK(unfolded.at("iteration_s").get<double>() == Approx(step).epsilon(1e-9));
    CHECK(unfolded.at("ranks").size() > folded.at("ranks").size());
  }
}

TEST_CASE("a microbatch that a grid does not divide is refused with one that it does") {
  const Folder folder;
  const std::string text =
      replaced(replaced(gpt, "degree: 8", "degree: 8, kind: 3d"), "microbatch: 8", "microbatch: 2");
  for (const std::string command : {"plan ", "simulate "}) {
    refuses(run_plumb(folder, command + folder.file("grid.yaml", text)),
            {"divides the sequences of a microbatch among 4 ranks", "hint: microbatch: 4, or a multiple of it"});
  }
}

TEST_CASE("degrees that are open with a grid's kind are those that make one") {
  const Folder folder;
  const std::string text =
      replaced(replaced(gpt, "pipeline: 2", "pipeline: auto"), "degree: 8", "degree: auto, kind: 2d");
  const Json planned = json_of(run_plumb(folder, "plan " + folder.file("open.yaml", text) + " --json --top 100"));
  for (const Json& candidate : planned.at("candidates")) {
    const std::string layout = candidate.at("layout").get<std::string>();
    CAPTURE(layout);
    CHECK((layout.find("tp") == std::string::npos || layout.find("tp4·2d") != std::string::npos ||
           layout.find("tp16·2d") != std::string::npos));
  }
  CHECK(planned.at("candidates").size() > 1);
}

TEST_CASE("kinds that are open are searched, and what falls out says why, by kind") {
  const Folder folder;
  const std::string open = replaced(replaced(replaced(gpt, "pipeline: 2", "pipeline: auto, data: auto"), "degree: 8",
                                             "degree: auto, kind: auto, sequence_parallel: auto"),
                                    "microbatch: 8", "microbatch: [1, 4]");
  const std::string file = folder.file("open.yaml", open);
  const Json planned = json_of(run_plumb(folder, "plan " + file + " --json --explain --top 1000 --no-bound"));
  std::map<std::string, int> kinds;
  for (const Json& candidate : planned.at("candidates")) ++kinds[candidate.at("tensor_kind").get<std::string>()];
  for (const std::string kind : {"1d", "2d", "2.5d", "3d"}) CHECK(kinds[kind] > 0);
  std::string reasons;
  for (const Json& group : planned.at("explain")) {
    if (group.at("why") == "cannot_be_built") reasons += group.at("reason").get<std::string>() + '\n';
  }
  for (const std::string reason :
       {"a 2d tensor layout needs q² ranks, not ", "a 3d tensor layout needs q³ ranks, not ",
        "a 2d tensor layout of degree 16 divides the sequences of a microbatch among 4 ranks, which do not divide 1",
        "a 3d tensor layout of degree 8 divides the sequences of a microbatch among 4 ranks, which do not divide 1",
        "·q² ranks, not "}) {
    CHECK_THAT(reasons, ContainsSubstring(reason));
  }
  const Outcome table = run_plumb(folder, "plan " + file + " --explain --top 1");
  CHECK_THAT(table.out, ContainsSubstring("tensor 4·2d, pipeline ") && ContainsSubstring("tensor 8·3d, pipeline "));
  const std::string none = folder.file("none.yaml", in("degree: [2, 8], kind: [2d]}, data: {degree: auto"));
  refuses(run_plumb(folder, "plan " + none), {"a 2d tensor layout needs q² ranks", "degree: "});
}
