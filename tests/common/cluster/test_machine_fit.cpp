// What a fit may change of a machine, and the machines that plumb ships.
#include "common/cluster/machine_fit.hpp"

#include <algorithm>
#include <filesystem>

#include "common/base/error.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

std::filesystem::path machines() { return std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios" / "machines"; }

template <class Work>
std::string message(Work work) {
  try {
    work();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<FreeNumber> read_free(const std::string& text) {
  return read_free_numbers(YamlValue::parse(text, "machine.yaml"));
}

// Every {value, source} below this.
void check_provenance(const YamlValue& block) {
  if (!block.is_map()) return;
  const std::vector<std::string> keys = block.keys();
  if (std::ranges::find(keys, "value") == keys.end()) {
    for (const std::string& key : keys) {
      if (key != "fit") check_provenance(block.require(key));
    }
    return;
  }
  const std::string source = block.require("source").text();
  INFO(to_string(block.place()) << ": " << source);
  const bool datasheet = source == "datasheet" || source.starts_with("datasheet, ");
  const bool plain_datasheet = datasheet && source.find("% is reached") == std::string::npos;
  const auto uncertainty = block.find("uncertainty");
  CHECK(plain_datasheet != uncertainty.has_value());
  if (uncertainty) CHECK(uncertainty->fraction(10) > 0);
}

}  // namespace

TEST_CASE("parameters that a fit may change are named with their prior") {
  const std::vector<FreeNumber> free =
      read_free("{memory_efficiency: {}, matmul_depth: {prior: 122, factor: 1.5, source: a table}}");
  REQUIRE(free.size() == 2);
  CHECK(free[0] == FreeNumber{.name = "memory_efficiency"});
  CHECK(free[1] == FreeNumber{.name = "matmul_depth", .prior = 122, .factor = 1.5});
  CHECK_THAT(message([] { (void)read_free("{matmul_dept: {}}"); }), ContainsSubstring("matmul_depth"));
  CHECK_THAT(message([] { (void)read_free("{matmul_depth: {prior: 122}}"); }),
             ContainsSubstring("keys 'factor', 'source' are missing in matmul_depth"));
  CHECK_THAT(message([] { (void)read_free("{matmul_depth: {prior: 122, factor: 1, source: a}}"); }),
             ContainsSubstring("machine.yaml:1:37"));
  CHECK_THAT(message([] { (void)read_free("{matmul_depth: {factor: 2}}"); }), ContainsSubstring("of which prior?"));
  CHECK_THAT(message([] { (void)read_free("{matmul_depth: {prior: 122, factor: 2}}"); }),
             ContainsSubstring("'source' is missing"));
}

TEST_CASE("every machine that plumb ships is read, and says of each number where it is from and how sure it is") {
  std::size_t read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(machines())) {
    INFO(entry.path().string());
    const YamlValue file = YamlValue::load(entry.path());
    const std::string name = entry.path().stem().string();
    CHECK(std::ranges::find(machine_names(), name) != machine_names().end());
    const YamlValue peaks = file.require("device").require("peak");
    for (const std::string& precision : peaks.keys()) {
      const ElementType type = precision == "fp32"   ? ElementType::fp32
                               : precision == "bf16" ? ElementType::bf16
                                                     : ElementType::fp16;
      const Machine machine = read_machine(file, type);
      CHECK(machine.name == name);
      CHECK(machine.device.peak.value.value > 0);
      // No link is faster than memory.
      CHECK(machine.inside.bandwidth.value < machine.device.memory_bandwidth.value);
      CHECK(machine.outside.bandwidth.value < machine.device.memory_bandwidth.value);
    }
    check_provenance(file);
    ++read;
  }
  CHECK(read >= 11);
}

TEST_CASE("the A100 says what of it is fitted, and on what") {
  const MachineFit fit = read_machine_fit(YamlValue::load(machines() / "dgx-a100.yaml"));
  CHECK(fit.tables.size() == 3);
  REQUIRE(fit.free.size() == 3);  // the fourth is the network of one table
  CHECK(fit.free[1].prior == 122);
}
