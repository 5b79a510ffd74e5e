#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/study/fit.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {
namespace {

struct FitArguments {
  std::string machine;
  std::vector<std::string> tables;
  bool all_tables_only = false;
  bool json = false;
};

struct Fit {
  Machine machine;
  std::vector<PublishedTable> tables;
  MachineRefit result;
};

constexpr const char* named_twice = "a table counts once: name it once";

bool is_among(const std::vector<PublishedTable>& tables, const std::filesystem::path& file) {
  return std::ranges::any_of(tables, [&](const PublishedTable& table) {
    std::error_code unreadable;  // read_published says it
    return std::filesystem::equivalent(table.file, file, unreadable);
  });
}

std::vector<PublishedTable> tables_of(const FitArguments& options, const YamlValue& file) {
  std::vector<PublishedTable> tables;
  for (const std::string& name : options.tables) {
    if (is_among(tables, name)) throw InputError("TABLE", "'" + name + "' is named twice", named_twice);
    tables.push_back(read_published(name));
  }
  if (!tables.empty()) return tables;
  for (const YamlValue& name : file.require("fit").require("tables").items()) {
    const std::filesystem::path path = find_file(name);
    if (is_among(tables, path)) name.fail("'" + name.text() + "' is named twice", named_twice);
    tables.push_back(read_published(path));
  }
  return tables;
}

// Names of the shipped machines that have a `fit`.
std::vector<std::string> machines_with_fit() {
  std::vector<std::string> names;
  for (const std::string& name : machine_names()) {
    const auto file = shipped_machine(name);
    if (file && YamlValue::load(*file).find("fit")) names.push_back(name);
  }
  return names;
}

void require_fit(const YamlValue& file) {
  if (file.find("fit")) return;
  std::string shipped;
  for (const std::string& name : machines_with_fit()) shipped += (shipped.empty() ? "" : ", ") + name;
  file.fail("key 'fit' is missing in the file: nothing says which numbers are free",
            "add fit: {tables: […], free: {…}}" +
                (shipped.empty() ? "" : "; of the machines that plumb ships, these have one: " + shipped));
}

Fit fit(const FitArguments& options) {
  const YamlValue file = YamlValue::load(input_file(options.machine, {ShippedKind::machine}));
  require_fit(file);
  const MachineFit asked = read_machine_fit(file);
  std::vector<PublishedTable> tables = tables_of(options, file);
  if (tables.empty()) file.require("fit").fail("there are no tables to fit on");
  // The peak alone depends on the precision, and the rows bring theirs.
  const ElementType precision = tables.front().rows.front().scenario.training.precision;
  Fit result{.machine = read_machine(file, precision), .tables = std::move(tables), .result = {}};
  Progress progress("looking at all rows");
  result.result =
      refit(result.machine, asked.free, result.tables,
            {.threads = usable_cores(),
             .leave_one_out = !options.all_tables_only,
             .progress = [&](const std::string&, int looks) { progress.update(looks, std::max(looks, 1000)); }});
  return result;
}

Json to_json(const TableErrors& errors) {
  return {{"table", errors.table}, {"mean_error_fraction", errors.mean}, {"worst_error_fraction", errors.worst}};
}

Json to_json(const Fit& fit) {
  Json numbers = Json::array();
  for (const FittedNumber& number : fit.result.numbers) {
    numbers.push_back({{"name", number.number.name},
                       {"table", number.table},
                       {"value", number.value},
                       {"uncertainty_fraction", number.uncertainty},
                       {"before", number.start}});
  }
  Json tables = Json::array();
  for (const TableErrors& errors : fit.result.tables) tables.push_back(to_json(errors));
  Json left_out = Json::array();
  for (const LeftOutTable& left : fit.result.left_out) {
    Json entry = to_json(left.errors);
    entry["values"] = left.values;
    left_out.push_back(entry);
  }
  return {{"machine", fit.machine.name},
          {"numbers", numbers},
          {"correlations", fit.result.correlations},
          {"chi_squared", fit.result.chi_squared},
          {"spare_rows", fit.result.spare_rows},
          {"tables", tables},
          {"left_out", left_out}};
}

std::string name_of(const FittedNumber& number) {
  return number.table.empty() ? number.number.name : number.number.name + " of " + number.table;
}

void print_numbers(const MachineRefit& result, bool colour) {
  Table text{.header = {"number", "fitted", "uncertainty", "in the file"}, .rows = {}};
  for (const FittedNumber& number : result.numbers) {
    text.rows.push_back({name_of(number), fmt::format("{:.4g}", number.value),
                         fmt::format("{:.1f}%", 100 * number.uncertainty), fmt::format("{:.4g}", number.start)});
  }
  std::cout << to_text(text, colour) << "\n  correlations:";
  for (std::size_t i = 0; i < result.numbers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      std::cout << fmt::format("\n    {:+.2f}  {}, {}", result.correlations[i][j], name_of(result.numbers[j]),
                               name_of(result.numbers[i]));
    }
  }
  std::cout << "\n\n";
}

void print(const Fit& fit, bool colour) {
  std::cout << fmt::format("{}: {} numbers fitted on {} tables\n", fit.machine.name, fit.result.numbers.size(),
                           fit.tables.size());
  print_numbers(fit.result, colour);
  Table text{.header = {"table", "rows", "mean", "worst"}, .rows = {}};
  if (!fit.result.left_out.empty()) {
    text.header.insert(text.header.end(), {"mean without it", "worst without it"});
  }
  const auto percent = [](double fraction) { return fmt::format("{:.2f}%", 100 * fraction); };
  for (std::size_t i = 0; i < fit.tables.size(); ++i) {
    const TableErrors& errors = fit.result.tables[i];
    text.rows.push_back(
        {errors.table, std::to_string(fit.tables[i].rows.size()), percent(errors.mean), percent(errors.worst)});
    if (fit.result.left_out.empty()) continue;
    const TableErrors& left = fit.result.left_out[i].errors;
    text.rows.back().insert(text.rows.back().end(), {percent(left.mean), percent(left.worst)});
  }
  std::cout << to_text(text, colour);
  if (fit.result.spare_rows == 0) {
    std::cout << "\nAs many measured rows as numbers without a prior: nothing is left to check the fit by.\n";
  }
  std::cout << "\nUncertainty: one standard deviation, if rows are measured to 2% and a table counts as four rows.\n"
               "Without it: the machine's numbers are fitted on the other tables, the table's own on itself.\n";
}

}  // namespace

void add_fit(CLI::App& program, Body& body) {
  CLI::App& command = add_command(
      program, "fit", "Refits a machine's free numbers from published tables, and prints them. Changes no file.",
      "plumb fit dgx-a100");
  const auto options = std::make_shared<FitArguments>();
  command
      .add_option("MACHINE", options->machine,
                  "A file or a name of plumb list machines; its `fit` names the free numbers.")
      ->required();
  command.add_option("TABLE", options->tables, "Published tables; default: those that the machine's file names.");
  command.add_flag("--all-tables-only", options->all_tables_only,
                   "Skips the refits that leave out each table in turn.");
  command.add_flag("--json", options->json, "Prints one JSON object.");
  command.callback([&body, options] {
    body = [options] {
      const Fit result = fit(*options);
      if (options->json) {
        std::cout << to_text(to_json(result));
      } else {
        print(result, colour_allowed(Stream::out));
      }
      return ExitStatus::done;
    };
  });
}

}  // namespace plumb::sim
