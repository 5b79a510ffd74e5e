// A machine's file without a number is refused where the scenario stands on it, and nowhere else.
#include "common/block_cost/missing_numbers.hpp"
#include "common/scenario_file/read_scenario.hpp"

#include <fstream>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// The shipped machine without the lines of these keys.
std::string dgx_a100_without(const std::vector<std::string>& keys) {
  std::ifstream file(std::string(PLUMB_SOURCE_DIR) + "/scenarios/machines/dgx-a100.yaml");
  REQUIRE(file);
  std::ostringstream text;
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    const auto has = [&](const std::string& key) {
      return begin < line.size() && line.compare(begin, key.size() + 1, key + ":") == 0;
    };
    if (std::ranges::none_of(keys, has)) text << line << '\n';
  }
  return text.str();
}

std::string message(const std::vector<std::string>& left_out, const std::string& layout, const std::string& software) {
  const TemporaryFolder folder;
  (void)folder.write("m.yaml", dgx_a100_without(left_out));
  const std::string nodes = layout.find("data") == std::string::npos ? "" : ", nodes: 4";
  const std::string rest =
      "cluster: {machine: m.yaml" + nodes + "}\nlayout: " + layout + "\nsoftware: " + software + "\n";
  try {
    (void)read_scenario(folder.write("s.yaml", scenario_text(rest)));
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

const std::string all_axes = "{pipeline: 4, tensor: {degree: 2}, data: {degree: 4}}";
const std::string only_pipeline = "{pipeline: 4}";

}  // namespace

TEST_CASE("a decisive number that a GPU machine lacks is named, with its file and what to write") {
  CHECK(message({}, all_axes, "megatron-2024") == "no error");
  for (const std::string key : {"collective_bandwidth", "collective_latency", "collective_latency_per_rank"}) {
    CAPTURE(key);
    const std::string found = message({key}, all_axes, "megatron-2024");
    CHECK_THAT(found, ContainsSubstring("m.yaml:") && ContainsSubstring("has no '" + key + "'") &&
                          ContainsSubstring("collectives") && ContainsSubstring("top level: " + key + ": {value: "));
  }
  for (const std::string key : {"attention_efficiency", "matmul_depth", "kernel_gap", "launch_time",
                                "message_multiprocessors", "multiprocessors", "framework_memory"}) {
    CAPTURE(key);
    const bool too_many = key == "multiprocessors";  // messages cannot take four of none
    const std::vector<std::string> keys = {key};
    const std::string found = message(keys, all_axes, "megatron-2024");
    CHECK_THAT(found, ContainsSubstring("m.yaml:") && ContainsSubstring("has no '" + key + "'") &&
                          ContainsSubstring("device block: " + key + ": " + (too_many ? "" : "{value: ")));
  }
}

TEST_CASE("all numbers that are missing are named at once, each with its line and where that goes") {
  const std::string found =
      message({"kernel_gap", "framework_memory", "collective_latency"}, all_axes, "megatron-2024");
  CHECK_THAT(found, ContainsSubstring("has no 'kernel_gap'") && ContainsSubstring("no 'framework_memory'") &&
                        ContainsSubstring("no 'collective_latency'"));
  const std::size_t device = found.find("its device block:");
  const std::size_t top = found.find("its top level:");
  CHECK(device < found.find("kernel_gap: {value"));
  CHECK(found.find("framework_memory: {value") < top);
  CHECK(top < found.find("collective_latency: {value"));
}

TEST_CASE("keys that every machine has are asked for at once") {
  const std::string found = message({"matmul_efficiency", "memory_bandwidth", "memory"}, all_axes, "megatron-2024");
  CHECK_THAT(found, ContainsSubstring("keys 'matmul_efficiency', 'memory_bandwidth', 'memory' are missing in") &&
                        ContainsSubstring("memory_bandwidth: {value"));
  // Nor does the precision, which is the device's usual one here, ask for its type before.
  CHECK_THAT(message({"type", "memory"}, all_axes, "megatron-2024"),
             ContainsSubstring("keys 'type', 'memory' are missing in device"));
}

TEST_CASE("the framework's memory may be zero if the file or the scenario states it") {
  const TemporaryFolder folder;
  const std::string machine = dgx_a100_without({"framework_memory"});
  const std::size_t type = machine.find("  type: cuda\n");
  REQUIRE(type != std::string::npos);
  std::string stated = machine;
  stated.insert(type, "  framework_memory: {value: 0 GiB, source: \"a made-up device\"}\n");
  (void)folder.write("silent.yaml", machine);
  (void)folder.write("stated.yaml", stated);
  const auto read = [&](const std::string& cluster) {
    return read_scenario(folder.write("s.yaml", scenario_text("cluster: " + cluster + "\nlayout: {pipeline: 2}\n")));
  };
  CHECK_THROWS_WITH(read("{machine: silent.yaml}"), ContainsSubstring("has no 'framework_memory'"));
  CHECK(read("{machine: stated.yaml}").cluster.machine.device.memory.value == Bytes{std::int64_t{80} << 30});
  CHECK(read("{machine: silent.yaml, memory: 40 GiB}").cluster.machine.device.memory.value ==
        Bytes{std::int64_t{40} << 30});
}

TEST_CASE("a number that the scenario does not stand on may be left out") {
  const std::vector<std::string> collectives = {"collective_bandwidth", "collective_latency",
                                                "collective_latency_per_rank"};
  CHECK(message(collectives, only_pipeline, "megatron-2024") == "no error");
  CHECK_THAT(message(collectives, "{pipeline: auto, data: auto}", "megatron-2024"), ContainsSubstring("collective_"));
  CHECK(message({"attention_efficiency"}, all_axes, "{like: megatron-2024, attention: unfused}") == "no error");
  CHECK(message({"message_multiprocessors"}, "{pipeline: 1, tensor: {degree: 2}}", "megatron-2024") == "no error");
}

TEST_CASE("a CPU machine has stand-ins, and a GPU none") {
  const Scenario cpu =
      read_text(scenario_text("cluster: {ranks: 4, cores: 4}\nlayout: {pipeline: 2, data: {degree: 2}}\n"));
  CHECK(missing_numbers(cpu).empty());
  CHECK(cpu.cluster.machine.collective_bandwidth == cpu.cluster.machine.inside.bandwidth);
  CHECK(cpu.cluster.machine.device.attention_efficiency == cpu.cluster.machine.device.matmul_efficiency);
  const TemporaryFolder folder;
  (void)folder.write("m.yaml", dgx_a100_without({"collective_bandwidth", "collective_latency"}));
  const Scenario gpu =
      read_scenario(folder.write("s.yaml", scenario_text("cluster: {machine: m.yaml}\nlayout: {pipeline: 2}\n")));
  CHECK(gpu.cluster.machine.collective_bandwidth.value == BytesPerSecond{});
  CHECK(gpu.cluster.machine.collective_latency.source.empty());
}
