// Numbers by name: set, scaled, and those that stand in for others.
#include "common/cluster/machine_numbers.hpp"

#include <algorithm>
#include <sstream>

#include "common/base/error.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

Machine machine() {
  Machine result;
  result.device.matmul_efficiency = {.value = 0.8, .source = "fitted", .uncertainty = 0.02};
  result.device.attention_efficiency = result.device.matmul_efficiency;
  result.inside = {.latency = {{2e-5}, "a"}, .bandwidth = {{4e9}, "b"}};
  result.outside = {.latency = {{3e-5}, "c"}, .bandwidth = {{1e9}, "d"}};
  result.collective_bandwidth = {{2e9}, "e"};
  result.collective_latency = result.inside.latency;
  return result;
}

const MachineNumber& number(const std::string& name) {
  return *std::ranges::find(machine_numbers(), name, &MachineNumber::name);
}

std::string written(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

TEST_CASE("every number of a machine is what its name says, once") {
  Machine result;
  double value = 1;
  for (const MachineNumber& each : machine_numbers()) {
    CHECK(each.value(result) == 0);
    each.set(result, ++value);
  }
  value = 1;
  for (const MachineNumber& each : machine_numbers()) CHECK(each.value(result) == ++value);
  CHECK(result.outside.bandwidth.value.value == number("outside.bandwidth").value(result));
}

TEST_CASE("a number that stands in for another takes it along") {
  const Machine faster = with_factor(machine(), number("matmul_efficiency"), 1.1);
  CHECK(faster.device.matmul_efficiency.value == Approx(0.88));
  CHECK(faster.device.attention_efficiency.value == Approx(0.88));
  CHECK(with_factor(machine(), number("matmul_efficiency"), 2).device.matmul_efficiency.value == 1);
  const Machine later = with_factor(machine(), number("inside.latency"), 3);
  CHECK(later.collective_latency.value.value == Approx(6e-5));
  CHECK(with_factor(machine(), number("inside.bandwidth"), 3).collective_bandwidth.value.value == Approx(2e9));
  std::vector<std::string> names;
  for (const MachineNumber& own : numbers_of(machine())) names.push_back(own.name);
  CHECK(names == std::vector<std::string>{"matmul_efficiency", "inside.latency", "inside.bandwidth", "outside.latency",
                                          "outside.bandwidth", "collective_bandwidth"});
}

TEST_CASE("a number that is set takes along what it stands in for, on CPU machines alone") {
  Machine set = machine();
  set_machine_number(set, "matmul_efficiency", 0.4);
  set_machine_number(set, "inside.latency", 1e-3);
  set_machine_number(set, "inside.bandwidth", 8e9);  // collectives have a number of their own
  CHECK(set.device.attention_efficiency.value == 0.4);
  CHECK(set.collective_latency.value.value == 1e-3);
  CHECK(set.collective_bandwidth.value.value == 2e9);
  // Two lines of a GPU's file that say the same are still two numbers.
  Machine gpu = machine();
  gpu.device.type = DeviceType::cuda;
  set_machine_number(gpu, "matmul_efficiency", 0.4);
  CHECK(gpu.device.attention_efficiency.value == 0.8);
  CHECK(with_factor(gpu, number("inside.latency"), 3).collective_latency.value.value == 2e-5);
}

TEST_CASE("each name that a fit may use is one number of the machine") {
  Machine machine = {};
  double value = 1;
  for (const std::string& name : machine_number_names()) set_machine_number(machine, name, value++);
  value = 1;
  for (const std::string& name : machine_number_names()) CHECK(machine_number(machine, name) == value++);
  CHECK(machine_number(machine, "outside.bandwidth") == machine.outside.bandwidth.value.value);
  CHECK(machine_number(machine, "matmul_depth") == machine.device.matmul_depth.value);
  CHECK_THROWS_WITH(machine_number(machine, "matmul_dept"), ContainsSubstring("'matmul_depth'"));
  CHECK_THROWS_AS(set_machine_number(machine, "peak", 1), InputError);  // one per precision
}

TEST_CASE("a machine's file takes what is in a number's range, and nothing beyond") {
  const auto text = [](const std::string& name, double value) {
    const auto with = [&](const std::string& key, const std::string& other, const std::string& unit) {
      const std::string number = key == name ? written(value) + unit : other;
      const std::string line = key.substr(key.find('.') + 1);
      return line + ": {value: " + number + ", source: a}";
    };
    return "name: m\ndevices: 1\ndevice: {name: d, type: cuda, peak: {fp32: {value: 1 TFLOP/s, source: a}}, memory: "
           "{value: 1 GB, source: a}, " +
           with("matmul_efficiency", "0.5", "") + ", " + with("matmul_depth", "1", "") + ", " +
           with("memory_bandwidth", "1 GB/s", " B/s") + ", " + with("memory_efficiency", "0.5", "") + ", " +
           with("kernel_gap", "1 us", " s") +
           "}\ninside: &i {latency: {value: 1 us, source: a}, bandwidth: {value: 1 "
           "GB/s, source: a}}\noutside: {" +
           with("outside.latency", "1 us", " s") + ", " + with("outside.bandwidth", "1 GB/s", " B/s") + "}\n";
  };
  const auto read = [&](const std::string& name, double value) {
    return machine_number(read_machine(YamlValue::parse(text(name, value), "m.yaml"), ElementType::fp32), name);
  };
  for (const char* name : {"matmul_efficiency", "matmul_depth", "memory_bandwidth", "memory_efficiency", "kernel_gap",
                           "outside.latency", "outside.bandwidth"}) {
    INFO(name);
    const NumberRange range = machine_number_range(name);
    CHECK(read(name, range.least) == range.least);
    CHECK(read(name, range.most) == range.most);
    CHECK_THROWS_AS(read(name, range.least > 0 ? range.least / 2 : -1), InputError);
    CHECK_THROWS_AS(read(name, range.most * 2), InputError);
  }
}
