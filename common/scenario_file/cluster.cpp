#include <algorithm>
#include <filesystem>

#include "common/base/excerpt.hpp"
#include "common/base/input_errors.hpp"
#include "common/base/synonyms.hpp"
#include "common/cluster/machine_ranges.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/scenario_file/shipped.hpp"

namespace plumb {
namespace {

constexpr const char* this_machine = "local-cpu";

// The shipped machine that is meant.
std::optional<std::string> machine_meant(const std::string& word) {
  const auto found = find_name(word, machine_names());
  return found ? std::optional(machine_names()[*found]) : std::nullopt;
}

constexpr std::size_t longest_chain = 8;  // machines that are like another

// A name ("dgx-h100"), a file ("machines/dgx-h100.yaml") or a block.
YamlValue block_of_machine(const YamlValue& value) {
  if (!value.is_text()) return value;
  const std::string text = value.text();
  const std::optional<std::string> name = machine_meant(text);
  const auto found = find_file(name ? "machines/" + *name + ".yaml" : text, value);
  if (found) return YamlValue::load(*found);
  if (std::filesystem::path(text).has_extension()) return YamlValue::load(find_file(value));
  if (name) fail_of_missing_file(value);
  value.fail(value.path() + ": unknown machine '" + excerpt(text) + "'", did_you_mean(text, machine_names()));
}

// A machine's name or a number where the keys should stand that they belong to.
void require_block(const YamlValue& value) {
  const bool machine = machine_meant(value.text()).has_value();
  if (value.is_text() && !machine) {
    const auto nearest = nearest_word(value.text(), machine_names());
    if (!nearest || find_file(value.text(), value)) return;
    value.fail("cluster: unknown machine '" + excerpt(value.text()) + "'",
               "cluster: {machine: " + machine_names()[*nearest] + "}");
  }
  value.fail("cluster: expected keys and values, not '" + excerpt(value.text()) + "'",
             std::string("cluster: {") + (machine ? "machine" : "ranks") + ": " + value.text() + "}");
}

// Of a machine without a type it is not asked: its reader says all that is missing.
ElementType usual_precision(const YamlValue& machine) {
  const std::optional<YamlValue> device = machine.find("device");
  const std::optional<YamlValue> type = device ? device->find("type") : std::nullopt;
  if (type && type->choice({"cpu", "cuda"}) == 0) return ElementType::fp32;
  const std::optional<YamlValue> peak = device ? device->find("peak") : std::nullopt;
  const bool before_bf16 = peak && peak->is_map() && !peak->find("bf16") && peak->find("fp16");
  return before_bf16 ? ElementType::fp16 : ElementType::bf16;
}

void read_overrides(const YamlValue& block, int nodes_for_auto, Cluster& cluster) {
  Machine& machine = cluster.machine;
  if (const auto nodes = block.find("nodes")) {
    cluster.nodes = is_auto(*nodes) ? std::max(1, nodes_for_auto) : nodes->small_integer();
    if (machine.name == this_machine && cluster.nodes > 1) {
      nodes->fail("local-cpu is the machine that this runs on: there is one of it", "nodes: 1, and more ranks");
    }
  }
  if (const auto cores = block.find("cores")) {
    if (machine.device.type != DeviceType::cpu) cores->fail("only ranks on a CPU share cores");
    machine.cores = cores->small_integer();
    machine.devices = machine.cores;
    for (const int parts : {machine.nics, machine.devices_per_switch}) {
      if (shares_evenly(machine, parts)) continue;
      cores->fail(cores->path() + ": the machine's nics or devices_per_switch, " + std::to_string(parts) +
                  ", does not divide the " + std::to_string(machine.devices) + " cores");
    }
  }
  if (const auto outside = block.find("outside")) {
    constexpr const char* source = "given in the scenario";
    if (const auto latency = outside->find("latency")) machine.outside.latency = {latency->seconds(), source};
    if (const auto rate = outside->find("bandwidth")) machine.outside.bandwidth = {rate->bytes_per_second(), source};
  }
  if (const auto memory = block.find("memory")) {
    machine.device.memory = {.value = memory->bytes(), .source = "given in the scenario"};
    machine.device.framework_memory = {.value = {}, .source = "the scenario gives what a rank may use"};
  }
}

// What stands between the nodes.
void read_network(const YamlValue& block, Cluster& cluster) {
  if (const auto leaf = block.find("nodes_per_leaf")) {
    cluster.nodes_per_leaf = leaf->small_integer();
    if (const auto ratio = block.find("oversubscription")) cluster.oversubscription = ratio->number();
  } else if (const auto ratio = block.find("oversubscription")) {
    ratio->fail(ratio->path() + ": of which leaves?", "nodes_per_leaf: …");
  }
  const auto sites = block.find("sites");
  if (!sites) return;
  constexpr const char* source = "given in the scenario";
  cluster.nodes_per_site = sites->require("nodes").small_integer();
  cluster.between_sites = {.latency = {sites->require("latency").seconds(), source},
                           .bandwidth = {sites->require("bandwidth").bytes_per_second(), source}};
}

}  // namespace

YamlValue machine_block(const YamlValue& value) {
  std::vector<YamlValue> chain = {block_of_machine(value)};
  while (chain.back().is_map()) {
    const std::optional<YamlValue> like = chain.back().find("like");
    if (!like) break;
    (void)like->text();  // a name or a file, no block
    if (!chain.back().find("name")) {
      chain.back().fail("a machine that is like another has a name of its own", "name: my-machine");
    }
    if (chain.size() == longest_chain) {
      like->fail("a machine is like a machine that is like another, more than " + std::to_string(longest_chain) +
                     " times: a circle?",
                 "one that is like no other");
    }
    chain.push_back(block_of_machine(*like));
  }
  YamlValue block = chain.back();
  for (std::size_t i = chain.size() - 1; i-- > 0;) block = chain[i].without({"like"}).merged_over(block);
  return block;
}

void settle_nodes(std::int64_t ranks, ClusterBlock& block) {
  const int devices = block.cluster.machine.devices;
  block.cluster.nodes = static_cast<int>(std::min<std::int64_t>((ranks + devices - 1) / devices, most_nodes));
  block.nodes_open = false;
}

ClusterBlock read_cluster(const YamlValue& file, std::optional<ElementType> precision, int nodes) {
  const std::optional<YamlValue> given = file.find("cluster");
  if (given && given->is_scalar()) require_block(*given);
  const YamlValue block =
      given ? block_or_file(*given, "cluster") : YamlValue::parse("{machine: local-cpu}", file.place().file);
  InputErrors errors;
  ClusterBlock result;
  check_fields(cluster_block(), block, errors, &scenario_block());
  if (!block.is_map()) errors.throw_if_any();
  errors.attempt([&] {
    const std::optional<YamlValue> named = block.find("machine");
    result.machine = machine_block(named ? *named : YamlValue::parse(this_machine, block.place().file));
    result.precision = precision.value_or(usual_precision(*result.machine));
    result.cluster.machine = read_machine(*result.machine, result.precision);
  });
  result.cluster.ranks = 0;
  if (errors.none()) errors.attempt([&] { read_overrides(block, nodes, result.cluster); });
  if (errors.none()) errors.attempt([&] { read_network(block, result.cluster); });
  errors.throw_if_any();
  result.nodes = block.find("nodes");
  result.ranks = block.find("ranks");
  result.nodes_open = result.nodes && is_auto(*result.nodes) && result.cluster.machine.name != this_machine;
  if (!result.ranks) return result;

  Cluster& cluster = result.cluster;
  cluster.ranks = result.ranks->small_integer();
  if (result.nodes_open) settle_nodes(cluster.ranks, result);
  const std::int64_t all = static_cast<std::int64_t>(cluster.nodes) * cluster.machine.devices;
  if (cluster.machine.device.type != DeviceType::cpu && cluster.ranks > all) {
    result.ranks->fail(std::to_string(cluster.ranks) + " ranks on " + std::to_string(all) + " devices (" +
                           std::to_string(cluster.nodes) + " × " + cluster.machine.name + ")",
                       "one rank takes one device: more nodes, or at most " + std::to_string(all) + " ranks");
  }
  return result;
}

}  // namespace plumb
