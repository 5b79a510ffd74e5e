// Machines are read with units and sources, and ranks find their node and link.
#include "common/cluster/machine.hpp"

#include "common/base/error.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

const std::string good = R"(name: two-gpus
devices: 2
device:
  name: a GPU
  type: cuda
  peak:
    bf16: {value: 312 TFLOP/s, source: datasheet}
  matmul_efficiency: {value: 0.75, source: "assumed: a guess"}
  memory_bandwidth: {value: 2039 GB/s, source: datasheet}
  memory_efficiency: {value: 0.8, source: measured}
  memory: {value: 74 GiB, source: assumed}
inside:
  latency: {value: 3.4 us, source: measured}
  bandwidth: {value: 235 GB/s, source: measured}
outside:
  latency: {value: 32 us, source: measured}
  bandwidth: {value: 200 Gbit/s, source: datasheet}
)";

Machine read(const std::string& text, ElementType precision = ElementType::bf16) {
  return read_machine(YamlValue::parse(text, "machine.yaml"), precision);
}

std::string message_for(const std::string& from, const std::string& to, ElementType precision = ElementType::bf16) {
  std::string text = good;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  try {
    (void)read(text.replace(at, from.size(), to), precision);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a machine says how sure a number is, and what its devices share") {
  std::string text = good;
  const std::string exact = "{value: 0.75, source: \"assumed: a guess\"}";
  text.replace(text.find(exact), exact.size(), "{value: 0.75, uncertainty: 4%, source: a guess}");
  const Machine machine =
      read(text + "nics: 1\ndevices_per_switch: 2\nuplink: {value: 24 GB/s, source: measured, uncertainty: 0.1}\n");
  CHECK(machine.device.matmul_efficiency.uncertainty == Approx(0.04));
  CHECK(machine.device.peak.uncertainty == 0);
  CHECK(machine.nics == 1);
  CHECK(machine.devices_per_switch == 2);
  CHECK(machine.uplink.value == BytesPerSecond{24e9});
  CHECK(machine.uplink.uncertainty == 0.1);

  const auto refused = [](const std::string& more) {
    try {
      (void)read(good + more);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(refused("nics: 3\n"), ContainsSubstring("nics: 3 does not divide the 2 devices"));
  CHECK_THAT(refused("devices_per_switch: 2\n"), ContainsSubstring("key 'uplink' is missing in the file") &&
                                                     ContainsSubstring("uplink: {value: … GB/s") &&
                                                     ContainsSubstring("devices_per_switch demands it"));
  CHECK_THAT(refused("uplink: {value: 24 GB/s, source: measured}\n"), ContainsSubstring("of which switches?"));
}

TEST_CASE("messages cannot take all multiprocessors of a device") {
  const auto with = [](const std::string& taken) {
    std::string text = good;
    const std::string before = "  peak:\n";
    text.replace(text.find(before), before.size(),
                 "  multiprocessors: 8\n  message_multiprocessors: {value: " + taken + ", source: a guess}\n" + before);
    return text;
  };
  CHECK(read(with("7")).device.message_multiprocessors.value == 7);
  CHECK_THROWS_WITH(read(with("8")), ContainsSubstring("machine.yaml:7:") &&
                                         ContainsSubstring("less than the device's 8 multiprocessors"));
}

TEST_CASE("a machine's numbers keep their unit and their source") {
  const Machine machine = read(good);
  CHECK(machine.name == "two-gpus");
  CHECK(machine.devices == 2);
  CHECK(machine.cores == 0);
  CHECK(machine.device.type == DeviceType::cuda);
  CHECK(machine.device.peak.value == FlopsPerSecond{312e12});
  CHECK(machine.device.peak.source == "datasheet");
  CHECK(machine.device.memory.value == Bytes{std::int64_t{74} << 30});
  CHECK(machine.inside.latency.value.value == Approx(3.4e-6));
  CHECK(machine.outside.bandwidth.value == BytesPerSecond{25e9});  // 200 Gbit/s
  CHECK(machine.device.matmul_efficiency.source == "assumed: a guess");
}

TEST_CASE("a number alone is taken as stated in its file, and it and a guess as uncertain") {
  const auto memory_of = [](const std::string& written) {
    std::string text = good;
    const std::string there = "{value: 74 GiB, source: assumed}";
    return read(text.replace(text.find(there), there.size(), written)).device.memory;
  };
  const auto alone = memory_of("74 GiB");
  CHECK(alone.value == Bytes{std::int64_t{74} << 30});
  CHECK(alone.source == "stated in this file");
  CHECK(alone.uncertainty == 0.2);
  CHECK(memory_of("{value: 74 GiB, source: assumed}").uncertainty == 0.2);
  CHECK(memory_of("{value: 74 GiB, source: assumed, uncertainty: 0}").uncertainty == 0);
  CHECK(memory_of("{value: 74 GiB, source: datasheet}").uncertainty == 0);
}

TEST_CASE("faults of a machine are reported with their line") {
  CHECK_THAT(message_for("2039 GB/s", "2039"),
             ContainsSubstring("machine.yaml:9:29: ") && ContainsSubstring("no unit"));
  CHECK_THAT(message_for("2039 GB/s", "2039"), ContainsSubstring("units: B/s"));
  CHECK_THAT(message_for("74 GiB", "74 GB/s"), ContainsSubstring("machine.yaml:11:19: "));
  CHECK_THAT(message_for(", source: measured}\n  memory:", "}\n  memory:"),
             ContainsSubstring("key 'source' is missing in device.memory_efficiency"));
  CHECK_THAT(message_for("value: 0.75", "value: 75"), ContainsSubstring("machine.yaml:8:30: "));
  CHECK_THAT(message_for("devices:", "device_count:"), ContainsSubstring("unknown key 'device_count'"));
  CHECK_THAT(message_for("devices: 2\n", ""), ContainsSubstring("'devices' is missing"));
  CHECK_THAT(message_for("devices: 2", "devices: 0"), ContainsSubstring("machine.yaml:2:10: "));
  CHECK_THAT(message_for("name: a GPU", "name: a GPU", ElementType::fp32), ContainsSubstring("no peak for fp32"));
}

TEST_CASE("a key that is missing alone is told with the line to add") {
  const auto without = [](const std::string& start) {
    const std::size_t at = good.find(start);
    return message_for(good.substr(at, good.find('\n', at) + 1 - at), "");
  };
  CHECK_THAT(without("name: two"),
             ContainsSubstring("key 'name' is missing in the file\n  hint: add name: … to the file"));
  CHECK_THAT(without("devices: 2"), ContainsSubstring("key 'devices' is missing in the file") &&
                                        ContainsSubstring("add devices: 8 to the file"));
  CHECK_THAT(without("  matmul_eff"), ContainsSubstring("machine.yaml:4:3: ") &&
                                          ContainsSubstring("key 'matmul_efficiency' is missing in device") &&
                                          ContainsSubstring("add matmul_efficiency: {value: 0.…"));
  CHECK_THAT(without("  memory_bandwidth"), ContainsSubstring("add memory_bandwidth: {value: … TB/s"));
  CHECK_THAT(without("  memory:"), ContainsSubstring("add memory: {value: … GiB"));
  CHECK_THAT(without("  latency: {value: 3.4"),
             ContainsSubstring("key 'latency' is missing in inside") && ContainsSubstring("add latency: {value: … us"));
}

TEST_CASE("missing keys of all blocks of a machine are reported at once") {
  const std::string text =
      "devices_per_switch: 2\ndevice: {type: cuda, memory: {value: 74 GiB, source: assumed}}\n"
      "inside: {latency: {value: 3.4 us, source: measured}}\n";
  CHECK_THROWS_WITH(
      read(text),
      ContainsSubstring("keys 'name', 'peak', 'matmul_efficiency', 'memory_bandwidth', 'memory_efficiency' "
                        "are missing in device; key 'bandwidth' is missing in inside; keys 'name', "
                        "'outside', 'devices', 'uplink' are missing in the file\n  hint: add to device\n") &&
          ContainsSubstring("\n    name: …\n    peak: {bf16: ") &&
          ContainsSubstring("\n  and to inside\n    bandwidth: {value: … GB/s") &&
          ContainsSubstring("\n  and to the file\n"));
  CHECK_THROWS_WITH(read("devise: 1\n"), ContainsSubstring("did you mean 'device'?"));
}

TEST_CASE("the first refusal of a machine from scratch names all that it needs, its device's keys too") {
  std::string message;
  try {
    (void)read("name: mine\n");
  } catch (const InputError& error) {
    message = error.what();
  }
  CHECK_THAT(message, ContainsSubstring("\n    device:\n      name: …\n      type: cuda\n      peak: {bf16: ") &&
                          ContainsSubstring("\n    inside: {latency: "));
  for (const char* key : {"matmul_efficiency", "memory_bandwidth", "memory_efficiency", "memory"}) {
    CHECK_THAT(message, ContainsSubstring("\n      " + std::string(key) + ": {value: "));
  }
}

TEST_CASE("all wrong keys and values of a machine's file are told at once, each with its line") {
  std::string text = good;
  const auto replace = [&](const std::string& what, const std::string& by) {
    text.replace(text.find(what), what.size(), by);
  };
  replace("2039 GB/s", "2039");
  replace("74 GiB", "74 GB/s");
  replace("  memory_efficiency:", "  memory_eficiency:");
  replace("3.4 us", "fast");
  try {
    (void)read(text);
    FAIL("read");
  } catch (const InputError& error) {
    const std::string all = error.what();
    CHECK_THAT(all, ContainsSubstring("machine.yaml:9:29: ") && ContainsSubstring("no unit"));
    CHECK_THAT(all, ContainsSubstring("machine.yaml:11:19: ") && ContainsSubstring("unknown unit 'GB/s'"));
    CHECK_THAT(all, ContainsSubstring("unknown key 'memory_eficiency'"));
    CHECK_THAT(all, ContainsSubstring("key 'memory_efficiency' is missing in device"));
    CHECK_THAT(all, ContainsSubstring("expected a quantity, not 'fast'"));
  }
}

TEST_CASE("a CPU machine takes its cores from here unless they are given") {
  std::string text = good;
  text.replace(text.find("devices: 2"), 10, "cores: usable");
  text.replace(text.find("cuda"), 4, "cpu");
  CHECK(read(text).cores == usable_cores());
  CHECK(usable_cores() >= 1);
  text.replace(text.find("usable"), 6, "6");
  CHECK(read(text).cores == 6);
  CHECK(read(text).devices == 6);
}

TEST_CASE("ranks fill one machine after the other") {
  const std::vector<int> machines = {0, 0, 1, 1, 2, 2};
  for (int rank = 0; rank < 6; ++rank) CHECK(machine_of(rank, 2) == machines[static_cast<std::size_t>(rank)]);
  CHECK(machine_of(6, 1) == 6);
  CHECK(machine_of(6, 7) == 0);
}
