#include "common/cluster/machine_fit.hpp"

#include <optional>

#include "common/cluster/machine_numbers.hpp"

namespace plumb {

std::vector<FreeNumber> read_free_numbers(const YamlValue& block) {
  block.check_keys(machine_number_names());
  std::vector<FreeNumber> numbers;
  for (const std::string& name : block.keys()) {
    const YamlValue known = block.require(name);
    known.check_keys({"prior", "factor", "source"});
    FreeNumber number{.name = name};
    if (const auto prior = known.find("prior")) {
      number.prior = prior->number(1e-12, 1e18);
      number.factor = known.require("factor").number(1.0001, 1e6);
      (void)known.require("source").text();
    } else if (const auto factor = known.find("factor")) {
      factor->fail(factor->path() + ": of which prior?", "{prior: …, factor: …, source: …}");
    }
    numbers.push_back(number);
  }
  return numbers;
}

MachineFit read_machine_fit(const YamlValue& machine) {
  const YamlValue block = machine.require("fit");
  block.check_keys({"tables", "free"});
  MachineFit fit{.tables = {}, .free = read_free_numbers(block.require("free"))};
  for (const YamlValue& table : block.require("tables").items()) fit.tables.push_back(table.text());
  return fit;
}

}  // namespace plumb
