#include "common/cost/profile/profile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/digest.hpp"
#include "common/base/document/yaml.hpp"
#include "common/cost/costs_json.hpp"
#include "common/model/files/model_json.hpp"

namespace plumb {
namespace {

constexpr int profile_version = 2;
constexpr std::int64_t largest_degree = 1 << 20;
constexpr std::int64_t most_bytes = std::int64_t{1} << 53;

// JSON's quotes and numbers are YAML's too.
std::string line(const std::string& key, const Json& value) { return key + ": " + to_line(value) + "\n"; }

Json to_json(const Lora& lora) {
  Json targets = Json::array();
  for (const LoraTarget target : lora.targets) targets.push_back(lora_target_names()[static_cast<std::size_t>(target)]);
  return {{"rank", lora.rank}, {"alpha", lora.alpha}, {"targets", targets}};
}

std::optional<Lora> read_lora(const std::optional<YamlValue>& value) {
  if (!value) return std::nullopt;
  value->check_keys({"rank", "alpha", "targets"});
  Lora lora{.rank = value->require("rank").integer(1), .alpha = value->require("alpha").number(0, 1e6), .targets = {}};
  for (const YamlValue& target : value->require("targets").items()) {
    lora.targets.push_back(static_cast<LoraTarget>(target.choice(lora_target_names())));
  }
  return lora;
}

ProfileShapes read_shapes(const YamlValue& value) {
  value.check_keys({"model", "model_digest", "sequence", "microbatch", "precision", "optimizer", "lora", "tensor"});
  constexpr std::int64_t most = std::int64_t{1} << 40;
  ProfileShapes shapes{
      .model = value.require("model").text(),
      .model_digest = value.require("model_digest").text(),
      .sequence = value.require("sequence").integer(1, most),
      .microbatch = value.require("microbatch").integer(1, most),
      .precision = static_cast<ElementType>(value.require("precision").choice(training_precision_names())),
      .optimizer = static_cast<Optimizer>(value.require("optimizer").choice(optimizer_names())),
      .lora = read_lora(value.find("lora"))};
  if (const auto tensor = value.find("tensor")) {
    tensor->check_keys({"degree", "sequence_parallel"});
    shapes.tensor_degree = static_cast<int>(tensor->require("degree").integer(2, largest_degree));
    shapes.sequence_parallel = tensor->require("sequence_parallel").boolean();
  }
  return shapes;
}

// The keys of a cost are those of its JSON, so that they stand in one place.
MeasuredBlock read_block(const YamlValue& value) {
  Json cost = to_json(ComputeCost{});
  std::vector<std::string> keys = {"block", "count", "spread_fraction"};
  for (const auto& [key, unused] : cost.items()) keys.push_back(key);
  value.check_keys(keys);
  for (auto& [key, number] : cost.items()) {
    if (number.is_number_float()) {
      number = value.require(key).number(0, longest_time.value);
    } else {
      number = value.require(key).integer(0, most_bytes);
    }
  }
  return {.block = value.require("block").text(),
          .cost = compute_cost_from_json(JsonValue(cost, to_string(value.place()))),
          .spread_fraction = value.require("spread_fraction").number(0, longest_time.value),
          .count = static_cast<int>(value.require("count").integer(1))};
}

TransferCost read_transfer(const YamlValue& value) {
  value.check_keys({"latency_s", "bandwidth_bytes_per_s"});
  TransferCost cost{.latency = {value.require("latency_s").number(0, longest_time.value)},
                    .bandwidth = {std::numeric_limits<double>::infinity()}};
  const std::optional<YamlValue> bandwidth = value.find("bandwidth_bytes_per_s");
  if (bandwidth) cost.bandwidth = {bandwidth->number(slowest_bandwidth.value, fastest_bandwidth.value)};
  return cost;
}

std::string to_yaml(const MeasuredRate& rate) {
  Json samples = Json::array();
  for (const RateSample& sample : rate.samples) samples.push_back({sample.bytes.value, sample.time.value});
  return "  - " + line("operation", rate.operation) + "    " + line("ranks", rate.ranks) + "    " +
         line("latency_s", rate.cost.latency.value) + "    " +
         line("bandwidth_bytes_per_s", rate.cost.bandwidth.value) + "    " + line("bytes_and_seconds", samples);
}

MeasuredRate read_rate(const YamlValue& value) {
  value.check_keys({"operation", "ranks", "latency_s", "bandwidth_bytes_per_s", "bytes_and_seconds"});
  MeasuredRate rate{.operation = value.require("operation").text(),
                    .ranks = static_cast<int>(value.require("ranks").integer(1)),
                    .cost = {.latency = {value.require("latency_s").number(0, longest_time.value)},
                             .bandwidth = {value.require("bandwidth_bytes_per_s")
                                               .number(slowest_bandwidth.value, fastest_bandwidth.value)}},
                    .samples = {}};
  for (const YamlValue& sample : value.require("bytes_and_seconds").items()) {
    const std::vector<YamlValue> both = sample.items();
    if (both.size() != 2) sample.fail("expected bytes and seconds", "[4096, 0.00001]");
    rate.samples.push_back({{both[0].integer(0, most_bytes)}, {both[1].number(0, longest_time.value)}});
  }
  return rate;
}

}  // namespace

const MeasuredBlock& measured_block(const Profile& profile, const std::string& key) {
  const auto found = std::find_if(profile.blocks.begin(), profile.blocks.end(),
                                  [&](const MeasuredBlock& block) { return block.block == key; });
  if (found == profile.blocks.end()) throw InputError("profile", "has no block '" + key + "'", "calibrate again");
  return *found;
}

std::string to_yaml(const Profile& profile) {
  std::string text = "# What plumb-exec calibrate measured on one machine, for one microbatch of these shapes.\n";
  text += line("version", profile_version) + line("machine", profile.machine) + line("versions", profile.versions);
  text += line("busy_ranks", profile.busy_ranks);
  text += line("samples", profile.samples) + line("rejected", profile.rejected);
  text += "shapes:\n  " + line("model", profile.shapes.model);
  text += "  " + line("model_digest", profile.shapes.model_digest);
  text += "  " + line("sequence", profile.shapes.sequence) + "  " + line("microbatch", profile.shapes.microbatch);
  text += "  " + line("precision", name_of(profile.shapes.precision));
  text += "  " + line("optimizer", optimizer_names().at(static_cast<std::size_t>(profile.shapes.optimizer)));
  if (profile.shapes.lora) text += "  " + line("lora", to_json(*profile.shapes.lora));
  if (profile.shapes.tensor_degree > 1) {
    text += "  " + line("tensor", Json{{"degree", profile.shapes.tensor_degree},
                                       {"sequence_parallel", profile.shapes.sequence_parallel}});
  }
  text += line("transport", profile.transport);
  text += "transfer:\n  " + line("latency_s", profile.transfer.latency.value);
  if (std::isfinite(profile.transfer.bandwidth.value)) {
    text += "  " + line("bandwidth_bytes_per_s", profile.transfer.bandwidth.value);
  }
  if (!profile.rates.empty()) text += "rates:\n";
  for (const MeasuredRate& rate : profile.rates) text += to_yaml(rate);
  text += "blocks:\n";
  for (const MeasuredBlock& block : profile.blocks) {
    text += "  - " + line("block", block.block) + "    " + line("count", block.count);
    text += "    " + line("spread_fraction", block.spread_fraction);
    const Json cost = to_json(block.cost);
    for (const auto& [key, value] : cost.items()) text += "    " + line(key, value);
  }
  return text;
}

Profile read_profile(const std::filesystem::path& path) {
  const YamlValue file = YamlValue::load(path);
  file.check_keys({"version", "machine", "versions", "samples", "rejected", "busy_ranks", "shapes", "transport",
                   "transfer", "rates", "blocks"});
  const YamlValue version = file.require("version");
  if (version.integer(0) != profile_version) {
    version.fail("this is a profile of version " + version.text() + ", expected " + std::to_string(profile_version),
                 "measure it again: plumb-exec calibrate SCENARIO -o " + path.string());
  }
  Profile profile{.machine = file.require("machine").text(),
                  .versions = file.require("versions").text(),
                  .busy_ranks = static_cast<int>(file.require("busy_ranks").integer(1)),
                  .samples = static_cast<int>(file.require("samples").integer(0)),
                  .rejected = static_cast<int>(file.require("rejected").integer(0)),
                  .shapes = read_shapes(file.require("shapes")),
                  .blocks = {},
                  .transfer = read_transfer(file.require("transfer")),
                  .transport = file.require("transport").text()};
  if (const auto rates = file.find("rates")) {
    for (const YamlValue& rate : rates->items()) profile.rates.push_back(read_rate(rate));
  }
  for (const YamlValue& block : file.require("blocks").items()) {
    const std::string name = block.require("block").text();
    const bool twice = std::any_of(profile.blocks.begin(), profile.blocks.end(),
                                   [&](const MeasuredBlock& other) { return other.block == name; });
    if (twice) block.fail("the block '" + name + "' stands twice");
    profile.blocks.push_back(read_block(block));
  }
  return profile;
}

std::string block_key(const Model& model, int block) {
  const int layers = static_cast<int>(model.layers.size());
  if (block == 0) return "embedding";
  if (block == layers + 1) return "head";
  const Layer& layer = model.layers.at(static_cast<std::size_t>(block - 1));
  std::string key = kind_name(layer) + " hidden=" + std::to_string(model.hidden);
  const Json shapes = to_json(layer).flatten();
  for (const auto& [path, value] : shapes.items()) {
    std::string name = path.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    key += " " + name + "=" + (value.is_string() ? value.get<std::string>() : to_line(value));
  }
  return key;
}

std::string model_digest(const Model& model) {
  Model costing = model;  // what no time depends on is left out
  costing.arithmetic = {};
  costing.hugging_face.reset();
  Json shapes = to_json(costing);
  shapes.erase("name");
  return digest(to_line(shapes));
}

double moved_fraction(const Profile& before, const Profile& after) {
  if (before.shapes != after.shapes) {
    throw InputError(
        "profile", "the two profiles are not of the same shapes: " + before.shapes.model + " and " + after.shapes.model,
        "calibrate twice with one scenario");
  }
  Seconds moved;
  Seconds total;
  for (const MeasuredBlock& block : before.blocks) {
    const Seconds first = microbatch_time(block.cost, false);
    const Seconds second = microbatch_time(measured_block(after, block.block).cost, false);
    moved += Seconds{std::abs((second - first).value)} * block.count;
    total += first * block.count;
  }
  return total.value > 0 ? moved / total : 0;
}

}  // namespace plumb
