#include "sim/commands/show/show_numbers.hpp"

#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/other_files.hpp"
#include "common/scenario_file/shipped.hpp"

namespace plumb::sim {
namespace {

std::string list_text(const std::vector<YamlValue>& items) {
  std::string text;
  for (const YamlValue& item : items) text += (text.empty() ? "" : ", ") + (item.is_scalar() ? item.text() : "…");
  return text;
}

void add_numbers(const YamlValue& block, const std::string& prefix, std::vector<StatedNumber>& numbers) {
  for (const std::string& key : block.keys()) {
    const YamlValue value = block.require(key);
    const std::string path = prefix + key;
    if (value.is_list()) {
      numbers.push_back({.key = path, .value = list_text(value.items())});
    } else if (!value.is_map()) {
      numbers.push_back({.key = path, .value = value.text()});
    } else if (const auto stated = value.find("value")) {
      const auto text_of = [&](const char* part) {
        const auto found = value.find(part);
        return found ? found->text() : std::string();
      };
      numbers.push_back({path, stated->text(), text_of("uncertainty"), text_of("source")});
    } else {
      add_numbers(value, path + ".", numbers);
    }
  }
}

}  // namespace

NumbersFile numbers_in(const std::string& file) {
  YamlValue block = YamlValue::load(file);
  if (is_machine(block.keys())) block = machine_block(block);
  NumbersFile numbers{.name = block.require("name").text(), .file = file, .description = comment_on_top(file)};
  // `fit` is for `plumb fit`: which numbers it may change.
  add_numbers(block.find("fit") ? block.without({"fit"}) : block, "", numbers.numbers);
  return numbers;
}

std::string numbers_text(const NumbersFile& file) {
  Table table{.header = {"key", "value", "uncertainty", "source"}, .rows = {}, .left_columns = 4};
  bool sourced = false;
  for (const StatedNumber& number : file.numbers) {
    if (number.key == "name") continue;
    sourced = sourced || !number.source.empty();
    table.rows.push_back(
        {number.key, number.value, number.uncertainty.empty() ? "" : "±" + number.uncertainty, number.source});
  }
  if (!sourced) {
    table.header.resize(2);
    for (std::vector<std::string>& row : table.rows) row.resize(2);
  }
  std::string text = file.name + " (" + file.file + ")\n";
  if (!file.description.empty()) text += file.description + "\n";
  return text + "\n" + to_text(table, colour_allowed(Stream::out));
}

Json numbers_json(const NumbersFile& file) {
  Json numbers = Json::array();
  for (const StatedNumber& number : file.numbers) {
    numbers.push_back({{"key", number.key}, {"value", number.value}});
    if (!number.uncertainty.empty()) numbers.back()["uncertainty"] = number.uncertainty;
    if (!number.source.empty()) numbers.back()["source"] = number.source;
  }
  return {{"name", file.name}, {"file", file.file}, {"description", file.description}, {"numbers", numbers}};
}

}  // namespace plumb::sim
