#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/graph/memory.hpp"
#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/schedule/weight_versions.hpp"
#include "common/timeline/statistics.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/schedule_input.hpp"
#include "sim/commands/schedule_options.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {
namespace {

struct CompareOptions : ShapeOptions {
  std::vector<std::string> arguments;  // names; a scenario stands before them
  TimesOptions times;
  std::string profile;
  std::string engine{path_engine};
  bool markdown = false;
  bool json = false;
};

// One row of a comparison, built or not.
struct Row {
  const ScheduleEntry* entry = nullptr;
  ScheduleShape shape = {};
  std::string reason = {};      // the reason why it was not built; empty if it was
  std::string hint = {};        // remedy for that
  double time = 0;              // the makespan in the unit of --times, or the step in seconds
  Bubbles bubbles = {};         // fractions alone for a scenario
  double peak_activations = 0;  // on the fullest rank
  int copies = 1;               // replicas
  int versions = 1;             // versions of the weights, on the rank that stores most
  // With a scenario:
  std::string split = {};
  std::int64_t microbatch = 0;
  Bytes peak_bytes = {};
  bool fits = true;
  std::string provenance = {};  // source of the costs
};

bool faster(const Row& a, const Row& b) {
  if (a.reason.empty() != b.reason.empty()) return a.reason.empty();
  if (a.fits != b.fits) return a.fits;
  if (a.time != b.time) return a.time < b.time;
  if (a.peak_bytes != b.peak_bytes) return a.peak_bytes < b.peak_bytes;
  return a.peak_activations < b.peak_activations;
}

std::vector<const ScheduleEntry*> entries_named(const std::vector<std::string>& names) {
  std::vector<const ScheduleEntry*> entries;
  const bool all = names.empty() || std::find(names.begin(), names.end(), "all") != names.end();
  if (all) {
    for (const ScheduleEntry& entry : schedule_entries()) entries.push_back(&entry);
    return entries;
  }
  for (const std::string& name : names) {
    const ScheduleEntry* entry = &find_schedule(name);
    if (std::find(entries.begin(), entries.end(), entry) == entries.end()) entries.push_back(entry);
  }
  return entries;
}

void describe_memory(Row& row, const Schedule& schedule) {
  const std::vector<double> peaks = peak_activations(schedule);
  const std::vector<int> versions = weight_versions_kept(schedule);
  row.peak_activations = *std::max_element(peaks.begin(), peaks.end());
  row.versions = *std::max_element(versions.begin(), versions.end());
  row.copies = replicas(schedule);
}

// Shapes to compare of a schedule: zb-auto is two schedules, with one chunk a rank and with several.
std::vector<CompareOptions> variants_of(const ScheduleEntry& entry, const CompareOptions& options) {
  std::vector<CompareOptions> variants = {options};
  if (!entry.uses_times || options.chunks > 0) return variants;
  variants.front().chunks = 1;
  variants.push_back(options);
  return variants;
}

Row measured_row(const ScheduleEntry& entry, const CompareOptions& options, const ShareTimes& times) {
  Row row{.entry = &entry, .shape = usable_shape_for(entry, options)};
  try {
    const MeasuredSchedule measured = measure(generate(entry, row.shape, times), times);
    row.time = measured.step.duration.value;
    row.bubbles = measured.bubbles;
    describe_memory(row, measured.schedule);
  } catch (const InputError& error) {
    row.reason = error.problem();
    row.hint = error.hint();
  }
  return row;
}

// The scenario's own splits and microbatches with this schedule: the fastest that fits.
Row predicted_row(const ScheduleEntry& entry, const CompareOptions& options, Scenario scenario,
                  const Evaluator& evaluator) {
  ShapeOptions asked = options;
  asked.ranks = scenario.layout.pipeline;
  asked.microbatches = 1;  // that follow from the batch
  Row row{.entry = &entry, .shape = usable_shape_for(entry, asked)};
  scenario.schedules = {{.name = entry.name,
                         .chunks = row.shape.chunks,
                         .slices = row.shape.slices,
                         .group = row.shape.group,
                         .update_every = row.shape.update_every,
                         .overlap = row.shape.overlap}};
  const PlanningResult result = plan_scenario(scenario, evaluator);
  const auto own = std::find_if(result.candidates.begin(), result.candidates.end(),
                                [](const Candidate& candidate) { return candidate.own; });
  const Candidate& best = own == result.candidates.end() ? result.candidates.front() : *own;
  row.split = describe(best.choice.split);
  row.microbatch = best.choice.microbatch;
  row.fits = best.fits;
  if (!best.built) {
    row.reason = best.reason;
    return row;
  }
  row.shape.microbatches = whole_microbatches(best.plan.schedule);
  row.shape.vocabulary_barriers = best.plan.schedule.vocabulary_barriers;
  row.time = best.iteration.value;
  row.peak_bytes = best.peak_bytes;
  row.provenance = best.plan.costs.provenance;
  const Timeline timeline = evaluator(best.plan);
  const StepStatistics statistics = step_statistics(median_step(timeline), best.plan.schedule.ranks);
  row.bubbles.makespan_fraction = statistics.bubble_makespan_fraction;
  row.bubbles.span_fraction = statistics.bubble_span_fraction;
  describe_memory(row, best.plan.schedule);
  return row;
}

Json to_json(const Row& row, bool scenario) {
  Json object{{"schedule", row.entry->name},           {"chunks", row.shape.chunks},  {"slices", row.shape.slices},
              {"requirement", row.entry->requirement}, {"built", row.reason.empty()}, {"reason", row.reason}};
  if (!row.hint.empty()) object["hint"] = row.hint;
  if (!row.reason.empty()) return object;
  object["microbatches"] = row.shape.microbatches;
  if (scenario) {
    object["iteration_s"] = row.time;
    object["bubble_makespan_fraction"] = row.bubbles.makespan_fraction;
    object["bubble_span_fraction"] = row.bubbles.span_fraction;
    object["peak_bytes"] = row.peak_bytes.value;
    object["fits"] = row.fits;
    object["split"] = row.split;
    object["microbatch"] = row.microbatch;
    object["provenance"] = row.provenance;
  } else {
    object["makespan"] = row.time;
    object["bubble_makespan"] = row.bubbles.makespan.value;
    object["bubble_span"] = row.bubbles.span.value;
  }
  object["peak_activations"] = row.peak_activations;
  object["vocabulary_barriers"] = row.shape.vocabulary_barriers;
  object["replicas"] = row.copies;
  object["weight_versions"] = row.versions;
  object["asynchronous"] = row.entry->updates_within;
  return object;
}

std::string reason_text(const Row& row) { return row.hint.empty() ? row.reason : row.reason + "; " + row.hint; }

std::string weights_text(const Row& row) {
  if (row.copies > 1) return fmt::format("×{}", row.copies);
  return row.versions > 1 ? fmt::format("{} versions", row.versions) : "×1";
}

std::string shape_text(const Row& row) {
  std::string text = row.shape.slices > 1   ? fmt::format("{} slices", row.shape.slices)
                     : row.shape.chunks > 1 ? fmt::format("{} chunks", row.shape.chunks)
                                            : "";
  const int barriers = row.shape.vocabulary_barriers;
  if (barriers > 0) text += (text.empty() ? "" : ", ") + fmt::format("vocabulary{}", barriers);
  return text;
}

std::string to_best_text(const Row& row, const Row& best) {
  if (&row == &best || !(best.time > 0)) return "";
  return fmt::format("{:+.1f}%", (row.time / best.time - 1) * 100);
}

Table table_of(const std::vector<Row>& rows, bool scenario) {
  Table table{.header = scenario
                            ? std::vector<std::string>{"schedule", "", "split", "microbatch", "step", "to best",
                                                       "bubble", "own span", "activations", "peak", "weights", "needs"}
                            : std::vector<std::string>{"schedule", "", "makespan", "to best", "bubble", "own span",
                                                       "activations", "weights", "needs"},
              .rows = {},
              .left_columns = scenario ? 3U : 2U,
              .left_last = true};
  for (const Row& row : rows) {
    if (!row.reason.empty()) continue;
    std::vector<std::string> cells = {row.entry->name + (row.entry->updates_within ? " *" : ""), shape_text(row)};
    if (scenario) {
      cells.insert(cells.end(), {row.split, std::to_string(row.microbatch), to_text(Seconds{row.time}),
                                 to_best_text(row, rows.front()), percent_text(row.bubbles.makespan_fraction),
                                 percent_text(row.bubbles.span_fraction), fmt::format("{:.4g}", row.peak_activations),
                                 to_text(row.peak_bytes) + (row.fits ? "" : ", too much"), weights_text(row)});
    } else {
      cells.insert(cells.end(),
                   {fmt::format("{:.6g}", row.time), to_best_text(row, rows.front()),
                    fmt::format("{:.6g}", row.bubbles.makespan.value), fmt::format("{:.6g}", row.bubbles.span.value),
                    fmt::format("{:.4g}", row.peak_activations), weights_text(row)});
    }
    cells.push_back(row.entry->requirement);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

void print(const std::vector<Row>& rows, bool scenario) {
  std::cout << to_text(table_of(rows, scenario), colour_allowed(Stream::out));
  std::cout
      << "\n  Best first. Bubble: of the makespan" << (scenario ? ", with the optimizer" : "")
      << "; own span: of the longest rank's own span. Activations: of the"
         "\n  fullest rank, in one rank's share of a microbatch. Weights: copies (of two replicas) or versions.\n";
  const auto asynchronous = [](const Row& row) { return row.reason.empty() && row.entry->updates_within; };
  if (std::any_of(rows.begin(), rows.end(), asynchronous)) {
    std::cout
        << "  * updates weights within the batch: its bubble counts once at both ends of a run, not in each step.\n";
  }
  bool first = true;
  for (const Row& row : rows) {
    if (row.reason.empty()) continue;
    if (first) std::cout << "\n  Could not be built:\n";
    first = false;
    std::cout << fmt::format("  {:<18} {}\n", row.entry->name, reason_text(row));
  }
}

void print_markdown(const std::vector<Row>& rows, bool scenario) {
  std::cout << "| schedule | paper | bubble | memory | needs | predicted with | " << (scenario ? "step" : "makespan")
            << " | to the best | bubble there | " << (scenario ? "peak memory" : "activations") << " |\n"
            << "| --- | --- | --- | --- | --- | --- | --: | --: | --: | --: |\n";
  for (const Row& row : rows) {
    const ScheduleEntry& entry = *row.entry;
    const bool divided = row.shape.vocabulary_barriers > 0 && entry.divides_vocabulary;
    const std::string& bubble = divided ? entry.divided_bubble : entry.bubble;
    std::cout << fmt::format("| `{}` | {} | {} | {} | {} | ", entry.name, entry.source,
                             bubble.empty() ? "no form known" : bubble, divided ? entry.divided_memory : entry.memory,
                             entry.requirement);
    if (!row.reason.empty()) {
      std::cout << fmt::format("not built: {} | | | | |\n", reason_text(row));
      continue;
    }
    std::string with = fmt::format("{} microbatches", row.shape.microbatches);
    if (!shape_text(row).empty()) with += ", " + shape_text(row);
    if (scenario) with += ", split " + row.split;
    std::cout << fmt::format("{} | {} | {} | {} | {} |\n", with,
                             scenario ? to_text(Seconds{row.time}) : fmt::format("{:.6g}", row.time),
                             to_best_text(row, rows.front()), percent_text(row.bubbles.makespan_fraction),
                             scenario ? to_text(row.peak_bytes) + (row.fits ? "" : ", does not fit")
                                      : fmt::format("{:.4g}", row.peak_activations));
  }
}

// A comparison of nothing is no answer.
void require_built(const std::vector<Row>& rows) {
  if (rows.front().reason.empty()) return;
  if (rows.size() == 1)
    throw InputError("schedule " + rows.front().entry->name, rows.front().reason, rows.front().hint);
  std::string reasons = "none could be built";
  for (const Row& row : rows) reasons += fmt::format("\n  {}: {}", row.entry->name, reason_text(row));
  throw InputError("plumb schedule compare", reasons);
}

ExitStatus report(std::vector<Row> rows, bool scenario, const CompareOptions& options) {
  std::stable_sort(rows.begin(), rows.end(), faster);
  require_built(rows);
  if (options.json) {
    Json list = Json::array();
    for (const Row& row : rows) list.push_back(to_json(row, scenario));
    std::cout << to_text(Json{{"schedules", list}});
  } else if (options.markdown) {
    print_markdown(rows, scenario);
  } else {
    print(rows, scenario);
  }
  return ExitStatus::done;
}

ExitStatus compare_on_times(const CompareOptions& options) {
  if (options.ranks == 0 || options.microbatches == 0) {
    throw InputError(options.ranks == 0 ? "--ranks" : "--microbatches", "is required where no scenario is given",
                     "plumb schedule compare all --ranks 4 --microbatches 8 --times 1,1,1");
  }
  for (const auto& [name, given] :
       {std::pair{"--profile", !options.profile.empty()}, std::pair{"--engine", options.engine != path_engine}}) {
    if (given) throw InputError(name, "belongs to a scenario, and none is given");
  }
  const ShareTimes times = parse_times(options.times);
  require_head(options.times, options.vocabulary > 0);
  std::vector<Row> rows;
  for (const ScheduleEntry* entry : entries_named(options.arguments)) {
    for (const CompareOptions& variant : variants_of(*entry, options)) {
      rows.push_back(measured_row(*entry, variant, times));
    }
  }
  return report(std::move(rows), false, options);
}

ExitStatus compare_on_scenario(const CompareOptions& options) {
  for (const auto& [name, given] :
       {std::pair{"--ranks", options.ranks != 0}, std::pair{"--microbatches", options.microbatches != 0},
        std::pair{"--times", !options.times.times.empty()},
        std::pair{"--head-times", !options.times.head_times.empty()},
        std::pair{"--vocabulary", options.vocabulary != 0}, std::pair{"--hidden", options.times.hidden > 0}}) {
    if (given) throw InputError(name, "follows from the scenario " + options.arguments.front(), "leave it out");
  }
  const std::vector<const ScheduleEntry*> entries =
      entries_named({options.arguments.begin() + 1, options.arguments.end()});
  const Scenario scenario =
      read_scenario(input_file(options.arguments.front(), {ShippedKind::scenario}), {.profile = options.profile});
  const Evaluator evaluator = find_engine(options.engine);
  std::vector<Row> rows;
  {
    Progress progress("comparing schedules");
    int done = 0;
    for (const ScheduleEntry* entry : entries) {
      for (const CompareOptions& variant : variants_of(*entry, options)) {
        rows.push_back(predicted_row(*entry, variant, scenario, evaluator));
      }
      progress.update(++done, static_cast<int>(entries.size()));
    }
  }
  if (!options.json && !options.markdown) {
    std::cout << fmt::format("{}: {} on {} ranks of {}, batch {} × {} tokens\n", scenario.name, scenario.model.name,
                             scenario.cluster.ranks, scenario.cluster.machine.name, scenario.training.global_batch,
                             scenario.training.sequence);
    const auto built = std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.reason.empty(); });
    const std::string costs = built == rows.end() ? "" : "costs from " + built->provenance + "; ";
    std::cout << fmt::format("{}engine {}\n\n", costs, engine_text(options.engine));
  }
  return report(std::move(rows), true, options);
}

bool is_scenario(const std::string& argument) {
  if (argument == "all" || is_registered(argument)) return false;
  if (argument == standard_stream || argument.ends_with(".yaml") || argument.ends_with(".yml")) return true;
  const auto shipped = shipped_files(ShippedKind::scenario);
  return std::filesystem::exists(argument) ||
         std::ranges::any_of(shipped, [&](const ShippedFile& one) { return one.name == argument; });
}

}  // namespace

void add_schedule_compare(CLI::App& parent, Body& body) {
  CLI::App& command = add_command(
      parent, "compare", "Compares schedules on the same costs: given times, or the costs of a scenario's stages.",
      "plumb schedule compare all --ranks 4 --microbatches 8 --times 1,1,1");
  const auto options = std::make_shared<CompareOptions>();
  command
      .add_option("NAME", options->arguments,
                  "Names of plumb list schedules, or all; with a scenario among them, at the costs of its stages.")
      ->required();
  add_shape(command, *options, false);
  add_times(command, options->times);
  command.add_option("--profile", options->profile, "With a scenario: costs that plumb-exec calibrate measured.")
      ->type_name("FILE");
  command.add_option("--engine", options->engine, "With a scenario: engine that predicts.")
      ->type_name("simgrid|path")
      ->capture_default_str();
  command.add_flag("--markdown", options->markdown, "Prints the table in Markdown, with formulas and papers.");
  command.add_flag("--json", options->json, "Prints one JSON object.");
  command.callback([&body, options] {
    std::vector<std::string>& arguments = options->arguments;
    const auto place = std::ranges::find_if(arguments, is_scenario);
    const bool scenario = place != arguments.end();
    if (scenario) std::rotate(arguments.begin(), place, place + 1);  // the first of them
    body = [options, scenario] { return scenario ? compare_on_scenario(*options) : compare_on_times(*options); };
  });
}

}  // namespace plumb::sim
