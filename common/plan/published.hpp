// Published measurements: tables whose rows are scenarios, each beside what was measured.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/plan/planner.hpp"

namespace plumb {

enum class PublishedMetric : std::uint8_t {
  iteration_s,
  // By F = 96·B·s·l·h²·(1 + s/6h + V/16lh) FLOPs per iteration, recompute included (arXiv 2104.04473, equation 3).
  tflops_per_gpu,
  samples_per_gpu_per_s,
};

struct PublishedRow {
  std::string name;
  Scenario scenario;
  double measured = 0;  // in the table's metric
};

struct PublishedTable {
  std::string title;
  std::filesystem::path file;
  PublishedMetric metric = PublishedMetric::iteration_s;
  double mean_goal_percent = 0;  // of the errors' absolute values; 0: none
  double worst_goal_percent = 0;
  std::vector<PublishedRow> rows;
};

// A file with `table`, `measured` (a metric), `goal: {mean_percent, max_percent}`, what all rows have in common, and
// `rows`, each a scenario over it with `name` and `measured`. Throws InputError with file, line and column.
[[nodiscard]] PublishedTable read_published(const std::filesystem::path& path);

// The time of an iteration that a measurement says.
[[nodiscard]] Seconds measured_time(const PublishedTable& table, const PublishedRow& row);

// Of a row's one plan.
struct PublishedPrediction {
  Plan plan;
  Seconds iteration;  // from step to step: the makespan, or with post-validation the longest rank's own span
  Seconds compute;    // of the rank that computes most
  Seconds after;      // from that rank's last backward to the end of the step
  double error = 0;   // predicted / measured − 1
};
[[nodiscard]] PublishedPrediction predict_published(const PublishedTable& table, const PublishedRow& row,
                                                    const Evaluator& evaluator);

}  // namespace plumb
