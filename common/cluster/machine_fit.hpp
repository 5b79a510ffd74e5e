// What a machine's file lets a fit change, and what is known of it before.
#pragma once

#include <string>
#include <vector>

#include "common/base/document/yaml.hpp"

namespace plumb {

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
