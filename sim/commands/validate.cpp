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
#include "common/base/error.hpp"
#include "common/base/json.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/plan/published.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {
namespace {

struct Options {
  std::string folder;
  std::string engine{path_engine};
  bool json = false;
};

struct Validated {
  PublishedTable table;
  std::vector<PublishedPrediction> predictions;  // one per row
  double mean_percent = 0;
  double worst_percent = 0;
};

bool within_goal(const Validated& validated) {
  const PublishedTable& table = validated.table;
  const auto holds = [](double found, double goal) { return goal == 0 || found <= goal; };
  return holds(validated.mean_percent, table.mean_goal_percent) &&
         holds(validated.worst_percent, table.worst_goal_percent);
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

std::vector<Validated> validate(const Options& options) {
  const Evaluator evaluator = find_engine(options.engine);
  std::vector<Validated> all;
  std::size_t total = 0;
  for (const std::filesystem::path& file : files_in(options.folder)) {
    all.push_back({.table = read_published(file), .predictions = {}});
    total += all.back().table.rows.size();
  }
  Progress progress("predicting published rows");
  int done = 0;
  for (Validated& validated : all) {
    for (const PublishedRow& row : validated.table.rows) {
      validated.predictions.push_back(predict_published(validated.table, row, evaluator));
      const double percent = 100 * std::abs(validated.predictions.back().error);
      validated.mean_percent += percent / static_cast<double>(validated.table.rows.size());
      validated.worst_percent = std::max(validated.worst_percent, percent);
      progress.update(++done, static_cast<int>(total));
    }
  }
  return all;
}

Json to_json(const Validated& validated) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < validated.predictions.size(); ++i) {
    const PublishedPrediction& prediction = validated.predictions[i];
    const PublishedRow& row = validated.table.rows[i];
    rows.push_back({{"name", row.name},
                    {"measured_s", measured_time(validated.table, row).value},
                    {"predicted_s", prediction.iteration.value},
                    {"error_fraction", prediction.error},
                    {"compute_s", prediction.compute.value},
                    {"after_s", prediction.after.value}});
  }
  return {{"table", validated.table.title},
          {"file", validated.table.file.string()},
          {"mean_error_fraction", validated.mean_percent / 100},
          {"worst_error_fraction", validated.worst_percent / 100},
          {"within_goal", within_goal(validated)},
          {"rows", rows}};
}

void print(const Validated& validated, bool colour) {
  const PublishedTable& table = validated.table;
  std::cout << fmt::format("{} ({})\n", table.title, table.file.string());
  Table text{.header = {"row", "measured", "predicted", "error", "compute", "after"}, .rows = {}};
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const PublishedPrediction& prediction = validated.predictions[i];
    text.rows.push_back({table.rows[i].name, to_text(measured_time(table, table.rows[i])),
                         to_text(prediction.iteration), fmt::format("{:+.1f}%", 100 * prediction.error),
                         to_text(prediction.compute), to_text(prediction.after)});
  }
  std::cout << to_text(text, colour);
  std::cout << fmt::format("  mean {:.2f}%, worst {:.1f}%", validated.mean_percent, validated.worst_percent);
  if (table.mean_goal_percent > 0) {
    std::cout << fmt::format("; goal: mean {:g}%, worst {:g}%: {}", table.mean_goal_percent, table.worst_goal_percent,
                             within_goal(validated) ? "reached" : "MISSED");
  }
  std::cout << "\n\n";
}

ExitStatus validate_command(const Options& options) {
  const std::vector<Validated> all = validate(options);
  const bool good = std::ranges::all_of(all, within_goal);
  if (options.json) {
    Json tables = Json::array();
    for (const Validated& validated : all) tables.push_back(to_json(validated));
    std::cout << to_text(Json{{"within_goals", good}, {"tables", tables}});
  } else {
    for (const Validated& validated : all) print(validated, colour_allowed(Stream::out));
    std::cout << "compute: of the busiest rank; after: from the last backward to the end of the step. Every row uses\n"
                 "its machine's and software's numbers as they stand in their files; none is tuned to a row.\n";
  }
  return good ? ExitStatus::done : ExitStatus::answer_is_no;
}

}  // namespace

void add_validate(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "validate",
                                  "Predicts published measurements. Exit status 1: a table's error is above its goal.",
                                  "plumb validate scenarios/published");
  const auto options = std::make_shared<Options>();
  command.add_option("FOLDER", options->folder, "Where the published tables stand, or one table.")->required();
  command.add_option("--engine", options->engine, "What predicts: path or simgrid.")->capture_default_str();
  command.add_flag("--json", options->json, "Writes one JSON object to standard output.");
  command.callback([&body, options] { body = [options] { return validate_command(*options); }; });
}

}  // namespace plumb::sim
