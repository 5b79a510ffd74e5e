// The program `plumb` from outside: exit statuses, messages, and the JSON keys that scripts rely on.
#include <algorithm>
#include <optional>
#include <set>

#include "common/base/files.hpp"
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

TEST_CASE("every command has a help with an example") {
  const Folder folder;
  for (const std::string command : {"",
                                    "show",
                                    "plan",
                                    "simulate",
                                    "schedule",
                                    "schedule list",
                                    "schedule show",
                                    "schedule compare",
                                    "schedule export",
                                    "schedule check",
                                    "layout",
                                    "layout compare",
                                    "diff",
                                    "validate",
                                    "fit",
                                    "report",
                                    "list",
                                    "list models",
                                    "completion",
                                    "man"}) {
    const Outcome outcome = run_plumb(folder, command + " --help");
    INFO(command << outcome.err);
    CHECK(outcome.status == 0);
    const std::size_t example = outcome.out.find("\nExample");
    REQUIRE(example != std::string::npos);
    CHECK_THAT(outcome.out.substr(example), ContainsSubstring("plumb " + command));
  }
}

TEST_CASE("usage errors name what was meant and exit with 2") {
  const Folder folder;
  refuses(run_plumb(folder, ""), {"plumb --help"});
  refuses(run_plumb(folder, "simulat x"), {"plumb: unknown command 'simulat'", "did you mean 'simulate'?"});
  refuses(run_plumb(folder, "simulate x --engin path"), {"'--engin'", "did you mean '--engine'?"});
  refuses(run_plumb(folder, "schedule shw"), {"did you mean 'show'?"});
  refuses(run_plumb(folder, "simulate " + scenario("demo") + " --engine pth"), {"'pth'", "path"});
  refuses(run_plumb(folder, "simulate"), {"SCENARIO|PLAN is required"});
  refuses(run_plumb(folder, "show a.yaml b.yaml"), {"unexpected argument 'b.yaml'"});
  refuses(run_plumb(folder, "show nosuch.yaml"), {"nosuch.yaml: cannot be read"});
}

TEST_CASE("an empty word is refused, not taken for none") {
  const Folder folder;
  refuses(run_plumb(folder, "plan " + scenario("demo") + " -o ''"), {"plumb plan: --output: is empty"});
  refuses(run_plumb(folder, "plan " + scenario("demo") + " --split=''"), {"--split"});
  refuses(run_plumb(folder, "simulate ''"), {"SCENARIO|PLAN: is empty"});
  refuses(run_plumb(folder, "report a.json -o ''"), {"--output: is empty"});
}

TEST_CASE("a limit that nothing can be above is refused") {
  const Folder folder;
  for (const std::string limit : {"nan", "-1", "inf"}) {
    refuses(run_plumb(folder, "diff a.json b.json --fail-above=" + limit),
            {"--fail-above: expected a number from 0 on, found '" + limit});
  }
}

TEST_CASE("an installed program finds the scenarios that are installed with it") {
  const Folder folder;
  std::filesystem::create_directories(folder.path / "bin");
  std::filesystem::create_directories(folder.path / "share/plumb/scenarios/models");
  std::filesystem::copy(std::string(PLUMB_BINARY_DIR) + "/bin/plumb", folder.path / "bin/plumb");
  folder.file("share/plumb/scenarios/models/own.yaml", small.substr(0, small.find("cluster:")));
  const std::string file =
      folder.file("s.yaml", replaced(small, small.substr(0, small.find("cluster:")), "model: models/own.yaml\n"));
  refuses(run_plumb(folder, "show " + file), {"own.yaml"});
  const std::string installed = "'" + folder.file("bin/plumb") + "' show '" + file + "' >'" + folder.file("out") + "'";
  CHECK(std::system(installed.c_str()) == 0);
}

TEST_CASE("validate: a table within its goals, one above, and what is no table") {
  const Folder folder;
  const std::string table =
      "table: t\nmeasured: iteration_s\ngoal: {mean_percent: 5, max_percent: 5}\n"
      "common: {model: models/gpt2.yaml, cluster: {machine: dgx-a100, ranks: 2}, training: {global_batch: 8, "
      "microbatch: 1, sequence: 1024}, split: uniform}\nrows:\n  - {name: a, measured: ";
  plumb::write_file(folder.file("wrong.yaml"), table + "1000}\n");
  const Outcome wrong = run_plumb(folder, "validate " + folder.file("wrong.yaml") + " --json");
  CHECK(wrong.status == 1);
  const Json answer = Json::parse(wrong.out);
  CHECK(answer["within_goals"] == false);
  const double predicted = answer["tables"][0]["rows"][0]["predicted_s"].get<double>();
  plumb::write_file(folder.file("right.yaml"), table + std::to_string(predicted) + "}\n");
  const Outcome right = run_plumb(folder, "validate " + folder.file("right.yaml"));
  CHECK(right.status == 0);
  CHECK_THAT(right.out, ContainsSubstring("reached"));
  refuses(run_plumb(folder, "validate " + folder.file("missing")), {"missing"});
  const std::string every =
      "validate " + folder.file("right.yaml") + " --json --engine " +
      json_of(run_plumb(folder, "simulate " + scenario("demo") + " --json"))["engine"].get<std::string>();
  const Outcome one = run_plumb(folder, every + " --jobs 1");
  CHECK(one.out == run_plumb(folder, every + " --jobs 3").out);
  CHECK(one.status == 0);
}

TEST_CASE("fit: the numbers of a machine from a table, and a machine that frees none") {
  const Folder folder;
  const std::string machine = plumb::read_file(std::string(PLUMB_SOURCE_DIR) + "/scenarios/machines/dgx-a100.yaml");
  const std::string free =
      machine.substr(0, machine.find("fit:")) + "fit: {tables: [t.yaml], free: {matmul_efficiency: {}}}\n";
  folder.file("m.yaml", free);
  folder.file("t.yaml",
              "table: t\nmeasured: iteration_s\n"
              "common: {model: models/gpt2.yaml, cluster: {machine: dgx-a100, ranks: 1}, training: {global_batch: 8, "
              "microbatch: 4, sequence: 1024}, layout: {pipeline: 1}, split: uniform}\n"
              "rows:\n  - {name: a, measured: 1}\n");
  const std::string command = "fit " + folder.file("m.yaml");
  const Json answer = json_of(run_plumb(folder, command + " --json"));
  require_keys(answer, {"machine", "numbers", "correlations", "chi_squared", "spare_rows", "tables", "left_out"});
  require_keys(answer["numbers"][0], {"name", "table", "value", "uncertainty_fraction", "before"});
  CHECK(answer["tables"][0]["mean_error_fraction"].get<double>() < 0.001);
  CHECK(run_plumb(folder, command + " --json").out == run_plumb(folder, command + " --json").out);
  const Outcome text = run_plumb(folder, command);
  CHECK(text.status == 0);
  CHECK_THAT(text.out, ContainsSubstring("matmul_efficiency") && ContainsSubstring("uncertainty"));
  CHECK_THAT(text.out, ContainsSubstring("nothing is left to check the fit by"));  // one row, one number
  const std::string table = folder.file("t.yaml");
  refuses(run_plumb(folder, command + " " + table + " " + table), {"t.yaml' is named twice"});
  folder.file("none.yaml", machine.substr(0, machine.find("fit:")));
  refuses(run_plumb(folder, "fit " + folder.file("none.yaml")), {"'fit' is missing"});
  refuses(run_plumb(folder, "fit pcie-rtx4090"),
          {"machines/pcie-rtx4090.yaml", "'fit' is missing", "add fit: {tables: ", "these have one: dgx-a100"});
  refuses(run_plumb(folder, "fit dgx-a10"), {"no machine of that name", "did you mean 'dgx-a100'?"});
}

TEST_CASE("show has the keys that design names") {
  const Folder folder;
  const Json shown = json_of(run_plumb(folder, "show " + scenario("demo") + " --json"));
  require_keys(shown, {"parameters", "active_parameters", "mtp_parameters", "embedding_parameters", "head_parameters",
                       "final_norm_parameters", "layers"});
  REQUIRE(shown["layers"].size() == 12);
  std::int64_t sum = shown["embedding_parameters"].get<std::int64_t>() + shown["head_parameters"].get<std::int64_t>() +
                     shown["final_norm_parameters"].get<std::int64_t>();
  for (const Json& layer : shown["layers"]) {
    require_keys(layer, {"kind", "parameters", "active_parameters", "forward_flops", "input_gradient_flops",
                         "weight_gradient_flops"});
    sum += layer["parameters"].get<std::int64_t>();
  }
  CHECK(shown["parameters"].get<std::int64_t>() == sum);
  CHECK_THAT(run_plumb(folder, "show " + scenario("demo")).out, ContainsSubstring("0-4"));
}

TEST_CASE("show --sites says how data-parallel ranks share out what the sites have") {
  const Folder folder;
  const auto shown = [&](const std::string& data) {
    const std::string file = folder.file("scenario.yaml");
    plumb::write_file(file,
                      "model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*2\"}\n"
                      "cluster: {machine: dgx-a100, nodes: 1, ranks: 8}\n"
                      "training: {sequence: 64, global_batch: 8}\nlayout: {pipeline: 1, data: {degree: 8" +
                          data + "}}\n");
    return run_plumb(folder, "show " + file + " --sites 0").out;
  };
  CHECK_THAT(shown(""), ContainsSubstring("one rank holds all of it") && !ContainsSubstring("Shared out"));
  for (const std::string sharding : {"zero3", "fsdp"}) {
    CHECK_THAT(
        shown(", sharding: " + sharding),
        !ContainsSubstring("one rank holds all") && ContainsSubstring("Shared out over 8 data-parallel ranks (" +
                                                                      sharding + "): weights gathered in each action"));
  }
  CHECK_THAT(shown(", sharding: zero1"),
             ContainsSubstring("Shared out over 8") && ContainsSubstring("behind the step"));
}

TEST_CASE("show --sites says who holds what of a block and what moves, by the closed form of its layout") {
  const Folder folder;
  const std::string model = std::string(PLUMB_SOURCE_DIR) + "/tests/data/models/llama-3-8b.config.json";
  const std::string asked = "show " + model + " --sites 0 --sequence 1024 --tensor 8 --sequence-parallel";
  const Json shown = json_of(run_plumb(folder, asked + " --json"));
  double received = 0;
  for (const Json& move : shown["moves"]) received += move["received_bytes"].get<double>();
  CHECK(received == 10 * 7.0 / 8 * 1024 * 4096 * 2);  // four gathers and scatters each way, two gathers again, in bf16
  CHECK_THAT(run_plumb(folder, asked + " --svg " + folder.file("sites.svg")).out,
             ContainsSubstring("Summed over tensor once a step"));
  CHECK_THAT(plumb::read_file(folder.file("sites.svg")), ContainsSubstring("<svg") && ContainsSubstring("scatter"));
  refuses(run_plumb(folder, "show " + model + " --sites 32"), {"--sites", "a layer from 0 to 31", "'32'"});
  refuses(run_plumb(folder, "show " + model + " --sites 0 --tensor 3"), {"attention.q", "heads of 32"});
  refuses(run_plumb(folder, "show " + model + " --tensor 8"), {"--tensor", "--sites 0"});
  refuses(run_plumb(folder, "show " + model + " --sites 0 --tensor 8 --tensor-kind 3D"),
          {"--tensor-kind: unknown tensor layout '3D'", "did you mean '3d'?"});
  refuses(run_plumb(folder, "show " + scenario("gpt-3-175b-64-a100") + " --sites 0"), {"leaves its layout open"});
}

TEST_CASE("show tells models, Hugging Face configs, scenarios and plans apart") {
  const Folder folder;
  const std::string config = folder.file("config.json", R"({"architectures": ["LlamaForCausalLM"],
    "model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false})");
  const Json llama = json_of(run_plumb(folder, "show " + config + " --json"));
  CHECK(llama["layers"].size() == 2);
  CHECK_FALSE(llama.contains("schedule"));
  const std::string file = folder.file("small.yaml", small);
  CHECK(json_of(run_plumb(folder, "show " + file + " --json"))["schedule"] == "1f1b");
  const std::string plan = folder.file("plan.json");
  REQUIRE(run_plumb(folder, "plan " + file + " -o " + plan).status == 0);
  CHECK(json_of(run_plumb(folder, "show " + plan + " --json"))["split_layers"].size() == 2);
}

TEST_CASE("plan has the keys that design names, best first, uniform among them") {
  const Folder folder;
  const Json planned = json_of(run_plumb(folder, "plan " + scenario("hybrid-4-ranks") + " --json"));
  require_keys(planned, {"candidates", "pruned", "bounded", "evaluated", "simulated"});
  double before = 0;
  std::set<std::string> splits;
  for (const Json& candidate : planned["candidates"]) {
    require_keys(candidate, {"layout", "schedule", "split", "microbatch", "recompute", "iteration_s", "peak_bytes",
                             "fits", "reason"});
    splits.insert(candidate["split"].get<std::string>());
    if (!candidate["fits"].get<bool>()) continue;
    CHECK(candidate["iteration_s"].get<double>() >= before);
    before = candidate["iteration_s"].get<double>();
  }
  CHECK(splits == std::set<std::string>{"dynamic", "parameters", "uniform"});
}

TEST_CASE("plan says which rank bounds the step, and folds the layers of many stages") {
  const Folder folder;
  const std::string many = folder.file(
      "many.yaml", replaced(replaced(replaced(small, "full/dense*6", "full/dense*26"), "ranks: 2", "ranks: 12"),
                            "pipeline: 2", "pipeline: 12"));
  const Outcome outcome = run_plumb(folder, "plan " + many + " --split uniform");
  CHECK_THAT(outcome.out, ContainsSubstring("busiest rank, best:    rank ") && ContainsSubstring("above the mean"));
  CHECK_THAT(outcome.out, ContainsSubstring(" × ") && ContainsSubstring("3 × 4 are four stages of 3"));
  const Json planned = json_of(run_plumb(folder, "plan " + many + " --json"));
  for (const Json& candidate : planned["candidates"]) {
    require_keys(candidate, {"bound_by_rank", "bound_by_s", "mean_rank_s"});
    CHECK(candidate["bound_by_s"].get<double>() >= candidate["mean_rank_s"].get<double>());
    CHECK(candidate["split_layers"].size() == 12);
  }
}

TEST_CASE("the plans of one scenario have names that tell them apart") {
  const Folder folder;
  std::set<std::string> headings;
  for (const std::string choice : {"--split uniform", "--split dynamic", "--schedule gpipe", "--split '[7, 5]'"}) {
    const std::string plan = folder.file("plan.json");
    REQUIRE(run_plumb(folder, "plan " + scenario("demo") + " " + choice + " -o " + plan).status == 0);
    const std::string shown = run_plumb(folder, "simulate " + plan).out;
    headings.insert(shown.substr(0, shown.find(':')));
  }
  CHECK(headings == std::set<std::string>{"demo, 1f1b, uniform split", "demo, 1f1b, dynamic split",
                                          "demo, gpipe, dynamic split", "demo, 1f1b, split [7, 5]"});
}

TEST_CASE("a plan is written for the split and the schedule that are asked for") {
  const Folder folder;
  for (const std::string split : {"uniform", "dynamic", "parameters"}) {
    const std::string plan = folder.file(split + ".json");
    REQUIRE(run_plumb(folder, "plan " + scenario("demo") + " --split " + split + " -o " + plan).status == 0);
    const Json chosen = json_of(run_plumb(folder, "simulate " + plan + " --json"))["chosen"];
    CHECK(chosen["split"] == split);
    CHECK(chosen["schedule"] == "1f1b");
  }
  const std::string plan = folder.file("explicit.json");
  REQUIRE(run_plumb(folder, "plan " + scenario("demo") + " --split '[7, 5]' --schedule zb-h1 -o " + plan).status == 0);
  const Json chosen = json_of(run_plumb(folder, "simulate " + plan + " --json"))["chosen"];
  CHECK(chosen["split_layers"] == Json::array({7, 5}));
  CHECK(chosen["schedule"] == "zb-h1");
  const Outcome empty = run_plumb(folder, "plan " + scenario("demo") + " --split '[]'");
  refuses(empty, {"--split: the list is empty"});
  CHECK(std::ranges::count(empty.err, '\n') == 1);
  refuses(run_plumb(folder, "plan " + scenario("demo") + " --split unifrom"), {"--split", "did you mean 'uniform'?"});
  refuses(run_plumb(folder, "plan " + scenario("demo") + " --split '[5, 5]'"), {"10", "12"});
}

TEST_CASE("simulate has the keys that design names, and its parts add up") {
  const Folder folder;
  const Json step = json_of(run_plumb(folder, "simulate " + scenario("demo") + " --json"));
  require_keys(step, {"iteration_s", "tokens_per_s", "mfu", "model_flops", "bubble_makespan_fraction",
                      "bubble_span_fraction", "fits", "chosen", "ranks"});
  const double iteration = step["iteration_s"].get<double>();
  CHECK(step["tokens_per_s"].get<double>() == Approx(16 * 128 / iteration));
  CHECK(step["fits"] == true);
  CHECK(step["chosen"]["split"] == "dynamic");
  REQUIRE(step["ranks"].size() == 2);
  for (const Json& rank : step["ranks"]) {
    require_keys(rank, {"rank", "compute_s", "communication_s", "exposed_communication_s", "idle_s", "peak_bytes",
                        "parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "received_bytes"});
    CHECK(rank["compute_s"].get<double>() + rank["exposed_communication_s"].get<double>() +
              rank["idle_s"].get<double>() ==
          Approx(iteration));
    // Each of 8 microbatches of 2 × 128 × 256 fp32 activations or gradients comes in once.
    CHECK(rank["received_bytes"].get<std::int64_t>() == 8 * 2 * 128 * 256 * 4);
    // 1F1B on two ranks: of activations two are there at a time, of gradients at least one.
    const std::int64_t slots = rank["receive_arena_bytes"].get<std::int64_t>() / (2 * 128 * 256 * 4);
    CHECK((rank["rank"] == 1 ? slots == 2 : slots >= 1 && slots <= 2));
  }
}

TEST_CASE("the same input gives the same bytes") {
  const Folder folder;
  for (const std::string name : {"a", "b"}) {
    REQUIRE(run_plumb(folder, "plan " + scenario("demo") + " -o " + folder.file(name + ".plan")).status == 0);
    REQUIRE(run_plumb(folder, "simulate " + folder.file("a.plan") + " -o " + folder.file(name + ".trace")).status == 0);
  }
  CHECK(plumb::read_file(folder.file("a.plan")) == plumb::read_file(folder.file("b.plan")));
  CHECK(plumb::read_file(folder.file("a.trace")) == plumb::read_file(folder.file("b.trace")));
}

#ifdef PLUMB_HAS_SIMGRID
TEST_CASE("both engines predict the same where nothing contends") {
  const Folder folder;
  const std::string command = "simulate " + scenario("demo") + " --json --engine ";
  const double path = json_of(run_plumb(folder, command + "path"))["iteration_s"].get<double>();
  const double simulated = json_of(run_plumb(folder, command + "simgrid"))["iteration_s"].get<double>();
  CHECK(simulated == Approx(path).epsilon(1e-9));
}

TEST_CASE("ranks that share cores are slower in SimGrid, by no more than all of them on one core") {
  const Folder folder;
  const std::string shared = folder.file("shared.yaml", replaced(small, "ranks: 2, cores: 2", "ranks: 2, cores: 1"));
  const std::string apart = folder.file("apart.yaml", small);
  const double slow = json_of(run_plumb(folder, "simulate " + shared + " --json"))["iteration_s"].get<double>();
  const double fast = json_of(run_plumb(folder, "simulate " + apart + " --json"))["iteration_s"].get<double>();
  CHECK(slow > 1.2 * fast);
  CHECK(slow <= 2 * fast);
}
#else
TEST_CASE("without SimGrid the longest path predicts, and asking for SimGrid says why not") {
  const Folder folder;
  CHECK(json_of(run_plumb(folder, "simulate " + scenario("demo") + " --json"))["engine"] == "path");
  refuses(run_plumb(folder, "simulate " + scenario("demo") + " --engine simgrid"), {"--engine", "without SimGrid"});
}
#endif

TEST_CASE("schedule show has the keys that design names, and ZB-H1's bubble is (p − 1)(F + I − W)") {
  const Folder folder;
  const Json shown = json_of(run_plumb(folder, "schedule show zb-h1 --ranks 4 --microbatches 8 --times 3,2,1 --json"));
  require_keys(shown, {"schedule", "ranks", "microbatches", "chunks", "makespan", "bubble_makespan", "bubble_span",
                       "peak_activations"});
  CHECK(shown["bubble_makespan"].get<double>() == Approx(3 * (3 + 2 - 1)));
  CHECK(shown["makespan"].get<double>() == Approx(8 * 6 + 12));
  CHECK(shown["peak_activations"] == Json::array({4.0, 4.0, 4.0, 4.0}));
  refuses(run_plumb(folder, "schedule show zb-h11 --ranks 4 --microbatches 8"), {"did you mean 'zb-h1'?"});
  for (const std::string times : {"1,x,1", "1,1", "1,-1,1", "nan,1,1", "1e308,1e308,1e308", "1,1,1,1,1"}) {
    refuses(run_plumb(folder, "schedule show 1f1b --ranks 4 --microbatches 8 --times=" + times), {"--times"});
  }
  CHECK(run_plumb(folder, "schedule show gpipe --ranks 2 --microbatches 2 --times 0,0,0").status == 0);
}

TEST_CASE("an exported schedule is valid, and one with an action left out is not") {
  const Folder folder;
  const Outcome exported = run_plumb(folder, "schedule export interleaved-1f1b --ranks 4 --microbatches 8");
  REQUIRE(exported.status == 0);
  const std::string good = folder.file("good.csv", exported.out);
  CHECK(run_plumb(folder, "schedule check " + good).status == 0);
  const std::string bad = folder.file("bad.csv", replaced(exported.out, "0B0,", ""));
  const Outcome checked = run_plumb(folder, "schedule check " + bad);
  CHECK(checked.status == 1);
  CHECK_THAT(checked.out, ContainsSubstring("0B0"));
  refuses(run_plumb(folder, "schedule check " + folder.file("ugly.csv", "0F0,zz\n")), {"ugly.csv:1:5"});
}

TEST_CASE("on a terminal there is colour, unless NO_COLOR is set") {
  const auto shown = [](const std::string& environment) {
    return plumb::tests::on_terminal("schedule show 1f1b --ranks 2 --microbatches 2", environment);
  };
  const std::optional<std::string> plain = shown("NO_COLOR=1");
  if (!plain) {
    WARN("this machine has no pseudo-terminals (is /dev/pts mounted?): not checked");
    return;
  }
  CHECK_THAT(*plain, ContainsSubstring("0"));
  CHECK(plain->find('\033') == std::string::npos);
  CHECK(shown("").value().find('\033') != std::string::npos);
  CHECK(shown("NO_COLOR=").value().find('\033') != std::string::npos);
}

TEST_CASE("show, plan and simulate name machine and software, and tell whether the software was stated") {
  const Folder folder;
  const std::string text = plumb::read_file(std::string(PLUMB_SOURCE_DIR) + "/scenarios/demo.yaml");
  const std::string unstated = folder.file("unstated.yaml", text);
  const std::string stated = folder.file("stated.yaml", text + "software: megatron-2022\n");
  for (const std::string command : {"show ", "plan --engine path ", "simulate --engine path "}) {
    CAPTURE(command);
    CHECK_THAT(run_plumb(folder, command + unstated).out, ContainsSubstring("not stated, plumb is assumed\n"));
    const std::string told = run_plumb(folder, command + stated).out;
    CHECK_THAT(told, ContainsSubstring(" megatron-2022\n") && !ContainsSubstring("not stated"));
    const Json without = json_of(run_plumb(folder, command + unstated + " --json"));
    CHECK(without["machine"] == "local-cpu");
    CHECK(without["software"] == "plumb");
    CHECK(without["software_stated"] == false);
    const Json with = json_of(run_plumb(folder, command + stated + " --json"));
    CHECK(with["software"] == "megatron-2022");
    CHECK(with["software_stated"] == true);
  }
}

TEST_CASE("without a terminal there is no escape code and no progress, with or without NO_COLOR") {
  const Folder folder;
  for (const std::string environment : {"", "NO_COLOR=1", "TERM=xterm-256color"}) {
    const Outcome outcome = run_plumb(folder, "plan " + scenario("demo"), environment);
    CHECK(outcome.status == 0);
    CHECK(outcome.out.find('\033') == std::string::npos);
    CHECK(outcome.err.empty());
  }
}
