#include <algorithm>
#include <sstream>

#include "common/base/excerpt.hpp"
#include "common/base/synonyms.hpp"
#include "common/capability/capability.hpp"
#include "common/cluster/machine_ranges.hpp"
#include "common/layout/layout_features.hpp"
#include "common/layout/layout_space.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/scenario_file/shipped.hpp"

namespace plumb {
namespace {

constexpr int most_degree = most_cluster_ranks;

}  // namespace

int read_degree(const YamlValue& value) { return value.small_integer(); }

OpenDegrees read_degrees(const YamlValue& value, int& degree) {
  const auto given = auto_or_values(value);
  if (!given) return {.any = true};
  OpenDegrees degrees;
  for (const YamlValue& item : *given) {
    const int one = read_degree(item);
    if (std::ranges::find(degrees.some, one) != degrees.some.end()) item.fail(item.text() + " stands twice");
    degrees.some.push_back(one);
  }
  degree = degrees.some.front();
  if (degrees.some.size() == 1) degrees.some.clear();
  return degrees;
}

namespace {

// What a layout block says, and what it leaves open.
struct LayoutBlock {
  Layout layout = {};
  OpenDegrees pipeline = {};
  TensorChoices tensor = {};
  VocabularyChoices vocabulary = {};
  OpenDegrees data = {};
  bool data_takes_rest = false;  // sharded without a degree: the ranks that are left
  bool any_order = false;
  std::optional<YamlValue> pipeline_place = {};
  std::vector<int> by_stage = {};  // data degrees
  bool by_stage_open = false;
  ShardingChoices sharding = {};
  std::optional<YamlValue> by_stage_place = {};
  [[nodiscard]] bool open() const {
    return pipeline.open() || tensor.open() || vocabulary.open() || data.open() || any_order;
  }
  // That are said; none: any.
  [[nodiscard]] std::vector<int> pipeline_lengths() const {
    if (pipeline.any || !pipeline_place) return {};
    return pipeline.some.empty() ? std::vector<int>{layout.pipeline} : pipeline.some;
  }
};

void read_by_stage(const YamlValue& value, LayoutBlock& result) {
  if (is_auto(value)) {
    result.by_stage_open = result.data.any = true;
    return;
  }
  result.by_stage_place = value;
  for (const YamlValue& item : value.items()) result.by_stage.push_back(read_degree(item));
}

// Fails at `by_stage` where the sharding cannot be planned beside it.
void require_whole_states(const YamlValue& by_stage, Sharding sharding) {
  UsedFeatures used{.set = FeatureSet().set(index_of(Feature::data_by_stage))};
  if (const auto feature = feature_of(sharding)) used.set.set(index_of(*feature));
  for (const Refusal& refusal : refusals(used, Purpose::plan)) by_stage.fail(refusal.problem, refusal.hint);
}

void read_data(const YamlValue& block, LayoutBlock& result) {
  if (is_auto(block)) {
    result.data.any = true;
    return;
  }
  if (!block.is_map()) {
    result.layout.data.degree = read_degree(block);
    return;
  }
  result.sharding = read_shardings(block);
  const std::vector<ShardingBlock>& rules = result.sharding.rules;
  const auto degree = block.find("degree");
  if (degree) {
    result.data = read_degrees(*degree, result.layout.data.degree);
  } else if (rules.size() == 1 && rules.front().kind == Sharding::hsdp) {
    result.layout.data.degree = ranks_of(rules.front());
  } else {
    const auto shards = [](const ShardingBlock& rule) { return rule.kind != Sharding::none; };
    result.data_takes_rest = !block.find("by_stage") && std::ranges::any_of(rules, shards);
  }
  if (const auto by_stage = block.find("by_stage")) {
    if (degree) by_stage->fail("data has a degree, and degrees by stage", "leave one of them out");
    require_whole_states(*by_stage, rules.back().kind);
    read_by_stage(*by_stage, result);
  }
}

// Axes that the list leaves out follow outside of it; they have degree one.
std::array<MeshAxis, 5> read_order(const YamlValue& value) {
  const std::array<MeshAxis, 5> all = Layout{}.order;
  std::vector<std::string> names;
  for (const MeshAxis axis : all) names.emplace_back(axis_name(axis));
  std::vector<MeshAxis> order;
  const auto add = [&](const YamlValue& place, const std::string& word) {
    const auto found = find_name(word, names);
    if (!found) place.fail(place.path() + ": unknown '" + excerpt(word) + "'", did_you_mean(word, names));
    const MeshAxis axis = all.at(*found);
    if (std::find(order.begin(), order.end(), axis) != order.end()) place.fail("'" + excerpt(word) + "' stands twice");
    order.push_back(axis);
  };
  if (value.is_text()) {  // as Megatron-LM writes it: tp-cp-ep-dp-pp
    if (value.text().empty()) value.fail(value.path() + ": is empty", "order: tp-cp-ep-dp-pp, or a list of axes");
    std::istringstream words(value.text());
    for (std::string word; std::getline(words, word, '-');) add(value, word);
  } else {
    for (const YamlValue& item : value.items()) add(item, item.text());
  }
  for (const MeshAxis axis : all) {
    if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  }
  std::array<MeshAxis, 5> result{};
  std::copy(order.begin(), order.end(), result.begin());
  return result;
}

// The data degree with which all other degrees of the layout have this many ranks; none: they do not divide them.
std::optional<std::int64_t> data_degree_for(const Layout& layout, std::int64_t count) {
  const std::int64_t others = rank_product(layout) / layout.data.degree;
  return has_stage_data(layout) || count % others != 0 ? std::nullopt : std::optional(count / others);
}

std::optional<std::int64_t> pipeline_for(const Layout& layout, std::int64_t count) {
  const std::int64_t others = rank_product(layout) / layout.pipeline;
  return has_stage_data(layout) || count % others != 0 ? std::nullopt : std::optional(count / others);
}

// What the cluster must say to have just these ranks, on more nodes where it has too few.
std::string cluster_with(std::int64_t count, const Cluster& cluster) {
  const int devices = cluster.machine.devices;
  const bool cpu = cluster.machine.device.type == DeviceType::cpu;
  const std::string given = "ranks: " + std::to_string(count);
  if (cpu || count <= static_cast<std::int64_t>(cluster.nodes) * devices) return "cluster: {" + given + "}";
  const std::string nodes = "nodes: " + std::to_string(count / devices + (count % devices > 0 ? 1 : 0));
  const bool whole = cluster.ranks == 0 && count % devices == 0;
  return "cluster: {" + nodes + (whole ? "" : ", " + given) + "}";
}

[[noreturn]] void fail_too_many(const YamlValue& place, const Layout& layout, std::int64_t needed,
                                const Cluster& cluster) {
  const int most = cluster.ranks > 0 ? cluster.ranks : most_cluster_ranks;
  place.fail(
      "the layout " + describe(layout) + " has " + std::to_string(needed) + " ranks, the cluster " +
          (cluster.ranks > 0 ? "" : "at most ") + std::to_string(most),
      "degrees whose product is " + (cluster.ranks > 0 ? "" : std::string("no more than ")) + std::to_string(most));
}

std::int64_t ranks_of(const Layout& layout) { return has_stage_data(layout) ? ranks(layout) : rank_product(layout); }

struct GivenDegrees {
  bool pipeline = false;
  bool data = true;  // false: data parallelism takes the ranks that are left, else a pipeline that is not given
};

// Ranks are those of the layout where the cluster leaves them open, and the reverse.
void settle_ranks(const YamlValue& place, Layout& layout, GivenDegrees given, ClusterBlock& block) {
  Cluster& cluster = block.cluster;
  const bool cpu = cluster.machine.device.type == DeviceType::cpu;
  const bool nodes_auto = block.nodes && is_auto(*block.nodes);
  const bool says_ranks = given.data && (given.pipeline || rank_product(layout) > 1);
  if (says_ranks && block.nodes_open) settle_nodes(ranks_of(layout), block);
  const std::int64_t all = static_cast<std::int64_t>(cluster.nodes) * cluster.machine.devices;
  if (!given.pipeline || !given.data) {
    const std::int64_t available = cluster.ranks > 0 ? cluster.ranks : std::min<std::int64_t>(all, most_degree);
    int& takes_rest = given.data ? layout.pipeline : layout.data.degree;
    takes_rest = static_cast<int>(std::max<std::int64_t>(1, available / rank_product(layout)));
  }
  const std::int64_t needed = ranks_of(layout);
  if (needed > most_cluster_ranks) fail_too_many(place, layout, needed, cluster);
  if (cluster.ranks == 0) {
    if (!cpu && needed > all) {
      place.fail("the layout " + describe(layout) + " needs " + std::to_string(needed) + " ranks, the cluster has " +
                     std::to_string(all) + " devices (" + std::to_string(cluster.nodes) + " × " + cluster.machine.name +
                     ")",
                 cluster_with(needed, cluster));
    }
    if (!cpu && block.nodes && !nodes_auto && needed < all) {
      const auto data = data_degree_for(layout, all);
      block.nodes->fail("the layout " + describe(layout) + " has " + std::to_string(needed) + " ranks, the cluster " +
                            std::to_string(all) + " devices (" + std::to_string(cluster.nodes) + " × " +
                            cluster.machine.name + ")",
                        "cluster: {ranks: " + std::to_string(needed) + "} uses no more" +
                            (data ? ", or layout: {data: {degree: " + std::to_string(*data) + "}}" : ""));
    }
    cluster.ranks = static_cast<int>(needed);
  }
  if (needed != cluster.ranks) {
    const auto pipeline = pipeline_for(layout, cluster.ranks);
    place.fail("the layout " + describe(layout) + " has " + std::to_string(needed) + " ranks, the cluster " +
                   std::to_string(cluster.ranks),
               (pipeline ? "pipeline: " + std::to_string(*pipeline) + ", or " : "") + cluster_with(needed, cluster));
  }
  if (cpu) cluster.machine.devices = std::max(1, (cluster.ranks + cluster.nodes - 1) / cluster.nodes);
}

// Fails at the key of a feature that no layout can have yet.
void require_built(const YamlValue& block, const Layout& layout) {
  for (const Refusal& refusal : refusals(features_of(layout) & refused_alone(Purpose::plan), Purpose::plan)) {
    const std::string_view key = facts_of(refusal.feature).key;
    place_of_key(block, key.substr(key.find('.') + 1)).fail(refusal.problem, refusal.hint);
  }
}

LayoutBlock read_block(const YamlValue& given) {
  LayoutBlock result;
  if (is_auto(given)) {
    result.pipeline.any = result.data.any = result.any_order = true;
    result.tensor = read_tensor(given);
    return result;
  }
  const YamlValue block = block_or_file(given, "layout");
  check_block(layout_block(), block);
  if (const auto vocabulary = block.find("vocabulary")) result.vocabulary = read_vocabulary(*vocabulary);
  result.layout.vocabulary_barriers = result.vocabulary.barriers.front();
  if (const auto order = block.find("order")) {
    result.any_order = is_auto(*order);
    if (!result.any_order) result.layout.order = read_order(*order);
  }
  if (const auto tensor = block.find("tensor")) result.tensor = read_tensor(*tensor);
  result.layout.tensor = result.tensor.tensor;
  if (const auto data = block.find("data")) read_data(*data, result);
  if (const auto context = block.find("context")) result.layout.context = read_degree(*context);
  if (const auto expert = block.find("expert")) result.layout.expert = read_degree(*expert);
  require_built(block, result.layout);
  result.pipeline_place = block.find("pipeline");
  if (result.pipeline_place) result.pipeline = read_degrees(*result.pipeline_place, result.layout.pipeline);
  return result;
}

// As many pipeline ranks as degrees, and nothing else open.
void settle_by_stage(LayoutBlock& block) {
  if (block.by_stage.empty()) return;
  const YamlValue& place = *block.by_stage_place;
  const auto count = static_cast<int>(block.by_stage.size());
  if (block.open()) {
    place.fail("data degrees by stage settle a layout: no other of its degrees, nor its order, can be open",
               "one pipeline and one tensor degree");
  }
  if (block.pipeline_place && block.layout.pipeline != count) {
    place.fail(
        std::to_string(count) + " data degrees for a pipeline of " + std::to_string(block.layout.pipeline) + " ranks",
        "pipeline: " + std::to_string(count));
  }
  block.layout.pipeline = count;
  block.layout = with_stage_data(block.layout, block.by_stage);
  try {
    require_consistent(block.layout);
  } catch (const InputError& error) {
    place.fail(error.problem(), error.hint());
  }
}

std::vector<Layout> open_layouts(const YamlValue& place, const LayoutBlock& block, ClusterBlock& cluster_block) {
  Cluster& cluster = cluster_block.cluster;
  const std::int64_t all = static_cast<std::int64_t>(cluster.nodes) * cluster.machine.devices;
  if (cluster.ranks == 0) cluster.ranks = static_cast<int>(std::min<std::int64_t>(all, most_degree));
  const auto degrees = [](const OpenDegrees& open, int one) -> std::optional<std::vector<int>> {
    if (open.any) return std::nullopt;
    return open.some.empty() ? std::vector<int>{one} : open.some;
  };
  LayoutSpace space{.base = block.layout,
                    .pipeline = degrees(block.pipeline, block.layout.pipeline),
                    .tensor = degrees(block.tensor.degrees, block.layout.tensor.degree),
                    .data = degrees(block.data, block.layout.data.degree),
                    .kinds = block.tensor.kinds,
                    .depths = degrees(block.tensor.depths, block.layout.tensor.depth),
                    .sequence_parallel = block.tensor.sequence_parallel,
                    .asynchronous = block.tensor.asynchronous,
                    .reshard_after_forward = block.tensor.reshard_after_forward,
                    .vocabulary_barriers = block.vocabulary.barriers};
  if (!block.any_order) space.orders = {block.layout.order};
  // As in a layout that is settled: a pipeline that nobody mentions takes the ranks that are left.
  if (!block.pipeline_place && !block.data_takes_rest) space.pipeline.reset();
  std::vector<Layout> layouts = layouts_of(space, cluster.ranks);
  if (layouts.empty()) {
    place.fail(
        "no layout with " + degrees_text(space) + " has the " + std::to_string(cluster.ranks) + " ranks of the cluster",
        "the product of the degrees must be " + std::to_string(cluster.ranks) +
            ": let one of them be auto, or change the cluster's ranks or nodes");
  }
  layouts = settled_sharding(layouts, block.sharding, cluster.machine.devices);
  if (cluster.machine.device.type == DeviceType::cpu) {
    cluster.machine.devices = std::max(1, (cluster.ranks + cluster.nodes - 1) / cluster.nodes);
  }
  return layouts;
}

}  // namespace

void require_readable_layout(const YamlValue& given) {
  LayoutBlock block = read_block(given);
  settle_by_stage(block);
}

LayoutChoices read_layouts(const YamlValue& file, const std::optional<YamlValue>& given, ClusterBlock& cluster) {
  if (!given) {
    Layout layout;
    settle_ranks(cluster.ranks ? *cluster.ranks : file, layout, {}, cluster);
    return {.layouts = {layout}};
  }
  LayoutBlock block = read_block(*given);
  settle_by_stage(block);
  if (block.open() && block.data_takes_rest) block.data.any = true;
  if (block.open()) {
    LayoutChoices choices{.layouts = open_layouts(block.pipeline_place.value_or(*given), block, cluster),
                          .tensor_place = block.tensor.place,
                          .vocabulary_place = block.vocabulary.place};
    if (block.by_stage_open) choices.stage_data_pipelines = block.pipeline_lengths();
    return choices;
  }
  const YamlValue place = block.by_stage_place.value_or(block.pipeline_place.value_or(block_or_file(*given, "layout")));
  settle_ranks(place, block.layout,
               {.pipeline = block.pipeline_place || block.by_stage_place, .data = !block.data_takes_rest}, cluster);
  return {.layouts = settled_sharding({block.layout}, block.sharding, cluster.cluster.machine.devices),
          .tensor_place = block.tensor.place,
          .vocabulary_place = block.vocabulary.place};
}

}  // namespace plumb
