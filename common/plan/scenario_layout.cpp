#include <algorithm>

#include "common/plan/scenario_blocks.hpp"
#include "common/plan/shipped.hpp"

namespace plumb {
namespace {

constexpr int most_degree = 1 << 20;

int read_degree(const YamlValue& value) { return static_cast<int>(value.integer(1, most_degree)); }

void refuse_degree(const YamlValue& value, int degree, const std::string& what) {
  if (degree > 1) fail_planned(value, what + " of degree " + std::to_string(degree), "pipeline parallelism");
}

// A number where a block of keys stands is most likely its degree.
void require_block(const YamlValue& value, const std::string& key, const std::string& degree_key) {
  if (!value.is_scalar()) return;
  const bool number = !value.is_text() && value.text() != "true" && value.text() != "false";
  value.fail(value.path() + ": expected keys and values, not '" + value.text() + "'",
             key + ": {" + degree_key + ": " + (number ? value.text() : "1") + "}");
}

TensorLayout read_tensor(const YamlValue& block) {
  require_block(block, "tensor", "degree");
  block.check_keys({"degree", "kind", "depth", "sequence_parallel", "asynchronous"});
  TensorLayout tensor;
  if (const auto degree = block.find("degree")) {
    tensor.degree = read_degree(*degree);
  }
  if (const auto kind = block.find("kind"); kind && kind->choice({"1d", "2d", "2.5d", "3d"}) > 0) {
    fail_planned(*kind, "tensor parallelism of kind " + kind->text());
  }
  if (const auto depth = block.find("depth"); depth && read_degree(*depth) > 1) {
    fail_planned(*depth, "tensor parallelism with a depth");
  }
  if (const auto flag = block.find("sequence_parallel")) tensor.sequence_parallel = flag->boolean();
  if (const auto flag = block.find("asynchronous"); flag && flag->boolean()) {
    fail_planned(*flag, "tensor.asynchronous");
  }
  return tensor;
}

DataLayout read_data(const YamlValue& block) {
  require_block(block, "data", "degree");
  block.check_keys({"degree", "sharding"});
  DataLayout data;
  if (const auto degree = block.find("degree")) {
    data.degree = read_degree(*degree);
  }
  if (const auto sharding = block.find("sharding")) {
    if (sharding->is_map()) {
      sharding->check_keys({"kind", "shard", "replicate"});
      fail_planned(*sharding, "sharding of states");
    }
    if (sharding->choice({"none", "zero1", "zero2", "zero3", "fsdp", "hsdp"}) > 0) {
      fail_planned(*sharding, "sharding " + sharding->text(), "sharding: none");
    }
  }
  return data;
}

// Axes that the list leaves out follow outside of it; they have degree one.
std::array<MeshAxis, 5> read_order(const YamlValue& value) {
  const std::array<MeshAxis, 5> all = Layout{}.order;
  std::vector<std::string> names;
  for (const MeshAxis axis : all) names.emplace_back(axis_name(axis));
  std::vector<MeshAxis> order;
  for (const YamlValue& item : value.items()) {
    const MeshAxis axis = all.at(item.choice(names));
    if (std::find(order.begin(), order.end(), axis) != order.end()) item.fail("'" + item.text() + "' stands twice");
    order.push_back(axis);
  }
  for (const MeshAxis axis : all) {
    if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  }
  std::array<MeshAxis, 5> result{};
  std::copy(order.begin(), order.end(), result.begin());
  return result;
}

// Ranks are those of the layout where the cluster leaves them open, and the reverse.
void settle_ranks(const YamlValue& place, Layout& layout, bool pipeline_given, ClusterBlock& block) {
  Cluster& cluster = block.cluster;
  const bool cpu = cluster.machine.device.type == DeviceType::cpu;
  const std::int64_t all = static_cast<std::int64_t>(cluster.nodes) * cluster.machine.devices;
  if (!pipeline_given) {
    const std::int64_t available = cluster.ranks > 0 ? cluster.ranks : std::min<std::int64_t>(all, most_degree);
    layout.pipeline = static_cast<int>(std::max<std::int64_t>(1, available / ranks(layout)));
  }
  const int needed = ranks(layout);
  if (cluster.ranks == 0) {
    if (!cpu && needed > all) {
      place.fail(
          "the layout " + describe(layout) + " needs " + std::to_string(needed) + " ranks, the cluster has " +
              std::to_string(all) + " devices (" + std::to_string(cluster.nodes) + " × " + cluster.machine.name + ")",
          "cluster: {nodes: " + std::to_string((needed + cluster.machine.devices - 1) / cluster.machine.devices) + "}");
    }
    cluster.ranks = needed;
  }
  if (needed != cluster.ranks) {
    place.fail("the layout " + describe(layout) + " has " + std::to_string(needed) + " ranks, the cluster " +
                   std::to_string(cluster.ranks),
               "pipeline: " + std::to_string(cluster.ranks) + ", or cluster: {ranks: " + std::to_string(needed) + "}");
  }
  if (cpu) cluster.machine.devices = std::max(1, (cluster.ranks + cluster.nodes - 1) / cluster.nodes);
}

}  // namespace

Layout read_layout(const YamlValue& file, const std::optional<YamlValue>& given, ClusterBlock& cluster) {
  Layout layout;
  if (!given) {
    settle_ranks(cluster.ranks ? *cluster.ranks : file, layout, false, cluster);
    return layout;
  }
  if (given->is_text() && given->text() == "auto") {
    given->fail("layout: 'auto' may stand for microbatch, chunks, schedule and split, not for the layout",
                "layout: {pipeline: 4}, or leave it out: then every rank is a pipeline stage");
  }
  const YamlValue block = block_or_file(*given, "layout");
  require_block(block, "layout", "pipeline");
  block.check_keys({"order", "pipeline", "tensor", "data", "context", "expert"});
  if (const auto order = block.find("order")) layout.order = read_order(*order);
  if (const auto tensor = block.find("tensor")) layout.tensor = read_tensor(*tensor);
  if (const auto data = block.find("data")) layout.data = read_data(*data);
  for (const char* key : {"context", "expert"}) {
    if (const auto value = block.find(key)) {
      refuse_degree(*value, read_degree(*value), std::string(key) + " parallelism");
    }
  }
  const std::optional<YamlValue> pipeline = block.find("pipeline");
  if (pipeline) layout.pipeline = read_degree(*pipeline);
  settle_ranks(pipeline ? *pipeline : block, layout, pipeline.has_value(), cluster);
  return layout;
}

}  // namespace plumb
