// Refits on tables that the model itself made with known numbers.
#include "common/study/fit.hpp"

#include <cmath>

#include "common/cluster/machine_yaml.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Small steps on one or two GPUs: matmuls with short and long sums, and memory traffic, in different shares.
std::string row(int hidden, int sequence, int tensor) {
  const auto text = [](int number) { return std::to_string(number); };
  return "  - name: h " + text(hidden) + ", s " + text(sequence) + ", TP" + text(tensor) +
         "\n    model: {hidden: " + text(hidden) + ", heads: " + text(hidden / 128) + ", ffn: " + text(4 * hidden) +
         ", layers: \"full/dense*2\"}\n    cluster: {ranks: " + text(tensor) +
         "}\n    training: {sequence: " + text(sequence) +
         "}\n    layout: {pipeline: 1, tensor: {degree: " + text(tensor) + "}}\n    measured: 1\n";
}

PublishedTable table_of(const std::string& title, const std::vector<std::string>& rows) {
  std::string text = "table: " + title +
                     "\nmeasured: iteration_s\ncommon:\n"
                     "  model: {vocabulary: 8192, activation: gelu, norm: layernorm, bias: true, positions: learned, "
                     "max_positions: 4096, tied_embeddings: true}\n"
                     "  cluster: {machine: dgx-a100}\n"
                     "  training: {precision: bf16, global_batch: 8, microbatch: 4}\n"
                     "  software: megatron-2022\n  split: uniform\nrows:\n";
  for (const std::string& each : rows) text += each;
  const TemporaryFolder folder;
  return read_published(folder.write("table.yaml", text));
}

std::vector<PublishedTable> three_tables() {
  return {table_of("a", {row(1024, 1024, 1), row(2048, 1024, 1), row(1024, 4096, 1)}),
          table_of("b", {row(4096, 1024, 2), row(2048, 2048, 2)}),
          table_of("c", {row(512, 2048, 1), row(3072, 512, 1)})};
}

Machine a100() {
  const auto path = std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios/machines/dgx-a100.yaml";
  return read_machine(YamlValue::load(path), ElementType::bf16);
}

const std::vector<FreeNumber> three_numbers = {
    {.name = "matmul_efficiency"}, {.name = "matmul_depth"}, {.name = "memory_efficiency"}};

struct Truth {
  double efficiency = 0.7;
  double depth = 150;
  double memory = 0.6;
};

double predicted(const PublishedTable& table, PublishedRow row, const Truth& truth) {
  Machine& machine = row.scenario.cluster.machine;
  machine.device.matmul_efficiency.value = truth.efficiency;
  machine.device.matmul_depth.value = truth.depth;
  machine.device.memory_efficiency.value = truth.memory;
  return predict_published(table, row, predict_by_path).iteration.value;
}

// As measured on a machine with these numbers.
std::vector<PublishedTable> measured(std::vector<PublishedTable> tables, const Truth& truth) {
  for (PublishedTable& table : tables) {
    for (PublishedRow& row : table.rows) row.measured = predicted(table, row, truth);
  }
  return tables;
}

void check_found(const std::vector<double>& values, const Truth& truth) {
  CHECK(values[0] == Approx(truth.efficiency).epsilon(0.003));
  CHECK(values[1] == Approx(truth.depth).epsilon(0.02));
  CHECK(values[2] == Approx(truth.memory).epsilon(0.003));
}

}  // namespace

TEST_CASE("a refit finds the numbers that made its tables, on any number of threads") {
  const Truth truth;
  const std::vector<PublishedTable> tables = measured(three_tables(), truth);
  const MachineRefit found = refit(a100(), three_numbers, tables, {.leave_one_out = false});
  REQUIRE(found.numbers.size() == 3);
  check_found({found.numbers[0].value, found.numbers[1].value, found.numbers[2].value}, truth);
  CHECK(found.numbers[0].start == a100().device.matmul_efficiency.value);
  CHECK(found.chi_squared < 0.05);
  for (const TableErrors& errors : found.tables) CHECK(errors.worst < 0.002);
  CHECK(found.left_out.empty());
  for (std::size_t i = 0; i < 3; ++i) CHECK(found.correlations[i][i] == Approx(1));

  const MachineRefit again = refit(a100(), three_numbers, tables, {.threads = 3, .leave_one_out = false});
  for (std::size_t i = 0; i < 3; ++i) CHECK(again.numbers[i].value == found.numbers[i].value);
  CHECK(again.chi_squared == found.chi_squared);
}

TEST_CASE("a table that is left out does not move the numbers that predict it") {
  const Truth truth;
  std::vector<PublishedTable> tables = measured(three_tables(), truth);
  for (PublishedRow& row : tables[1].rows) *row.measured *= 1.05;  // of another machine, one would say
  const MachineRefit found = refit(a100(), three_numbers, tables, {.threads = 2});
  REQUIRE(found.left_out.size() == 3);
  check_found(found.left_out[1].values, truth);
  CHECK(found.left_out[1].errors.mean == Approx(1 - 1 / 1.05).epsilon(0.02));
  CHECK(found.tables[1].mean < 0.04);  // with it the fit gives way
}

TEST_CASE("a number of a table's own network is fitted on that table alone") {
  std::vector<PublishedTable> tables = three_tables();
  PublishedTable& two_nodes = tables[1];
  two_nodes.free = {{.name = "outside.bandwidth"}};
  for (PublishedRow& row : two_nodes.rows) row.scenario.cluster.machine.devices = 1;
  const Truth truth;
  std::vector<PublishedTable> at_truth = tables;
  for (PublishedRow& row : at_truth[1].rows) row.scenario.cluster.machine.outside.bandwidth.value = {5e9};
  at_truth = measured(at_truth, truth);
  for (std::size_t i = 0; i < two_nodes.rows.size(); ++i) two_nodes.rows[i].measured = at_truth[1].rows[i].measured;
  for (const std::size_t other : {0, 2}) tables[other] = at_truth[other];
  const MachineRefit found = refit(a100(), three_numbers, tables, {.threads = 2});
  REQUIRE(found.numbers.size() == 4);
  CHECK(found.numbers[3].table == "b");
  CHECK(found.numbers[3].value == Approx(5e9).epsilon(0.01));
  CHECK(found.left_out[1].values[3] == Approx(5e9).epsilon(0.02));
  // Where another table is left out it is found on its own table all the same, wherever that then stands.
  for (const std::size_t other : {0, 2}) {
    check_found(found.left_out[other].values, truth);
    CHECK(found.left_out[other].values[3] == Approx(5e9).epsilon(0.02));
  }
}

// Fixing one number at one standard deviation and fitting the other anew raises χ² by 1, if the covariance is right.
TEST_CASE("the covariance is that of the profile of chi-squared") {
  const Truth truth{.depth = a100().device.matmul_depth.value};
  const std::vector<PublishedTable> tables = measured(three_tables(), truth);
  const MachineRefit found =
      refit(a100(), {{.name = "matmul_efficiency"}, {.name = "memory_efficiency"}}, tables, {.leave_one_out = false});
  const auto chi_squared = [&](double efficiency, double memory) {
    double sum = 0;
    for (const PublishedTable& table : tables) {
      const auto rows = static_cast<double>(table.rows.size());
      for (const PublishedRow& row : table.rows) {
        const double error = predicted(table, row, {efficiency, truth.depth, memory}) / *row.measured - 1;
        sum += 4 / rows * error * error / (0.02 * 0.02);
      }
    }
    return sum;
  };
  const double one = found.numbers[0].uncertainty;
  const double other = found.numbers[1].uncertainty;
  REQUIRE(one > 0.002);
  double lowest = 1e9;
  for (int i = -40; i <= 40; ++i) {
    lowest = std::min(lowest, chi_squared(truth.efficiency * std::exp(one), truth.memory * std::exp(i * other / 20)));
  }
  CHECK(lowest == Approx(1).epsilon(0.15));
  lowest = 1e9;
  for (int i = -40; i <= 40; ++i) {
    lowest = std::min(lowest, chi_squared(truth.efficiency * std::exp(i * one / 20), truth.memory * std::exp(other)));
  }
  CHECK(lowest == Approx(1).epsilon(0.15));
}

// A prior of one standard deviation s beside tables that say nothing leaves s.
TEST_CASE("a number that only its prior knows keeps it") {
  const std::vector<PublishedTable> tables = measured(three_tables(), {});
  std::vector<FreeNumber> free = three_numbers;
  free.push_back({.name = "outside.bandwidth", .prior = 30e9, .factor = 1.3});
  const MachineRefit found = refit(a100(), free, tables, {.leave_one_out = false});
  CHECK(found.numbers[3].value == Approx(30e9).epsilon(0.01));
  CHECK(found.numbers[3].uncertainty == Approx(std::log(1.3)));
  CHECK(found.correlations[3][0] == Approx(0).margin(1e-6));
}

TEST_CASE("impossible fits are refused") {
  const std::vector<PublishedTable> tables = measured(three_tables(), {});
  const auto message = [](const Machine& machine, const std::vector<FreeNumber>& free,
                          const std::vector<PublishedTable>& on) -> std::string {
    try {
      (void)refit(machine, free, on, {.leave_one_out = false});
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK_THAT(message(a100(), {{.name = "outside.bandwidth"}}, tables), ContainsSubstring("outside.bandwidth"));
  CHECK_THAT(message(a100(), {}, tables), ContainsSubstring("nothing is free"));
  CHECK_THAT(message(a100(), three_numbers, {}), ContainsSubstring("no tables"));
  std::vector<PublishedTable> of_states = tables;
  of_states.back().metric = PublishedMetric::states_gb;
  CHECK_THAT(message(a100(), three_numbers, of_states), ContainsSubstring("measures no time"));
  Machine other = a100();
  other.name = "dgx-b200";
  CHECK_THAT(message(other, three_numbers, tables), ContainsSubstring("is of machine 'dgx-a100'"));
  Machine changed = a100();
  changed.device.kernel_gap.value = {9e-6};
  CHECK_THAT(message(changed, three_numbers, tables), ContainsSubstring("another kernel_gap"));
  Machine slow = a100();
  slow.device.matmul_depth.value = 0;
  CHECK_THAT(message(slow, three_numbers, tables), ContainsSubstring("matmul_depth is 0"));
  const std::vector<PublishedTable> two_rows = {tables[1]};
  CHECK_THAT(message(a100(), three_numbers, two_rows),
             ContainsSubstring("3 numbers without a prior") && ContainsSubstring("only 2 rows"));
}

TEST_CASE("rows that say what no such machine does are refused with the number that would be needed") {
  std::vector<PublishedTable> tables = measured(three_tables(), {});
  const auto message = [&](double slower) -> std::string {
    std::vector<PublishedTable> wrong = tables;
    for (PublishedTable& table : wrong) {
      for (PublishedRow& row : table.rows) *row.measured *= slower;
    }
    try {
      (void)refit(a100(), {{.name = "matmul_efficiency"}}, wrong, {.leave_one_out = false});
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(message(1) == "no error");
  for (const double slower : {1e9, 0.4}) {
    INFO(slower);
    CHECK_THAT(message(slower),
               ContainsSubstring("matmul_efficiency would be") && ContainsSubstring("takes 1e-06 to 1"));
  }
}

// With a prior each, numbers need no rows; without one, as many rows leave nothing to check by.
TEST_CASE("a refit says how many rows are left to check it by") {
  const std::vector<PublishedTable> tables = measured({three_tables()[1]}, {});
  const auto spare = [&](const std::vector<FreeNumber>& free) {
    return refit(a100(), free, tables, {.leave_one_out = false}).spare_rows;
  };
  CHECK(spare({{.name = "matmul_efficiency"}}) == 1);
  CHECK(spare({{.name = "matmul_efficiency"}, {.name = "memory_efficiency"}}) == 0);
  CHECK(spare({{.name = "matmul_efficiency"},
               {.name = "memory_efficiency"},
               {.name = "matmul_depth", .prior = 122, .factor = 1.5}}) == 0);
}
