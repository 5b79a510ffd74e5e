// Published measurements: tables whose rows are scenarios, each beside what was measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/document/field.hpp"
#include "common/cluster/machine_fit.hpp"
#include "common/planner/planner.hpp"

namespace plumb {

enum class PublishedMetric : std::uint8_t {
  iteration_s,
  // By F = 96·B·s·l·h²·(1 + s/6h + V/16lh) FLOPs per iteration, recompute included (arXiv 2104.04473, equation 3).
  tflops_per_gpu,
  samples_per_gpu_per_s,
  // Weights, gradients and optimizer's states of the fullest rank, in 1e9 bytes: no time.
  states_gb,
  // Of the peak, by 72·B·s·l·h²·(1 + s/6h + V/12lh) FLOPs per iteration, whatever is recomputed.
  mfu_percent,
  // Against the row's base, as predicted: samples per second over the base's; the same as a gain; FLOPs by F per second
  // and GPU.
  speedup,
  gain_percent,
  scaling_percent,
};

struct PublishedRow {
  std::string name;
  Scenario scenario;
  std::optional<double> measured = {};   // in the table's metric; none: others' base, of which nothing was published
  std::optional<std::size_t> base = {};  // the row that this one is compared with
};

// Of a table's errors; 0: no bound.
struct ErrorBounds {
  double mean_percent = 0;  // of the errors' absolute values
  double worst_percent = 0;
  double worst_points = 0;  // of the difference in the table's metric
  bool operator==(const ErrorBounds&) const = default;
};

struct PublishedTable {
  std::string title;
  std::filesystem::path file;
  PublishedMetric metric = PublishedMetric::iteration_s;
  ErrorBounds goal = {};         // what is wanted; it may be missed
  ErrorBounds ratchet = {};      // what was reached once, and a tenth: more is a step back
  std::vector<FreeNumber> free;  // of its own cluster, that a fit may change
  std::vector<PublishedRow> rows;
};

// A file with `table`, `measured` (a metric), `goal` and `ratchet`, each `{mean_percent, max_percent, max_points}`,
// `fit: {free: …}`, what all rows have in common, and `rows`, each a scenario over it with `name`, `measured` and, of
// metrics that compare, `base`. Throws InputError with file, line and column.
[[nodiscard]] PublishedTable read_published(const std::filesystem::path& path);

// As in the file.
[[nodiscard]] const std::vector<std::string>& published_metric_names();

inline constexpr double largest_measurement = 1e9;  // largest value of any metric

// Table of the fields of such a file.
[[nodiscard]] const FieldBlock& table_block();

[[nodiscard]] bool compares(PublishedMetric metric);  // whether its rows have a base
[[nodiscard]] bool is_time(PublishedMetric metric);   // it follows from the iteration's time

// Of a row's one plan.
struct PublishedPrediction {
  Plan plan;
  Seconds iteration;  // from step to step: the makespan, or with post-validation the longest rank's own span
  Seconds compute;    // of the rank that computes most
  Seconds after;      // from the last backward of any rank to the end of the step
  double value = 0;   // the iteration in the table's metric
  Seconds measured;   // what the measurement says of the iteration: with a base, beside the base's predicted one
  double error = 0;  // iteration / measured − 1, or of a metric that is no time its own; 0 where nothing was published
};
[[nodiscard]] PublishedPrediction predict_published(const PublishedTable& table, const PublishedRow& row,
                                                    const Evaluator& evaluator);

}  // namespace plumb
