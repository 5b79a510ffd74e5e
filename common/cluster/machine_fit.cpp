#include "common/cluster/machine_fit.hpp"

#include <optional>

#include "common/cluster/machine_numbers.hpp"
#include "common/cluster/machine_yaml.hpp"

namespace plumb {

std::vector<FreeNumber> read_free_numbers(const YamlValue& block) {
  check_fields(free_numbers_block(), block);
  std::vector<FreeNumber> numbers;
  for (const std::string& name : block.keys()) {
    const YamlValue known = block.require(name);
    FreeNumber number{.name = name};
    if (const auto prior = known.find("prior")) {
      number.prior = prior->number();
      number.factor = known.require("factor").number();
    } else if (const auto factor = known.find("factor")) {
      factor->fail(factor->path() + ": of which prior?", "{prior: …, factor: …, source: …}");
    }
    numbers.push_back(number);
  }
  return numbers;
}

MachineFit read_machine_fit(const YamlValue& machine) {
  const YamlValue block = machine.require("fit");
  check_fields(fit_block(), block);
  MachineFit fit{.tables = {}, .free = read_free_numbers(block.require("free"))};
  for (const YamlValue& table : block.require("tables").items()) fit.tables.push_back(table.text());
  return fit;
}

}  // namespace plumb
