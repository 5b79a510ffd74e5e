#include "common/plan/published.hpp"

#include <algorithm>

#include "common/plan/scenario_blocks.hpp"
#include "common/timeline/statistics.hpp"

namespace plumb {
namespace {

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = {"iteration_s", "tflops_per_gpu", "samples_per_gpu_per_s"};
  return names;
}

constexpr double largest_measurement = 1e9;

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

double flops_of_iteration(const Scenario& scenario) {
  const auto batch = static_cast<double>(scenario.training.global_batch);
  const auto s = static_cast<double>(scenario.training.sequence);
  const auto l = static_cast<double>(scenario.model.layers.size());
  const auto h = static_cast<double>(scenario.model.hidden);
  const auto v = static_cast<double>(scenario.model.vocabulary);
  return 96 * batch * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
}

}  // namespace

PublishedTable read_published(const std::filesystem::path& path) {
  const YamlValue file = YamlValue::load(path);
  file.check_keys({"table", "measured", "goal", "common", "rows"});
  PublishedTable table{.title = file.require("table").text(),
                       .file = path,
                       .metric = static_cast<PublishedMetric>(file.require("measured").choice(metric_names())),
                       .rows = {}};
  if (const auto goal = file.find("goal")) {
    goal->check_keys({"mean_percent", "max_percent"});
    table.mean_goal_percent = goal->require("mean_percent").number(0, 1000);
    table.worst_goal_percent = goal->require("max_percent").number(0, 1000);
  }
  const YamlValue common = file.require("common");
  for (const YamlValue& row : file.require("rows").items()) {
    const std::string name = row.require("name").text();
    const double measured = row.require("measured").number(1e-9, largest_measurement);
    const YamlValue scenario = row.without({"name", "measured"}).merged_over(common);
    table.rows.push_back({.name = name, .scenario = read_scenario(scenario, name), .measured = measured});
    const Scenario& read = table.rows.back().scenario;
    if (combinations(read) != 1) {
      row.fail("a published row leaves nothing open, but this one has several combinations");
    }
  }
  return table;
}

Seconds measured_time(const PublishedTable& table, const PublishedRow& row) {
  const double gpus = row.scenario.cluster.ranks;
  switch (table.metric) {
    case PublishedMetric::tflops_per_gpu:
      return {flops_of_iteration(row.scenario) / (gpus * row.measured * 1e12)};
    case PublishedMetric::samples_per_gpu_per_s:
      return {static_cast<double>(row.scenario.training.global_batch) / (gpus * row.measured)};
    default:
      return {row.measured};
  }
}

PublishedPrediction predict_published(const PublishedTable& table, const PublishedRow& row,
                                      const Evaluator& evaluator) {
  const Scenario& scenario = row.scenario;
  PublishedPrediction prediction{
      .plan = make_plan(scenario, {scenario.microbatches.front(), scenario.schedules.front(), scenario.splits.front()}),
      .iteration = {},
      .compute = {},
      .after = {}};
  const Timeline timeline = evaluator(prediction.plan);
  const StepTimeline& step = median_step(timeline);
  const int ranks = prediction.plan.schedule.ranks;
  prediction.iteration = scenario.software.post_validation ? longest_span(step, ranks) : step.duration;
  Seconds last;
  std::vector<Seconds> busy(static_cast<std::size_t>(ranks));
  for (const Event& event : step.events) {
    if (!is_compute(event.action.kind)) continue;
    last = std::max(last, event.end);
    busy[static_cast<std::size_t>(event.rank)] += event.end - event.start;
  }
  prediction.compute = *std::ranges::max_element(busy);
  prediction.after = step.duration - last;
  prediction.error = prediction.iteration / measured_time(table, row) - 1;
  return prediction;
}

}  // namespace plumb
