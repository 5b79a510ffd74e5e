// A machine's numbers by their names in its file: what a fit refits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/yaml.hpp"
#include "common/cluster/machine.hpp"

namespace plumb {

// "matmul_efficiency", "outside.bandwidth", …: all but the peak, of which a machine has one per precision.
[[nodiscard]] const std::vector<std::string>& machine_number_names();

// In the unit of the number's type (seconds, bytes/s, a plain number). Throws InputError for an unknown name.
[[nodiscard]] double machine_number(const Machine& machine, std::string_view name);
void set_machine_number(Machine& machine, std::string_view name, double value);

// A number that a fit may change, and what is known of it before: about `prior`, within this factor (one standard
// deviation of its logarithm).
struct FreeNumber {
  std::string name = {};
  double prior = 0;   // 0: nothing is known
  double factor = 0;  // above 1
  bool operator==(const FreeNumber&) const = default;
};

// What stands under `free`: `{matmul_efficiency: {}, matmul_depth: {prior: 122, factor: 1.5, source: …}}`; a prior is
// of a number without a unit. Throws InputError for an unknown name, a factor not above 1, a prior without a source.
[[nodiscard]] std::vector<FreeNumber> read_free_numbers(const YamlValue& block);

// What a machine's file says under `fit`: `{tables: […], free: {…}}`.
struct MachineFit {
  std::vector<std::string> tables = {};  // files, as in scenarios
  std::vector<FreeNumber> free = {};
  bool operator==(const MachineFit&) const = default;
};
[[nodiscard]] MachineFit read_machine_fit(const YamlValue& machine);

}  // namespace plumb
