#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/planner/tensor_comparison.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/shipped.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/predict.hpp"

namespace plumb::sim {
namespace {

struct TensorCompareOptions {
  std::string scenario;
  std::string engine{path_engine};
  bool markdown = false;
  bool json = false;
};

std::string name_of(const ComparedTensor& row) {
  const TensorLayout& tensor = row.tensor;
  const int barriers = row.vocabulary_barriers;
  if (tensor.degree == 1) return barriers == 0 ? "vocabulary whole" : fmt::format("vocabulary {}", barriers);
  std::string kind = name_of(tensor.kind);
  if (tensor.kind == TensorKind::two_and_half_d) kind += fmt::format(", depth {}", tensor.depth);
  return kind + (tensor.sequence_parallel ? ", sp" : "") + (tensor.asynchronous ? ", async" : "") +
         (tensor.reshard_after_forward ? ", reshard" : "") +
         (barriers > 0 ? fmt::format(", vocabulary {}", barriers) : "");
}

Bytes rounded(double bytes) { return {std::llround(bytes)}; }

Json to_json(const ComparedTensor& row) {
  Json object{{"kind", name_of(row.tensor.kind)},
              {"degree", row.tensor.degree},
              {"depth", row.tensor.depth},
              {"sequence_parallel", row.tensor.sequence_parallel},
              {"asynchronous", row.tensor.asynchronous},
              {"reshard_after_forward", row.tensor.reshard_after_forward},
              {"vocabulary_barriers", row.vocabulary_barriers},
              {"built", row.best.built},
              {"reason", row.best.reason}};
  if (!row.best.hint.empty()) object["hint"] = row.best.hint;
  if (!row.best.built) return object;
  object["microbatch"] = row.best.choice.microbatch;
  object["recompute"] = describe(row.best.plan.training.recompute);
  object["iteration_s"] = row.best.iteration.value;
  object["layer"] = {{"forward_bytes", rounded(row.layer.forward).value},
                     {"input_gradient_bytes", rounded(row.layer.input_gradient).value},
                     {"weight_gradient_bytes", rounded(row.layer.weight_gradient).value},
                     {"across_machines_bytes", rounded(row.across).value},
                     {"once_bytes", rounded(row.layer.once).value}};
  object["vocabulary_bytes"] = rounded(row.joined).value;
  object["tensor_communication_s"] = row.tensor_time.on_its_way.value;
  object["tensor_exposed_s"] = exposed(row.tensor_time).value;
  object["exposed_communication_s"] = row.exposed.value;
  object["peak_bytes"] = row.best.peak_bytes.value;
  object["fits"] = row.best.fits;
  return object;
}

bool divides_any(const std::vector<ComparedTensor>& rows) {
  return std::ranges::any_of(rows, [](const ComparedTensor& row) { return row.vocabulary_barriers > 0; });
}

std::vector<std::string> cells_of(const ComparedTensor& row, const ComparedTensor& best, bool divided) {
  const double slower = row.best.iteration / best.best.iteration - 1;
  std::vector<std::string> cells = {name_of(row),
                                    std::to_string(row.best.choice.microbatch),
                                    to_text(rounded(row.layer.forward)),
                                    to_text(rounded(row.layer.input_gradient)),
                                    to_text(rounded(row.layer.weight_gradient)),
                                    to_text(rounded(row.across))};
  if (divided) cells.push_back(to_text(rounded(row.joined)));
  cells.insert(cells.end(), {to_text(row.best.iteration), &row == &best ? "" : fmt::format("{:+.1f}%", slower * 100),
                             to_text(exposed(row.tensor_time)), to_text(row.exposed),
                             to_text(row.best.peak_bytes) + (row.best.fits ? "" : ", too much")});
  return cells;
}

std::vector<std::string> header(bool divided) {
  std::vector<std::string> names = {"tensor layout", "microbatch", "F",           "I",       "W",   "across",
                                    "step",          "to best",    "its exposed", "exposed", "peak"};
  if (divided) names.insert(std::ranges::find(names, "step"), "parts");
  return names;
}

std::string reason_text(const ComparedTensor& row) {
  return row.best.hint.empty() ? row.best.reason : row.best.reason + "; " + row.best.hint;
}

void print(const std::vector<ComparedTensor>& rows) {
  const bool divided = divides_any(rows);
  Table table{.header = header(divided), .rows = {}};
  for (const ComparedTensor& row : rows) {
    if (row.best.built) table.rows.push_back(cells_of(row, rows.front(), divided));
  }
  std::cout
      << to_text(table, colour_allowed(Stream::out))
      << "\n  Best first. F, I, W: what a rank receives from its tensor group for one layer and microbatch;\n"
         "  across: of these three what goes over ranks on several machines.\n"
         "  Its exposed: collectives of the tensor group that no computing hides, in a step; exposed: and all\n"
         "  other communication. Both are means of the pipeline's ranks.\n"
      << (divided
              ? "  Vocabulary: divided over the pipeline with so many barriers. Parts: what its parts exchange of one\n"
                "  microbatch, as a rank receives it, mean of the ranks.\n"
              : "");
  bool first = true;
  std::size_t width = 14;
  for (const ComparedTensor& row : rows) width = std::max(width, name_of(row).size());
  for (const ComparedTensor& row : rows) {
    if (row.best.built) continue;
    if (first) std::cout << "\n  Could not be built:\n";
    first = false;
    std::cout << fmt::format("  {:<{}} {}\n", name_of(row), width, reason_text(row));
  }
}

void print_markdown(const std::vector<ComparedTensor>& rows) {
  std::string names = "|";
  std::string rule = "|";
  const bool divided = divides_any(rows);
  const std::vector<std::string> columns = header(divided);
  for (const std::string& name : columns) {
    names += " " + name + " |";
    rule += name == columns.front() ? " --- |" : " --: |";
  }
  std::cout << names << '\n' << rule << '\n';
  for (const ComparedTensor& row : rows) {
    std::string line = "|";
    if (row.best.built) {
      for (const std::string& cell : cells_of(row, rows.front(), divided)) line += " " + cell + " |";
    } else {
      line += " " + name_of(row) + " | not built: " + reason_text(row) + " |";
      for (std::size_t column = 2; column < columns.size(); ++column) line += " |";
    }
    std::cout << line << '\n';
  }
}

// A comparison of nothing is no answer.
void require_built(const std::vector<ComparedTensor>& rows) {
  if (rows.front().best.built) return;
  std::string reasons = "none could be built";
  for (const ComparedTensor& row : rows) reasons += fmt::format("\n  {}: {}", name_of(row), reason_text(row));
  throw InputError("plumb layout compare", reasons);
}

ExitStatus compare(const TensorCompareOptions& options) {
  const Scenario scenario = read_scenario(options.scenario);
  const std::vector<ComparedTensor> rows = compare_tensor_layouts(scenario, find_engine(options.engine));
  require_built(rows);
  if (options.json) {
    Json list = Json::array();
    for (const ComparedTensor& row : rows) list.push_back(to_json(row));
    std::cout << to_text(Json{{"layouts", list}, {"memory_bytes", scenario.cluster.machine.device.memory.value.value}});
  } else if (options.markdown) {
    print_markdown(rows);
  } else {
    std::cout << fmt::format("{}: {} on {} ranks of {}, tensor degree {}, batch {} × {} tokens\nengine {}\n\n",
                             scenario.name, scenario.model.name, scenario.cluster.ranks, scenario.cluster.machine.name,
                             scenario.layout.tensor.degree, scenario.training.global_batch, scenario.training.sequence,
                             engine_text(options.engine));
    print(rows);
  }
  return ExitStatus::done;
}

}  // namespace

void add_layout(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "layout", "Compares tensor layouts.", "plumb layout compare tensor-grids");
  command.require_subcommand(1);
  CLI::App& compare_command = add_command(
      command, "compare",
      "Compares the tensor layouts that a scenario's tensor degree allows (1d, 2d, 2.5d, 3d), and the vocabulary "
      "whole and sharded over the pipeline: traffic, step and memory.",
      "plumb layout compare tensor-grids");
  const auto options = std::make_shared<TensorCompareOptions>();
  compare_command
      .add_option("SCENARIO", options->scenario,
                  "A scenario with one layout and a tensor degree above one, or with a sharded or open vocabulary.")
      ->required();
  compare_command.add_option("--engine", options->engine, "Engine that predicts.")
      ->type_name("simgrid|path")
      ->capture_default_str();
  compare_command.add_flag("--markdown", options->markdown, "Prints the table in Markdown.");
  compare_command.add_flag("--json", options->json, "Prints one JSON object.");
  compare_command.callback([&body, options] {
    body = [options] {
      options->scenario = input_file(options->scenario, {ShippedKind::scenario});
      return compare(*options);
    };
  });
}

}  // namespace plumb::sim
