#include "common/study/published.hpp"

#include <algorithm>

#include "common/base/excerpt.hpp"
#include "common/planner/make_plan.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb {
namespace {

// The longest time from a rank's first compute to the end of its last action.
Seconds longest_span(const StepTimeline& step, int ranks) {
  std::vector<Seconds> first(static_cast<std::size_t>(ranks), longest_time);
  std::vector<Seconds> last(static_cast<std::size_t>(ranks));
  for (const Event& event : step.events) {
    const auto rank = static_cast<std::size_t>(event.rank);
    if (is_compute(event.action.kind)) first[rank] = std::min(first[rank], event.start);
    if (!is_receive(event.action.kind)) last[rank] = std::max(last[rank], event.end);
  }
  Seconds longest;
  for (std::size_t rank = 0; rank < first.size(); ++rank) longest = std::max(longest, last[rank] - first[rank]);
  return longest;
}

// `factor` FLOPs per parameter of a layer's matmuls and token: 96 with recompute, 72 without.
double flops_of_iteration(const Scenario& scenario, double factor) {
  const auto batch = static_cast<double>(scenario.training.global_batch);
  const auto s = static_cast<double>(scenario.training.sequence);
  const auto l = static_cast<double>(scenario.model.layers.size());
  const auto h = static_cast<double>(scenario.model.hidden);
  const auto v = static_cast<double>(scenario.model.vocabulary);
  return factor * batch * s * l * h * h * (1 + s / (6 * h) + v / (factor / 6 * l * h));
}

// Of a metric that is inverse to the time of an iteration: what it is at one second. `base`: the compared row and its
// time.
struct Base {
  const Scenario* scenario = nullptr;
  Seconds iteration;
};
double at_one_second(PublishedMetric metric, const Scenario& scenario, const Base& base) {
  const double gpus = scenario.cluster.ranks;
  const auto batch = static_cast<double>(scenario.training.global_batch);
  switch (metric) {
    case PublishedMetric::tflops_per_gpu:
      return flops_of_iteration(scenario, 96) / (gpus * 1e12);
    case PublishedMetric::samples_per_gpu_per_s:
      return batch / gpus;
    case PublishedMetric::mfu_percent:
      return 100 * flops_of_iteration(scenario, 72) / (gpus * scenario.cluster.machine.device.peak.value.value);
    case PublishedMetric::speedup:
    case PublishedMetric::gain_percent:
      return base.iteration.value * batch / static_cast<double>(base.scenario->training.global_batch);
    case PublishedMetric::scaling_percent:
      return 100 * base.iteration.value * flops_of_iteration(scenario, 96) / gpus /
             flops_of_iteration(*base.scenario, 96) * base.scenario->cluster.ranks;
    case PublishedMetric::iteration_s:
    case PublishedMetric::states_gb:
      break;
  }
  return 1;
}

double value_of(PublishedMetric metric, double at_one, Seconds iteration) {
  if (metric == PublishedMetric::iteration_s) return iteration.value;
  const double value = at_one / iteration.value;
  return metric == PublishedMetric::gain_percent ? 100 * (value - 1) : value;
}

Seconds iteration_of(PublishedMetric metric, double at_one, double value) {
  if (metric == PublishedMetric::iteration_s) return {value};
  return {at_one / (metric == PublishedMetric::gain_percent ? 1 + value / 100 : value)};
}

ErrorBounds read_bounds(const std::optional<YamlValue>& bounds) {
  ErrorBounds result;
  if (!bounds) return result;
  const auto read = [&](const char* key, double& into) {
    if (const auto value = bounds->find(key)) into = value->number();
  };
  read("mean_percent", result.mean_percent);
  read("max_percent", result.worst_percent);
  read("max_points", result.worst_points);
  return result;
}

void find_base(const YamlValue& row, const PublishedTable& table, PublishedRow& into) {
  const std::optional<YamlValue> base = row.find("base");
  if (!compares(table.metric)) {
    if (base) base->fail("the table's metric compares no rows", "measured: speedup, gain_percent or scaling_percent");
    if (!into.measured) row.fail("key 'measured' is missing in " + row.path());
    return;
  }
  if (!base) {
    if (into.measured) row.fail("what was measured is a comparison", "base: the name of a row above it");
    return;
  }
  const auto found = std::ranges::find(table.rows, base->text(), &PublishedRow::name);
  if (found == table.rows.end()) base->fail("there is no row '" + base->text() + "' above");
  if (!into.measured) base->fail("nothing was measured in comparison to it", "measured: …");
  into.base = static_cast<std::size_t>(found - table.rows.begin());
}

PublishedRow read_row(const YamlValue& row, const YamlValue& common, const PublishedTable& table) {
  const std::string name = row.require("name").text();
  if (std::ranges::find(table.rows, name, &PublishedRow::name) != table.rows.end()) {
    row.require("name").fail("another row above is named '" + excerpt(name) + "' too", "give each row its own name");
  }
  const YamlValue scenario = row.without({"name", "measured", "base"}).merged_over(common);
  PublishedRow result{.name = name, .scenario = read_scenario(scenario, name)};
  if (const auto measured = row.find("measured")) {
    const bool may_be_a_loss = table.metric == PublishedMetric::gain_percent;
    result.measured = measured->number(may_be_a_loss ? -99 : 1e-9, largest_measurement);
  }
  find_base(row, table, result);
  const Scenario& read = result.scenario;
  if (combinations(read) != 1) {
    row.fail("a published row leaves nothing open, but this one has several combinations");
  }
  return result;
}

Plan plan_of(const Scenario& scenario) { return make_plan(scenario, only_choice(scenario)); }

double states_gb(const Plan& plan) {
  std::vector<Bytes> held(static_cast<std::size_t>(plan.schedule.ranks));
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    held[static_cast<std::size_t>(plan.schedule.rank_of_stage[stage])] += states_held(plan.costs.stages[stage]);
  }
  return static_cast<double>(std::ranges::max(held).value) / 1e9;
}

Seconds iteration_time(const Scenario& scenario, const StepTimeline& step, int ranks) {
  return scenario.software.post_validation ? longest_span(step, ranks) : step.duration;
}

Base predicted_base(const PublishedTable& table, const PublishedRow& row, const Evaluator& evaluator) {
  if (!row.base) return {};
  const Scenario& scenario = table.rows[*row.base].scenario;
  const Plan plan = plan_of(scenario);
  const Timeline timeline = evaluator(plan);
  return {&scenario, iteration_time(scenario, median_step(timeline), plan.schedule.ranks)};
}

}  // namespace

const std::vector<std::string>& published_metric_names() {
  static const std::vector<std::string> names = {"iteration_s",  "tflops_per_gpu", "samples_per_gpu_per_s",
                                                 "states_gb",    "mfu_percent",    "speedup",
                                                 "gain_percent", "scaling_percent"};
  return names;
}

bool compares(PublishedMetric metric) {
  return metric == PublishedMetric::speedup || metric == PublishedMetric::gain_percent ||
         metric == PublishedMetric::scaling_percent;
}

bool is_time(PublishedMetric metric) { return metric != PublishedMetric::states_gb; }

PublishedTable read_published(const std::filesystem::path& path) {
  const YamlValue file = YamlValue::load(path);
  check_fields(table_block(), file);
  PublishedTable table{
      .title = file.require("table").text(),
      .file = path,
      .metric = static_cast<PublishedMetric>(file.require("measured").choice(published_metric_names())),
      .free = {},
      .rows = {}};
  table.goal = read_bounds(file.find("goal"));
  table.ratchet = read_bounds(file.find("ratchet"));
  if (const auto fit = file.find("fit")) {
    table.free = read_free_numbers(fit->require("free"));
  }
  const YamlValue common = file.require("common");
  const YamlValue rows = file.require("rows");
  for (const YamlValue& row : rows.items()) table.rows.push_back(read_row(row, common, table));
  // Of nothing every goal is reached.
  if (std::ranges::none_of(table.rows, [](const PublishedRow& row) { return row.measured.has_value(); })) {
    rows.fail(table.rows.empty() ? "the table has no rows" : "no row of the table was measured",
              "rows: [{name: …, measured: …}]");
  }
  return table;
}

PublishedPrediction predict_published(const PublishedTable& table, const PublishedRow& row,
                                      const Evaluator& evaluator) {
  const Scenario& scenario = row.scenario;
  PublishedPrediction prediction{
      .plan = plan_of(scenario), .iteration = {}, .compute = {}, .after = {}, .measured = {}};
  const Timeline timeline = evaluator(prediction.plan);
  const StepTimeline& step = median_step(timeline);
  const int ranks = prediction.plan.schedule.ranks;
  prediction.iteration = iteration_time(scenario, step, ranks);
  Seconds last;
  std::vector<Seconds> busy(static_cast<std::size_t>(ranks));
  for (const Event& event : step.events) {
    if (!is_compute(event.action.kind)) continue;
    last = std::max(last, event.end);
    busy[static_cast<std::size_t>(event.rank)] += event.end - event.start;
  }
  prediction.compute = *std::ranges::max_element(busy);
  prediction.after = step.duration - last;
  if (table.metric == PublishedMetric::states_gb) {
    prediction.value = states_gb(prediction.plan);
    prediction.error = prediction.value / *row.measured - 1;
    return prediction;
  }
  if (compares(table.metric) && !row.base) return prediction;
  const double at_one = at_one_second(table.metric, scenario, predicted_base(table, row, evaluator));
  prediction.value = value_of(table.metric, at_one, prediction.iteration);
  if (!row.measured) return prediction;
  prediction.measured = iteration_of(table.metric, at_one, *row.measured);
  prediction.error = prediction.iteration / prediction.measured - 1;
  return prediction;
}

}  // namespace plumb
