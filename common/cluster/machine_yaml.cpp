#include "common/cluster/machine_yaml.hpp"

#include <limits>
#include <string>
#include <vector>

#include "common/base/input_errors.hpp"
#include "common/cluster/machine_numbers.hpp"
#include "common/cluster/machine_ranges.hpp"

namespace plumb {
namespace {

// Of a number that the file states and says nothing else about, or that is a guess.
constexpr double uncertainty_of_guesses = 0.2;

bool is_guess(const std::string& source) {
  return source.starts_with("assum") || source.starts_with("guess") || source.starts_with("estimat");
}

// {value: …, uncertainty: …, source: …}, or the value alone; `read` takes the value with its unit.
template <class Read>
auto sourced(const YamlValue& block, std::string_view key, Read read) {
  const YamlValue number = block.require(key);
  const std::string form = "write it with where it comes from: " + std::string(key) + ": {value: …, source: datasheet}";
  if (number.is_scalar()) {
    return Sourced<decltype(read(number))>{
        .value = read(number), .source = "stated in this file", .uncertainty = uncertainty_of_guesses};
  }
  if (!number.is_map()) number.fail(number.path() + ": expected a value and its source", form);
  number.check_keys({"value", "source", "uncertainty"});
  const std::optional<YamlValue> source = number.find("source");
  if (!source || source->text().empty()) number.fail(number.path() + ": the source is missing", form);
  const std::optional<YamlValue> uncertainty = number.find("uncertainty");
  return Sourced<decltype(read(number))>{.value = read(number.require("value")),
                                         .source = source->text(),
                                         .uncertainty = uncertainty ? uncertainty->fraction(most_uncertainty)
                                                        : is_guess(source->text()) ? uncertainty_of_guesses
                                                                                   : 0};
}

constexpr auto as_bytes = [](const YamlValue& value) { return value.bytes(); };
// Nothing is also an amount: "0 GiB".
constexpr auto as_bytes_or_none = [](const YamlValue& value) {
  const bool none = value.text().starts_with("0 ");
  return none ? Bytes{} : value.bytes();
};
constexpr auto as_seconds = [](const YamlValue& value) { return value.seconds(); };
constexpr auto as_bytes_per_second = [](const YamlValue& value) { return value.bytes_per_second(); };
constexpr auto as_flops_per_second = [](const YamlValue& value) { return value.flops_per_second(); };
constexpr auto as_fraction = [](const YamlValue& value) {
  return value.number(fraction_range.least, fraction_range.most);
};

Link read_link(const YamlValue& block) {
  return {.latency = sourced(block, "latency", as_seconds),
          .bandwidth = sourced(block, "bandwidth", as_bytes_per_second)};
}

Sourced<FlopsPerSecond> read_peak(const YamlValue& peaks, ElementType precision) {
  peaks.check_keys(training_precision_names());
  const std::string name(name_of(precision));
  if (!peaks.find(name)) {
    peaks.fail(peaks.path() + ": has no peak for " + name + ", the precision of the training",
               "add " + name + ": {value: … TFLOP/s, source: …}");
  }
  return sourced(peaks, name, as_flops_per_second);
}

constexpr auto as_elements = [](const YamlValue& value) { return value.number(plain_range.least, plain_range.most); };

// A number that a CPU machine does without, and that others need for some scenarios alone.
template <class Read, class Value>
void read_optional(const YamlValue& block, std::string_view key, Read read, Sourced<Value>& into) {
  if (block.find(key)) into = sourced(block, key, read);
}

struct NeededKey {
  std::string name;
  std::string line;  // what to write behind it
};

// Every value of these keys that is there, as it would be read.
template <class Read>
void try_values(const YamlValue& block, const std::vector<std::string_view>& keys, const Read& read,
                InputErrors& errors) {
  for (const std::string_view key : keys) {
    if (block.find(key)) errors.attempt([&] { (void)sourced(block, key, read); });
  }
}

void try_device(const YamlValue& device, InputErrors& errors) {
  errors.attempt([&] {
    if (const auto type = device.find("type")) (void)type->choice({"cpu", "cuda"});
  });
  try_values(device, {"matmul_efficiency", "memory_efficiency", "attention_efficiency"}, as_fraction, errors);
  try_values(device, {"matmul_depth", "message_multiprocessors"}, as_elements, errors);
  try_values(device, {"memory_bandwidth"}, as_bytes_per_second, errors);
  try_values(device, {"kernel_gap", "launch_time"}, as_seconds, errors);
  try_values(device, {"memory"}, as_bytes, errors);
  try_values(device, {"framework_memory"}, as_bytes_or_none, errors);
  const std::optional<YamlValue> peaks = device.find("peak");
  if (!peaks || !errors.attempt([&] { peaks->check_keys(training_precision_names()); })) return;
  for (const std::string& precision : training_precision_names()) {
    try_values(*peaks, {precision}, as_flops_per_second, errors);
  }
}

// Of all blocks of a machine's file: a first one is refused once, not block by block.
class MissingKeys {
 public:
  void look_in(const YamlValue& block, const std::vector<NeededKey>& needed) {
    std::string names;
    std::string lines;
    int count = 0;
    for (const auto& [name, line] : needed) {
      if (block.find(name)) continue;
      names.append(count++ == 0 ? "'" : ", '").append(name).append("'");
      lines.append("\n    ").append(name).append(line.starts_with('\n') ? ":" : ": ").append(line);
    }
    if (count == 0) return;
    problem_ += (problem_.empty() ? "" : "; ") + std::string(count == 1 ? "key " : "keys ") + names +
                (count == 1 ? " is missing in " : " are missing in ") + block.path();
    hint_ += (hint_.empty() ? "add to " : "\n  and to ") + block.path() + lines;
    blocks_.push_back(block);
  }

  void require_none(const YamlValue& file) const {
    if (!blocks_.empty()) (blocks_.size() == 1 ? blocks_.front() : file).fail(problem_, hint_);
  }

 private:
  std::string problem_;
  std::string hint_;
  std::vector<YamlValue> blocks_;
};

const std::vector<NeededKey>& needed_of_device() {
  static const std::vector<NeededKey> needed = {{"name", "…"},
                                                {"type", "cuda"},
                                                {"peak", "{bf16: {value: … TFLOP/s, source: datasheet}}"},
                                                {"matmul_efficiency", "{value: 0.…, source: …}"},
                                                {"memory_bandwidth", "{value: … TB/s, source: datasheet}"},
                                                {"memory_efficiency", "{value: 0.…, source: …}"},
                                                {"memory", "{value: … GiB, source: datasheet}"}};
  return needed;
}

// As it stands behind "device:" where there is none yet.
std::string whole_device() {
  std::string lines;
  for (const auto& [name, line] : needed_of_device()) lines.append("\n      ").append(name).append(": ").append(line);
  return lines;
}

// `link` and `bandwidth`: how these are written.
void try_host(const YamlValue& file, const std::string& link, const std::string& bandwidth, MissingKeys& missing,
              InputErrors& errors) {
  const auto host = file.find("host");
  if (!host) return;
  const auto known = [&] { host->check_keys({"link", "devices_per_link", "memory", "memory_bandwidth"}); };
  if (!errors.attempt(known) && !host->is_map()) return;
  try_values(*host, {"memory"}, as_bytes, errors);
  try_values(*host, {"memory_bandwidth"}, as_bytes_per_second, errors);
  missing.look_in(*host, {{"link", link + "  # of a device to the host, each way"},
                          {"memory", "{value: … GiB, source: …}  # of the host, for each device"},
                          {"memory_bandwidth", bandwidth + "  # of the host, for each device"}});
  const auto port = host->find("link");
  if (!port || !(errors.attempt([&] { port->check_keys({"latency", "bandwidth"}); }) || port->is_map())) return;
  try_values(*port, {"latency"}, as_seconds, errors);
  try_values(*port, {"bandwidth"}, as_bytes_per_second, errors);
  missing.look_in(*port, {{"latency", "{value: … us, source: …}"}, {"bandwidth", bandwidth}});
}

// All that is wrong with its keys, and with each value by itself.
void require_sound(const YamlValue& file) {
  InputErrors errors;
  errors.attempt([&] {
    file.check_keys({"name", "devices", "cores", "device", "inside", "outside", "nics", "devices_per_switch", "uplink",
                     "collective_bandwidth", "collective_latency", "collective_latency_per_rank", "switch_bandwidth",
                     "host", "fit"});
  });
  if (!file.is_map()) errors.throw_if_any();
  try_values(file, {"uplink", "collective_bandwidth", "switch_bandwidth"}, as_bytes_per_second, errors);
  try_values(file, {"collective_latency", "collective_latency_per_rank"}, as_seconds, errors);
  const std::string latency = "{value: … us, source: …}";
  const std::string bandwidth = "{value: … GB/s, source: …}";
  const std::string link = "{latency: " + latency + ", bandwidth: " + bandwidth + "}";
  std::vector<NeededKey> of_file = {{"name", "…"}, {"device", whole_device()}, {"inside", link}, {"outside", link}};
  if (!file.find("cores")) of_file.push_back({"devices", "…  # how many ranks have a device of their own here?"});
  if (file.find("devices_per_switch")) {
    of_file.push_back({"uplink", bandwidth + "  # of each switch: devices_per_switch demands it"});
  }
  MissingKeys missing;
  missing.look_in(file, of_file);
  const std::optional<YamlValue> device = file.find("device");
  const auto known = [&] {
    device->check_keys({"name", "type", "multiprocessors", "peak", "matmul_efficiency", "matmul_depth",
                        "memory_bandwidth", "memory_efficiency", "attention_efficiency", "kernel_gap", "launch_time",
                        "message_multiprocessors", "memory", "framework_memory"});
  };
  if (device && (errors.attempt(known) || device->is_map())) {
    try_device(*device, errors);
    missing.look_in(*device, needed_of_device());
  }
  for (const char* key : {"inside", "outside"}) {
    const auto block = file.find(key);
    if (!block || !(errors.attempt([&] { block->check_keys({"latency", "bandwidth"}); }) || block->is_map())) continue;
    try_values(*block, {"latency"}, as_seconds, errors);
    try_values(*block, {"bandwidth"}, as_bytes_per_second, errors);
    missing.look_in(*block, {{"latency", latency}, {"bandwidth", bandwidth}});
  }
  try_host(file, link, bandwidth, missing, errors);
  errors.attempt([&] { missing.require_none(file); });
  errors.throw_if_any();
}

DeviceProfile read_device(const YamlValue& block, ElementType precision) {
  DeviceProfile device = {.name = block.require("name").text(),
                          .type = static_cast<DeviceType>(block.require("type").choice({"cpu", "cuda"})),
                          .peak = read_peak(block.require("peak"), precision),
                          .matmul_efficiency = sourced(block, "matmul_efficiency", as_fraction),
                          .memory_bandwidth = sourced(block, "memory_bandwidth", as_bytes_per_second),
                          .memory_efficiency = sourced(block, "memory_efficiency", as_fraction),
                          .memory = sourced(block, "memory", as_bytes)};
  if (const auto count = block.find("multiprocessors")) {
    device.multiprocessors = static_cast<int>(count->integer(1, most_multiprocessors));
  }
  if (device.type == DeviceType::cpu) device.attention_efficiency = device.matmul_efficiency;
  read_optional(block, "attention_efficiency", as_fraction, device.attention_efficiency);
  read_optional(block, "matmul_depth", as_elements, device.matmul_depth);
  read_optional(block, "message_multiprocessors", as_elements, device.message_multiprocessors);
  if (!leaves_multiprocessors(device)) {
    block.require("message_multiprocessors")
        .fail(block.path() + ".message_multiprocessors: expected less than the device's " +
              std::to_string(device.multiprocessors) + " multiprocessors");
  }
  read_optional(block, "kernel_gap", as_seconds, device.kernel_gap);
  read_optional(block, "launch_time", as_seconds, device.launch_time);
  read_optional(block, "framework_memory", as_bytes_or_none, device.framework_memory);
  device.memory.value = device.memory.value - device.framework_memory.value;
  if (device.memory.value <= Bytes{}) {
    block.require("framework_memory").fail(block.path() + ".framework_memory: leaves nothing of the device's memory");
  }
  return device;
}

HostProfile read_host(const YamlValue& block) {
  return {.link = read_link(block.require("link")),
          .memory = sourced(block, "memory", as_bytes),
          .memory_bandwidth = sourced(block, "memory_bandwidth", as_bytes_per_second)};
}

// What neighbouring devices share.
void read_tree(const YamlValue& block, Machine& machine) {
  const auto shared_evenly = [&](const YamlValue& count, int parts) {
    if (!shares_evenly(machine, parts)) {
      count.fail(count.path() + ": " + std::to_string(parts) + " does not divide the " +
                 std::to_string(machine.devices) + " devices");
    }
    return parts;
  };
  if (const auto host = block.find("host")) {
    machine.host = read_host(*host);
    if (const auto shared = host->find("devices_per_link")) {
      machine.host.devices_per_link = shared_evenly(*shared, static_cast<int>(shared->integer(1, machine.devices)));
    }
  }
  if (const auto nics = block.find("nics")) {
    machine.nics = shared_evenly(*nics, static_cast<int>(nics->integer(1, machine.devices)));
  }
  const std::optional<YamlValue> devices = block.find("devices_per_switch");
  if (devices) {
    machine.devices_per_switch = shared_evenly(*devices, static_cast<int>(devices->integer(1, machine.devices)));
    machine.uplink = sourced(block, "uplink", as_bytes_per_second);
  } else if (const auto uplink = block.find("uplink")) {
    uplink->fail(uplink->path() + ": of which switches?", "devices_per_switch: …");
  }
}

}  // namespace

const std::vector<std::string>& machine_names() {
  static const std::vector<std::string> names = {"local-cpu",     "dgx-1-v100",  "dgx-2-v100",   "dgx-a100",
                                                 "dgx-a100-4nic", "dgx-h100",    "dgx-h200",     "hgx-h800",
                                                 "dgx-b200",      "gb200-nvl72", "pcie-rtx3090", "pcie-rtx4090"};
  return names;
}

Machine read_machine(const YamlValue& block, ElementType precision) {
  require_sound(block);
  Machine machine{.name = block.require("name").text(),
                  .device = read_device(block.require("device"), precision),
                  .inside = read_link(block.require("inside")),
                  .outside = read_link(block.require("outside"))};
  if (machine.device.type == DeviceType::cpu) {
    machine.collective_bandwidth = machine.inside.bandwidth;
    machine.collective_latency = machine.inside.latency;
  }
  read_optional(block, "collective_bandwidth", as_bytes_per_second, machine.collective_bandwidth);
  read_optional(block, "collective_latency", as_seconds, machine.collective_latency);
  read_optional(block, "collective_latency_per_rank", as_seconds, machine.collective_latency_per_rank);
  read_optional(block, "switch_bandwidth", as_bytes_per_second, machine.switch_bandwidth);
  const std::optional<YamlValue> cores = block.find("cores");
  const bool this_process = cores && cores->is_text() && cores->text() == "usable";
  if (cores) machine.cores = this_process ? usable_cores() : static_cast<int>(cores->integer(1, most_cores));
  const std::optional<YamlValue> devices = block.find("devices");
  machine.devices = devices ? static_cast<int>(devices->integer(1, most_devices)) : machine.cores;
  read_tree(block, machine);
  return machine;
}

}  // namespace plumb
