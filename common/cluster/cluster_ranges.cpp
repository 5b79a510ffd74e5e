#include "common/cluster/cluster_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "common/base/excerpt.hpp"
#include "common/cluster/machine_numbers.hpp"
#include "common/cluster/machine_ranges.hpp"

namespace plumb {
namespace {

constexpr const char* value_key = "value";
constexpr const char* uncertainty_key = "uncertainty_fraction";

void require_in(NumberRange range, const JsonValue& value) {
  const double number = value.number();
  if (number >= range.least && number <= range.most) return;
  value.fail(
      fmt::format("is {}, expected a number from {} to {}", excerpt(to_line(value.raw())), range.least, range.most));
}

void require_uncertainty(const JsonValue& number) { require_in({0, most_uncertainty}, number.at(uncertainty_key)); }

// How a plan calls a number: with its unit.
std::string_view suffix_of(NumberUnit unit) {
  switch (unit) {
    case NumberUnit::fraction:
      return "_fraction";
    case NumberUnit::seconds:
      return "_s";
    case NumberUnit::bytes_per_second:
      return "_bytes_per_s";
    case NumberUnit::flops_per_second:
      return "_flops_per_s";
    case NumberUnit::plain:
      break;
  }
  return "";
}

// Numbers of the device have no prefix, others one for each block around them.
JsonValue json_of(const MachineNumber& number, const JsonValue& machine) {
  JsonValue block = machine;
  std::string key = number.name;
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.')) {
    block = block.at(key.substr(0, dot));
    key = key.substr(dot + 1);
  }
  const bool has_prefix = key != number.name;
  key += suffix_of(number.unit);
  if (has_prefix) return block.at(key);
  const auto of_device = machine.at("device").find(key);
  return of_device ? *of_device : machine.at(key);
}

// A machine's file may do without it, or must: nothing has it as its source then.
bool may_be_left_out(const Machine& machine, std::string_view name) {
  constexpr std::array never = {"peak",           "matmul_efficiency", "memory_bandwidth", "memory_efficiency",
                                "inside.latency", "inside.bandwidth",  "outside.latency",  "outside.bandwidth"};
  constexpr std::array stand_ins_on_cpu = {"attention_efficiency", "collective_bandwidth", "collective_latency"};
  if (std::ranges::find(never, name) != never.end()) return false;
  if (name == "uplink") return machine.devices_per_switch == 0;
  return machine.device.type != DeviceType::cpu || std::ranges::find(stand_ins_on_cpu, name) == stand_ins_on_cpu.end();
}

void require_numbers(const Machine& machine, const JsonValue& value) {
  for (const MachineNumber& number : machine_numbers()) {
    if (is_of_host(number.name) && !value.find("host")) continue;
    const JsonValue json = json_of(number, value);
    require_uncertainty(json);
    const bool left_out = number.value(machine) == 0 && number.source(machine).empty();
    if (left_out && may_be_left_out(machine, number.name)) continue;
    require_in(range_of(number.unit), json.at(value_key));
  }
}

void require_device(const DeviceProfile& device, const JsonValue& value) {
  (void)value.at("multiprocessors").small_integer(0, most_multiprocessors);  // 0: left out
  if (!leaves_multiprocessors(device)) {
    value.at("message_multiprocessors")
        .at(value_key)
        .fail(fmt::format("expected less than the device's {} multiprocessors", device.multiprocessors));
  }
  for (const auto& [key, least] : {std::pair{"memory_bytes", 1}, std::pair{"framework_memory_bytes", 0}}) {
    require_uncertainty(value.at(key));
    (void)value.at(key).at(value_key).integer(least, largest_amount.value);
  }
}

void require_host(const Machine& machine, const JsonValue& value) {
  const auto host = value.find("host");
  if (!host) return;
  const JsonValue shared = host->at("devices_per_link");
  if (!shares_evenly(machine, shared.small_integer(1, machine.devices))) {
    shared.fail(
        fmt::format("is {}, which does not divide the {} devices", machine.host.devices_per_link, machine.devices));
  }
  require_uncertainty(host->at("memory_bytes"));
  (void)host->at("memory_bytes").at(value_key).integer(1, largest_amount.value);
}

void require_machine(const Machine& machine, const JsonValue& value) {
  require_numbers(machine, value);
  require_device(machine.device, value.at("device"));
  (void)value.at("cores").small_integer(0, most_cores);
  (void)value.at("devices").small_integer(1, std::max(most_devices, machine.cores));
  for (const auto& [key, parts] :
       {std::pair{"nics", machine.nics}, std::pair{"devices_per_switch", machine.devices_per_switch}}) {
    if (shares_evenly(machine, value.at(key).small_integer(0, machine.devices))) continue;
    value.at(key).fail(fmt::format("is {}, which does not divide the {} devices", parts, machine.devices));
  }
  require_host(machine, value);
}

}  // namespace

void require_ranges(const Cluster& cluster, const JsonValue& value) {
  require_machine(cluster.machine, value.at("machine"));
  (void)value.at("nodes").small_integer(1, most_nodes);
  (void)value.at("ranks").small_integer(1, most_cluster_ranks);
  (void)value.at("nodes_per_leaf").small_integer(0, most_nodes);
  (void)value.at("nodes_per_site").small_integer(0, most_nodes);
  require_in({1, most_oversubscription}, value.at("oversubscription"));
  const JsonValue sites = value.at("between_sites");
  for (const auto& [key, unit] : {std::pair{"latency_s", NumberUnit::seconds},
                                  std::pair{"bandwidth_bytes_per_s", NumberUnit::bytes_per_second}}) {
    require_uncertainty(sites.at(key));
    if (cluster.nodes_per_site > 0) require_in(range_of(unit), sites.at(key).at(value_key));
  }
}

}  // namespace plumb
