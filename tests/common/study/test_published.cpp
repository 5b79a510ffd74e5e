// Published measurements: each table within its ratchet, one layer within 6%, and a wrong bubble is noticed.
#include "common/study/published.hpp"

#include <cmath>
#include <filesystem>
#include <map>

#include "common/block_cost/block_costs.hpp"
#include "common/graph/evaluate.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::filesystem::path published(const std::string& name) {
  return std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios" / "published" / name;
}

double mean_percent(const PublishedTable& table) {
  double sum = 0;
  for (const PublishedRow& row : table.rows) sum += std::abs(predict_published(table, row, predict_by_path).error);
  return 100 * sum / static_cast<double>(table.rows.size());
}

// A layer of 22B, arXiv 2205.05198, table 4: h 6144, a 64, s 2048, four sequences, TP8, A100-80GB.
Scenario layer_22b(const std::string& recompute, bool sequence_parallel) {
  return read_text(R"(model:
  vocabulary: 51200
  hidden: 6144
  heads: 64
  ffn: 24576
  activation: gelu
  norm: layernorm
  bias: true
  positions: learned
  max_positions: 2048
  tied_embeddings: true
  layers: "full/dense*48"
cluster: {machine: dgx-a100, nodes: 1}
software: megatron-2022
split: uniform
training: {sequence: 2048, precision: fp16, global_batch: 4, microbatch: 4, recompute: )" +
                   recompute + "}\nlayout: {pipeline: 1, tensor: {degree: 8, sequence_parallel: " +
                   (sequence_parallel ? "true" : "false") + "}}\n");
}

}  // namespace

TEST_CASE("no published table is predicted worse than its ratchet, and each says what is wanted") {
  std::size_t tables = 0;
  for (const auto& entry : std::filesystem::directory_iterator(published(""))) {
    const PublishedTable table = read_published(entry.path());
    CHECK(table.goal != ErrorBounds{});
    REQUIRE(table.ratchet.mean_percent > 0);
    REQUIRE(table.ratchet.worst_percent > 0);
    if (!testing::tries(tables++)) continue;
    double sum = 0;
    double rows = 0;
    for (const PublishedRow& row : table.rows) {
      if (!row.measured) continue;
      const PublishedPrediction prediction = predict_published(table, row, predict_by_path);
      const double percent = 100 * std::abs(prediction.error);
      INFO(table.title << ", " << row.name);
      CHECK(percent <= table.ratchet.worst_percent);
      const double points = std::abs(prediction.value - *row.measured);
      if (table.ratchet.worst_points > 0) CHECK(points <= table.ratchet.worst_points);
      sum += percent;
      ++rows;
    }
    INFO(table.title);
    CHECK(sum / rows <= table.ratchet.mean_percent);
  }
  CHECK(tables >= 14);
}

// torchtitan, pull request 2113.
TEST_CASE("the gain of an automatic split is predicted within 6 points of the measurement") {
  int compared = 0;
  for (const char* name : {"torchtitan-2113.yaml", "torchtitan-2113-schedules.yaml"}) {
    const PublishedTable table = read_published(published(name));
    for (const PublishedRow& row : table.rows) {
      if (!row.measured) continue;
      INFO(table.title << ", " << row.name);
      CHECK(std::abs(predict_published(table, row, predict_by_path).value - *row.measured) <= 6);
      ++compared;
    }
  }
  CHECK(compared == 13);
}

// 1F1B of 2p microbatches, a layer by the FLOPs of its linear layers and its SiLU per token, the output by its own, B
// three times F: how the pull request weighs a cut (torchtitan/experiments/autopartition/infra, December 2025).
double weighed_as_torchtitan(const Model& model, const std::vector<int>& layers) {
  const double hidden = static_cast<double>(model.hidden);
  const double ffn = static_cast<double>(std::get<DenseMlp>(model.layers.front().mlp).width);
  const double layer = 2 * (4 * hidden * hidden + 3 * hidden * ffn) + ffn;
  const double output = 2 * hidden * static_cast<double>(model.vocabulary);
  const int ranks = static_cast<int>(layers.size());
  PipelineCosts costs = even_costs(ranks, {});
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    const double flops = layers[stage] * layer + (stage + 1 == layers.size() ? output : 0);
    costs.stages[stage].forward.value = flops;
    costs.stages[stage].input_gradient.value = 3 * flops;
    costs.stages[stage].weight_gradient = {};
  }
  const Schedule schedule = generate_schedule("1f1b", {.ranks = ranks, .microbatches = 2 * ranks});
  return evaluate(build_graph(lower(schedule, {}), costs)).makespan.value;
}

TEST_CASE("torchtitan's automatic splits are those of the cuts it visits that its own weights prefer") {
  const std::map<std::size_t, std::vector<std::vector<int>>> visited = {
      {6, {{1, 2, 2, 1}, {2, 2, 1, 1}, {3, 1, 1, 1}}}, {12, {{3, 3, 3, 3}, {3, 3, 4, 2}, {3, 4, 3, 2}, {4, 3, 3, 2}}}};
  int compared = 0;
  for (const PublishedRow& row : read_published(published("torchtitan-2113.yaml")).rows) {
    if (!row.measured) continue;
    INFO(row.name);
    const Model& model = row.scenario.model;
    std::vector<int> best;
    for (const std::vector<int>& cut : visited.at(model.layers.size())) {
      if (best.empty() || weighed_as_torchtitan(model, cut) < weighed_as_torchtitan(model, best)) best = cut;
    }
    CHECK(row.scenario.splits.front().counts == best);
    ++compared;
  }
  CHECK(compared == 4);
}

// Milliseconds of F and B. None of these five is fitted.
TEST_CASE("one layer of 22B takes what arXiv 2205.05198, table 4 measured, within 6%") {
  struct Measured {
    const char* recompute;
    bool sequence_parallel;
    double forward;
    double backward;
  };
  for (const Measured& row :
       {Measured{"none", false, 7.7, 11.9}, Measured{"none", true, 7.2, 11.8}, Measured{"full", false, 7.7, 19.5},
        Measured{"selective", false, 7.7, 13.2}, Measured{"selective", true, 7.2, 13.1}}) {
    INFO(row.recompute << (row.sequence_parallel ? ", sequence parallel" : ""));
    const ComputeCost layer = block_costs(layer_22b(row.recompute, row.sequence_parallel), 4)[1];
    CHECK(1e3 * layer.forward.value == Approx(row.forward).epsilon(0.06));
    CHECK(1e3 * backward_time(layer).value == Approx(row.backward).epsilon(0.06));
  }
}

// If the bubble were wrong, tables of compute alone would not tell: this one must.
TEST_CASE("a schedule of zero bubble in the place of the real one is noticed") {
  PublishedTable table = read_published(published("2401.10241-table-4.yaml"));
  for (PublishedRow& row : table.rows) {
    row.scenario.schedules = {{.name = "zb-auto", .in_flight = 2 * row.scenario.layout.pipeline}};
    row.scenario.software.post_validation = true;
    row.scenario.splits = {{.method = SplitMethod::counts, .counts = {}}};
    const int stages = row.scenario.layout.pipeline;
    std::vector<int>& counts = row.scenario.splits.front().counts;
    counts.assign(static_cast<std::size_t>(stages), (static_cast<int>(row.scenario.model.layers.size()) + 2) / stages);
    counts.front() -= 1;
    counts.back() -= 1;
  }
  CHECK(mean_percent(table) > 2 * table.goal.mean_percent);
}

// arXiv 2205.05198, table 2, of one layer: sbh(10 + 24/t + 5as/(ht)), with sequence parallelism sbh/t (34 + 5as/h),
// with selective recompute too sbh/t · 34, in bytes; norms also keep fp32 statistics, which the paper leaves out.
TEST_CASE("a layer keeps the activations of arXiv 2205.05198, table 2") {
  const double sbh = 2048.0 * 4 * 6144;
  const double scores = 5.0 * 64 * 2048 / 6144;
  const auto kept = [](const char* recompute, bool sequence_parallel) {
    return static_cast<double>(block_costs(layer_22b(recompute, sequence_parallel), 4)[1].kept_bytes.value);
  };
  CHECK(kept("none", false) == Approx(sbh * (10 + (24 + scores) / 8)).epsilon(0.002));
  CHECK(kept("none", true) == Approx(sbh / 8 * (34 + scores)).epsilon(0.002));
  CHECK(kept("selective", true) == Approx(sbh / 8 * 34).epsilon(0.002));
  CHECK(kept("full", false) == Approx(sbh * 2).epsilon(0.002));
}

// Per rank of a tensor group: (4h² + 2h·4h + 3h + 4h)/t + 6h; the embedding Vh/t + sh (arXiv 1909.08053, section 3).
TEST_CASE("a tensor group divides matmuls and tables, not norms nor the biases of what is reduced") {
  const std::vector<ComputeCost> blocks = block_costs(layer_22b("none", false), 4);
  const std::int64_t h = 6144;
  CHECK(blocks[1].parameters == (12 * h * h + 7 * h) / 8 + 6 * h);
  CHECK(blocks[0].parameters == 51200 * h / 8 + 2048 * h);
}

TEST_CASE("missing keys of a published table are refused with their place") {
  const TemporaryFolder folder;
  const std::string head = "table: t\nmeasured: iteration_s\ncommon: {cluster: {machine: dgx-a100}}\n";
  const auto message = [&](const std::string& text) -> std::string {
    try {
      (void)read_published(folder.write("t.yaml", text));
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK_THAT(message("table: t\nmeasured: hours\ncommon: {}\nrows: []\n"), ContainsSubstring("t.yaml:2:11"));
  CHECK_THAT(message(head), ContainsSubstring("'rows' is missing"));
  CHECK_THAT(message(head + "rows: [{name: a}]\n"), ContainsSubstring("t.yaml:4:8"));
  CHECK_THAT(message(head + "rows:\n  - name: a\n    measured: 1\n    model: models/gpt2.yaml\n    schedule: auto\n"),
             ContainsSubstring("leaves nothing open"));
  // Of no rows every goal would be reached.
  CHECK_THAT(message(head + "rows: []\n"), ContainsSubstring("t.yaml:4:7") && ContainsSubstring("the list is empty"));
}

TEST_CASE("a published table that aliases make endless is refused with its place") {
  const TemporaryFolder folder;
  const std::string text =
      "table: t\nmeasured: iteration_s\ncommon:\n  model: &m {software: *m}\n"
      "rows:\n  - {name: a, model: &r {software: *r}, measured: 1}\n";
  CHECK_THROWS_WITH(read_published(folder.write("t.yaml", text)),
                    ContainsSubstring("t.yaml:6:22") && ContainsSubstring("nested more than"));
}

// A metric is a formula of the iteration's time, here written out once more.
TEST_CASE("each metric says what its definition says") {
  const TemporaryFolder folder;
  const auto predictions = [&](const std::string& metric, const std::string& first, const std::string& second) {
    const std::string text = "table: t\nmeasured: " + metric +
                             "\ncommon:\n  model: models/gpt2.yaml\n  cluster: {machine: dgx-a100}\n"
                             "  training: {sequence: 1024, precision: bf16, microbatch: 2}\n  split: uniform\nrows:\n"
                             "  - {name: a, cluster: {ranks: 1}, layout: {pipeline: 1}, training: {global_batch: 8}" +
                             first +
                             "}\n  - {name: b, cluster: {ranks: 2}, layout: {pipeline: 1, data: {degree: 2}}, "
                             "training: {global_batch: 32}" +
                             second + "}\n";
    const PublishedTable table = read_published(folder.write("t.yaml", text));
    return std::vector<PublishedPrediction>{predict_published(table, table.rows[0], predict_by_path),
                                            predict_published(table, table.rows[1], predict_by_path)};
  };
  const auto plain = predictions("iteration_s", ", measured: 1", ", measured: 2");
  const double one = plain[0].iteration.value;
  const double two = plain[1].iteration.value;
  CHECK(plain[1].value == two);
  CHECK(plain[1].error == Approx(two / 2 - 1));

  const double sequence = 1024;
  const double hidden = 768;
  const double layers = 12;
  const auto vocabulary = static_cast<double>(plain[0].plan.model.vocabulary);
  const double shape = 32 * sequence * layers * hidden * hidden;
  const auto mfu = predictions("mfu_percent", ", measured: 10", ", measured: 20");
  const double counted = 72 * shape * (1 + sequence / (6 * hidden) + vocabulary / (12 * layers * hidden));
  CHECK(mfu[1].value == Approx(100 * counted / (2 * 312e12 * two)));
  CHECK(mfu[1].iteration / mfu[1].measured == Approx(20 / mfu[1].value));
  const auto flops = predictions("tflops_per_gpu", ", measured: 10", ", measured: 20");
  const double redone = 96 * shape * (1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden));
  CHECK(flops[1].value == Approx(redone / (2 * 1e12 * two)));
  CHECK(predictions("samples_per_gpu_per_s", ", measured: 1", ", measured: 2")[1].value == Approx(16 / two));

  const double faster = (32 / two) / (8 / one);
  const auto speedup = predictions("speedup", "", ", base: a, measured: 2");
  CHECK(speedup[1].value == Approx(faster));
  CHECK(speedup[1].error == Approx(2 / faster - 1));
  CHECK(speedup[0].measured == Seconds{});
  CHECK(predictions("gain_percent", "", ", base: a, measured: -5")[1].value == Approx(100 * (faster - 1)));
  CHECK(predictions("gain_percent", "", ", base: a, measured: -5")[1].error == Approx(0.95 / faster - 1));
  CHECK(predictions("scaling_percent", "", ", base: a, measured: 90")[1].value == Approx(100 * faster / 2));
}

// Of mixed precision with Adam and 16-bit gradients 16 bytes a parameter; ZeRO-2 shares out 14 of them (arXiv
// 1910.02054, section 5), a pipeline the parameters.
TEST_CASE("states are those of the fullest rank, and no time") {
  const TemporaryFolder folder;
  const PublishedTable table = read_published(folder.write("t.yaml", R"(table: t
measured: states_gb
common:
  model: {vocabulary: 5000, hidden: 256, heads: 4, ffn: 1024, layers: "full/dense*8"}
  cluster: {machine: dgx-a100, ranks: 4}
  training: {sequence: 1024, global_batch: 8, precision: bf16}
  software: {like: plumb, gradients: bf16}
  split: uniform
rows:
  - {name: whole, layout: {pipeline: 1, data: {degree: 4}}, measured: 2}
  - {name: shared, layout: {pipeline: 1, data: {degree: 4, sharding: zero2}}, measured: 1}
  - {name: stages, layout: {pipeline: 4}, measured: 1}
)"));
  CHECK_FALSE(is_time(table.metric));
  const auto predicted = [&](std::size_t row) { return predict_published(table, table.rows[row], predict_by_path); };
  const double parameters = static_cast<double>(count_parameters(table.rows.front().scenario.model).total);
  CHECK(predicted(0).value == Approx(16 * parameters / 1e9));
  CHECK(predicted(0).error == Approx(predicted(0).value / 2 - 1));
  CHECK(predicted(1).value == Approx((2 + 14.0 / 4) * parameters / 1e9).epsilon(1e-4));
  CHECK(predicted(2).value < predicted(0).value / 2);
  CHECK(predicted(2).value > predicted(0).value / 4);
}

TEST_CASE("a comparison without its base, and a base without a comparison, are refused") {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& metric, const std::string& rows) -> std::string {
    try {
      (void)read_published(folder.write("t.yaml", "table: t\nmeasured: " + metric +
                                                      "\ncommon: {model: models/gpt2.yaml, cluster: {machine: "
                                                      "dgx-a100, ranks: 1}, layout: {pipeline: 1}, training: "
                                                      "{sequence: 1024}, split: uniform}\nrows:\n" +
                                                      rows));
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(message("speedup", "  - {name: a}\n  - {name: b, base: a, measured: 2}\n") == "no error");
  CHECK_THAT(message("speedup", "  - {name: a, measured: 2}\n"), ContainsSubstring("base: the name of a row above"));
  CHECK_THAT(message("speedup", "  - {name: b, base: a, measured: 2}\n  - {name: a}\n"),
             ContainsSubstring("t.yaml:5:21") && ContainsSubstring("no row 'a' above"));
  CHECK_THAT(message("speedup", "  - {name: a}\n  - {name: b, base: a}\n"), ContainsSubstring("nothing was measured"));
  CHECK_THAT(message("iteration_s", "  - {name: a}\n"), ContainsSubstring("'measured' is missing"));
  CHECK_THAT(message("iteration_s", "  - {name: a, measured: 1}\n  - {name: b, base: a, measured: 1}\n"),
             ContainsSubstring("compares no rows"));
  CHECK_THAT(message("speedup", "  - {name: a}\n  - {name: a}\n  - {name: b, base: a, measured: 2}\n"),
             ContainsSubstring("t.yaml:6:12") && ContainsSubstring("another row above is named 'a' too"));
  CHECK_THAT(message("speedup", "  - {name: a}\n"), ContainsSubstring("no row of the table was measured"));
}
