#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/error.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/base/workers.hpp"
#include "common/cluster/machine.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/study/published.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {
namespace {

struct ValidateOptions {
  std::string folder;
  std::string engine{path_engine};
  int jobs = 0;  // processes; 0: as many as cores may be used
  bool json = false;
};

struct Validated {
  PublishedTable table;
  std::vector<PublishedPrediction> predictions;  // one per row, without plans
  double mean_percent = 0;
  double worst_percent = 0;
  double worst_points = 0;  // of the table's metric
};

bool within(const ErrorBounds& bounds, const Validated& validated) {
  const auto holds = [](double found, double bound) { return bound == 0 || found <= bound; };
  return holds(validated.mean_percent, bounds.mean_percent) && holds(validated.worst_percent, bounds.worst_percent) &&
         holds(validated.worst_points, bounds.worst_points);
}

bool within_goal(const Validated& validated) { return within(validated.table.goal, validated); }

// No step back: a goal that was never reached is none where a ratchet says how far the table came.
bool holds(const Validated& validated) {
  const PublishedTable& table = validated.table;
  return within(table.ratchet == ErrorBounds{} ? table.goal : table.ratchet, validated);
}

std::string shipped_tables() {
  for (const std::filesystem::path& shipped : shipped_scenarios()) {
    if (std::filesystem::is_directory(shipped / "published")) return (shipped / "published").string();
  }
  throw InputError("FOLDER", "is required: no published tables are installed", "plumb validate FOLDER");
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_regular_file(folder, error)) return {folder};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  if (error) throw InputError(folder, "cannot be read: " + error.message(), "plumb validate scenarios/published");
  if (files.empty()) throw InputError(folder, "has no .yaml files", "plumb validate scenarios/published");
  std::ranges::sort(files);
  return files;
}

// A row of some table.
struct RowToPredict {
  std::size_t table = 0;
  std::size_t row = 0;
};

void take(Validated& validated, const PublishedRow& row, const PublishedPrediction& prediction) {
  validated.predictions.push_back(prediction);
  if (!row.measured) return;
  const auto measured =
      std::ranges::count_if(validated.table.rows, [](const auto& one) { return one.measured.has_value(); });
  const double percent = 100 * std::abs(prediction.error);
  validated.mean_percent += percent / static_cast<double>(measured);
  validated.worst_percent = std::max(validated.worst_percent, percent);
  validated.worst_points = std::max(validated.worst_points, std::abs(prediction.value - *row.measured));
}

std::vector<Validated> validate(const ValidateOptions& options) {
  const Evaluator evaluator = find_engine(options.engine);
  std::vector<Validated> all;
  std::vector<RowToPredict> rows;
  for (const std::filesystem::path& file : files_in(options.folder.empty() ? shipped_tables() : options.folder)) {
    all.push_back({.table = read_published(file), .predictions = {}});
    for (std::size_t row = 0; row < all.back().table.rows.size(); ++row) rows.push_back({all.size() - 1, row});
  }
  Progress progress("predicting published rows");
  const Workers workers{
      .processes = options.jobs > 0 ? options.jobs : usable_cores(), .stop = nullptr, .done = [&](std::size_t done) {
        progress.update(static_cast<std::int64_t>(done), static_cast<std::int64_t>(rows.size()));
      }};
  const auto answers = in_workers(workers, rows.size(), [&](std::size_t n) {
    const PublishedTable& table = all[rows[n].table].table;
    const PublishedPrediction found = predict_published(table, table.rows[rows[n].row], evaluator);
    std::string bytes;
    for (const Seconds time : {found.iteration, found.compute, found.after, found.measured}) append_bytes(bytes, time);
    append_bytes(bytes, found.value);
    append_bytes(bytes, found.error);
    return bytes;
  });
  for (std::size_t n = 0; n < rows.size(); ++n) {
    PublishedPrediction found;
    std::size_t at = 0;
    for (Seconds* time : {&found.iteration, &found.compute, &found.after, &found.measured}) {
      *time = take_bytes<Seconds>(*answers[n], at);
    }
    found.value = take_bytes<double>(*answers[n], at);
    found.error = take_bytes<double>(*answers[n], at);
    Validated& validated = all[rows[n].table];
    take(validated, validated.table.rows[rows[n].row], found);
  }
  return all;
}

Json to_json(const Validated& validated) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < validated.predictions.size(); ++i) {
    const PublishedPrediction& prediction = validated.predictions[i];
    const PublishedRow& row = validated.table.rows[i];
    Json entry = {{"name", row.name}, {"predicted_s", prediction.iteration.value}};
    if (row.measured) {
      if (is_time(validated.table.metric)) entry["measured_s"] = prediction.measured.value;
      entry["measured"] = *row.measured;
      entry["predicted"] = prediction.value;
      entry["error_fraction"] = prediction.error;
    }
    entry["compute_s"] = prediction.compute.value;
    entry["after_s"] = prediction.after.value;
    rows.push_back(entry);
  }
  return {{"table", validated.table.title},
          {"file", validated.table.file.string()},
          {"metric", published_metric_names().at(static_cast<std::size_t>(validated.table.metric))},
          {"mean_error_fraction", validated.mean_percent / 100},
          {"worst_error_fraction", validated.worst_percent / 100},
          {"worst_difference", validated.worst_points},
          {"within_goal", within_goal(validated)},
          {"within_ratchet", within(validated.table.ratchet, validated)},
          {"rows", rows}};
}

// In seconds, or where rows are compared in the table's metric.
std::string measurement_text(const PublishedTable& table, double value, Seconds iteration) {
  switch (table.metric) {
    case PublishedMetric::speedup:
      return fmt::format("{:.2f} x", value);
    case PublishedMetric::gain_percent:
      return fmt::format("{:+.1f}%", value);
    case PublishedMetric::scaling_percent:
      return fmt::format("{:.1f}%", value);
    case PublishedMetric::states_gb:
      return fmt::format("{:.4g} GB", value);
    default:
      return to_text(iteration);
  }
}

std::vector<std::string> cells(const PublishedTable& table, const PublishedRow& row,
                               const PublishedPrediction& prediction) {
  const std::string compute = to_text(prediction.compute);
  const std::string after = to_text(prediction.after);
  if (!row.measured) return {row.name, "", to_text(prediction.iteration), "", compute, after};
  return {row.name,
          measurement_text(table, *row.measured, prediction.measured),
          measurement_text(table, prediction.value, prediction.iteration),
          fmt::format("{:+.1f}%", 100 * prediction.error),
          compute,
          after};
}

std::string bounds_text(const ErrorBounds& bounds) {
  std::vector<std::string> texts;
  if (bounds.mean_percent > 0) texts.push_back(fmt::format("mean {:g}%", bounds.mean_percent));
  if (bounds.worst_percent > 0) texts.push_back(fmt::format("worst {:g}%", bounds.worst_percent));
  if (bounds.worst_points > 0) texts.push_back(fmt::format("at most {:g} points off", bounds.worst_points));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string goal_text(const Validated& validated) {
  const PublishedTable& table = validated.table;
  std::string text;
  if (table.goal != ErrorBounds{}) {
    text = fmt::format("; goal: {}: {}", bounds_text(table.goal), within_goal(validated) ? "reached" : "MISSED");
  }
  if (!within(table.ratchet, validated)) {
    text += fmt::format("; WORSE than it was: {}", bounds_text(table.ratchet));
  }
  return text;
}

void print(const Validated& validated, bool colour) {
  const PublishedTable& table = validated.table;
  std::cout << fmt::format("{} ({})\n", table.title, table.file.string());
  Table text{.header = {"row", "measured", "predicted", "error", "compute", "after"}, .rows = {}};
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    text.rows.push_back(cells(table, table.rows[i], validated.predictions[i]));
  }
  std::cout << to_text(text, colour);
  std::cout << fmt::format("  mean {:.2f}%, worst {:.1f}%", validated.mean_percent, validated.worst_percent);
  if (table.goal.worst_points > 0) std::cout << fmt::format(" of the time, {:.1f} points", validated.worst_points);
  std::cout << goal_text(validated) << "\n\n";
}

struct Summary {
  std::ptrdiff_t tables = 0;
  std::ptrdiff_t reached = 0;
  std::ptrdiff_t missed = 0;
  std::ptrdiff_t steps_back = 0;
};

Summary summary_of(const std::vector<Validated>& all) {
  const auto count = [&](const auto& which) { return std::ranges::count_if(all, which); };
  const auto has_goal = [](const Validated& one) { return one.table.goal != ErrorBounds{}; };
  return {.tables = std::ssize(all),
          .reached = count([&](const Validated& one) { return has_goal(one) && within_goal(one); }),
          .missed = count([&](const Validated& one) { return has_goal(one) && !within_goal(one); }),
          .steps_back = count([](const Validated& one) { return !holds(one); })};
}

// "14 tables: 9 goals reached, 5 missed, no step back"
std::string summary_text(const Summary& summary) {
  return fmt::format("{} {}: {} {} reached, {} missed, {}", summary.tables, summary.tables == 1 ? "table" : "tables",
                     summary.reached, summary.reached == 1 ? "goal" : "goals", summary.missed,
                     summary.steps_back == 0
                         ? "no step back"
                         : fmt::format("{} {} back", summary.steps_back, summary.steps_back == 1 ? "step" : "steps"));
}

ExitStatus validate_command(const ValidateOptions& options) {
  const std::vector<Validated> all = validate(options);
  const Summary summary = summary_of(all);
  const bool good = summary.steps_back == 0;
  if (options.json) {
    Json tables = Json::array();
    for (const Validated& validated : all) tables.push_back(to_json(validated));
    std::cout << to_text(Json{{"within_goals", std::ranges::all_of(all, within_goal)},
                              {"within_ratchets", good},
                              {"goals_reached", summary.reached},
                              {"goals_missed", summary.missed},
                              {"steps_back", summary.steps_back},
                              {"tables", tables}});
  } else {
    for (const Validated& validated : all) print(validated, colour_allowed(Stream::out));
    std::cout << "compute: of the busiest rank; after: from the last backward to the end of the step. Every row uses\n"
                 "its machine's and software's numbers as they stand in their files; none is tuned to a row.\n\n"
              << summary_text(summary) << '\n';
  }
  return good ? ExitStatus::done : ExitStatus::answer_is_no;
}

}  // namespace

void add_validate(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "validate",
                                  "Predicts published measurements. Exits with status 1 if a table is worse than its "
                                  "recorded error, or misses a goal without one.",
                                  "plumb validate\nplumb validate scenarios/published");
  const auto options = std::make_shared<ValidateOptions>();
  command.add_option("FOLDER", options->folder,
                     "Folder of published tables, or one table; default: those that plumb ships.");
  command.add_option("--engine", options->engine, "Engine that predicts.")
      ->type_name("path|simgrid")
      ->capture_default_str();
  command.add_option("--jobs", options->jobs, "Processes that predict; default: the usable cores.")
      ->check(whole_number(1, 1024));
  command.add_flag("--json", options->json, "Prints one JSON object.");
  command.callback([&body, options] { body = [options] { return validate_command(*options); }; });
}

}  // namespace plumb::sim
