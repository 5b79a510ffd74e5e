#include "common/cluster/machine_numbers.hpp"

#include <algorithm>
#include <functional>

namespace plumb {
namespace {

// Where the number stands: plain or within a quantity.
double* place_of(double& value) { return &value; }
template <class Unit>
double* place_of(Quantity<Unit, double>& value) {
  return &value.value;
}

struct NamedNumber {
  std::string_view name;
  std::function<double*(Machine&)> place;
};

const std::vector<NamedNumber>& named_numbers() {
  static const std::vector<NamedNumber> numbers = {
      {"matmul_efficiency", [](Machine& m) { return place_of(m.device.matmul_efficiency.value); }},
      {"matmul_depth", [](Machine& m) { return place_of(m.device.matmul_depth.value); }},
      {"memory_bandwidth", [](Machine& m) { return place_of(m.device.memory_bandwidth.value); }},
      {"memory_efficiency", [](Machine& m) { return place_of(m.device.memory_efficiency.value); }},
      {"attention_efficiency", [](Machine& m) { return place_of(m.device.attention_efficiency.value); }},
      {"kernel_gap", [](Machine& m) { return place_of(m.device.kernel_gap.value); }},
      {"launch_time", [](Machine& m) { return place_of(m.device.launch_time.value); }},
      {"message_multiprocessors", [](Machine& m) { return place_of(m.device.message_multiprocessors.value); }},
      {"inside.latency", [](Machine& m) { return place_of(m.inside.latency.value); }},
      {"inside.bandwidth", [](Machine& m) { return place_of(m.inside.bandwidth.value); }},
      {"outside.latency", [](Machine& m) { return place_of(m.outside.latency.value); }},
      {"outside.bandwidth", [](Machine& m) { return place_of(m.outside.bandwidth.value); }},
      {"uplink", [](Machine& m) { return place_of(m.uplink.value); }},
      {"collective_bandwidth", [](Machine& m) { return place_of(m.collective_bandwidth.value); }},
      {"collective_latency", [](Machine& m) { return place_of(m.collective_latency.value); }},
      {"collective_latency_per_rank", [](Machine& m) { return place_of(m.collective_latency_per_rank.value); }}};
  return numbers;
}

double& number_in(Machine& machine, std::string_view name) {
  const auto found = std::ranges::find(named_numbers(), name, &NamedNumber::name);
  if (found == named_numbers().end()) {
    throw InputError("machine", "has no number '" + std::string(name) + "'",
                     did_you_mean(name, machine_number_names()));
  }
  return *found->place(machine);
}

}  // namespace

const std::vector<std::string>& machine_number_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const NamedNumber& number : named_numbers()) result.emplace_back(number.name);
    return result;
  }();
  return names;
}

double machine_number(const Machine& machine, std::string_view name) {
  Machine copy = machine;
  return number_in(copy, name);
}

void set_machine_number(Machine& machine, std::string_view name, double value) { number_in(machine, name) = value; }

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
