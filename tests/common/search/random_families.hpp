// Random small scenarios and families of candidates: mixed layers, every schedule, all that changes costs or orders.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/layout/sharding.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/search/family.hpp"
#include "tests/common/plan/scenarios.hpp"

namespace plumb::testing {

// What `make` makes, or nothing where that cannot be built.
template <class Make>
auto if_built(const Make& make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

class RandomFamilies {
 public:
  explicit RandomFamilies(std::uint64_t seed) : random_(seed) {}

  int number(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool coin() { return number(0, 1) == 1; }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(number(0, static_cast<int>(values.size()) - 1))];
  }

  Scenario scenario() {
    std::string model = hybrid_block(layers_of({"full/dense", "sliding/moe", "linear/dense", "full/moe"}));
    if (coin()) model += "  tied_embeddings: true\n";
    return scenario_of(model);
  }

  // Of what grids divide: 2 × 2, 2 × 2 × 2 and two of 2 × 2.
  Scenario dense_scenario() {
    std::string model = hybrid_block(layers_of({"full/dense", "sliding/dense"}));
    model.replace(model.find("kv_heads: 2"), 11, "kv_heads: 4");
    return scenario_of(model + "  tied_embeddings: false\n");
  }
  Family grid_family(const std::vector<std::string>& schedules) {
    Family family = this->family(schedules);
    family.layout.tensor =
        one_of<TensorLayout>({{.degree = 4, .kind = TensorKind::two_d},
                              {.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2},
                              {.degree = 8, .kind = TensorKind::three_d},
                              {.degree = 8, .kind = TensorKind::three_d, .reshard_after_forward = true}});
    family.microbatch *= one_of<std::int64_t>({2, 4});
    return family;
  }

  // Divided over two to eight pipeline ranks, of one or two tensor ranks; of many tokens the tables outweigh the
  // layers.
  Scenario scenario_of_many_tokens() {
    Scenario scenario = this->scenario();
    scenario.model.vocabulary = one_of<std::int64_t>({8400, 67200});
    return scenario;
  }
  Family vocabulary_family() {
    Family family = this->family({"1f1b", "zb-h1"});
    family.layout.pipeline = number(2, 8);
    family.layout.data = {.degree = family.layout.data.degree, .sharding = coin() ? Sharding::zero1 : Sharding::none};
    family.layout.vocabulary_barriers = number(1, 2);
    return family;
  }

  Family family(const std::vector<std::string>& schedules) {
    Family family;
    family.layout.pipeline = number(1, 8);
    family.layout.tensor.degree = one_of<int>({1, 2, 2});  // of two heads of keys
    family.layout.tensor.sequence_parallel = coin();
    family.layout.data.degree = one_of<int>({1, 1, 2, 4});
    family.layout = sharded(family.layout);
    if (coin()) std::swap(family.layout.order[3], family.layout.order[4]);
    family.microbatch = one_of<std::int64_t>({1, 1, 1, 2});
    family.recompute.mode = one_of<RecomputeMode>({RecomputeMode::none, RecomputeMode::selective, RecomputeMode::full});
    family.schedule.name = one_of(schedules);
    const ScheduleEntry& entry = find_schedule(family.schedule.name);
    if (entry.uses_chunks) {
      family.schedule.chunks = entry.fixed_chunks > 0 ? entry.fixed_chunks : entry.chunk_multiple * number(1, 3);
    }
    if (entry.uses_slices) family.schedule.slices = number(1, 4);
    // Of a sequence of 128 tokens; some alone, for they are weighed by whole plans.
    const bool one_rank = family.layout.tensor.degree == 1;
    if (family.schedule.slices == 2 && one_rank) family.schedule.slice_tokens = {96, 32};
    if (family.schedule.slices == 3 && one_rank && family.microbatch == 2) family.schedule.slices_by = SlicesBy::work;
    family.schedule.overlap = entry.uses_overlap && number(0, 3) == 0;
    return family;
  }

 private:
  std::string layers_of(const std::vector<std::string>& kinds) {
    std::string layers;
    const int count = number(1, 4);
    for (int n = 0; n < count; ++n) layers += (n > 0 ? ", " : "") + one_of(kinds) + "*" + std::to_string(number(1, 6));
    return layers;
  }

  Scenario scenario_of(const std::string& model) {
    Scenario scenario = read_text(model + R"(training: {sequence: 128, global_batch: 64, microbatch: 1, precision: bf16}
layout: {pipeline: 1}
cluster: {machine: dgx-a100, nodes: 8, ranks: 1}
)");
    scenario.training.global_batch = one_of<std::int64_t>({16, 48, 64, 96});
    Software& software = scenario.software;
    software.exchange = coin() ? PipelineExchange::synchronous : PipelineExchange::asynchronous;
    software.recompute_unit = coin() ? RecomputeUnit::layer : RecomputeUnit::stage;
    software.flash_attention = coin();
    software.data_overlap = coin();
    software.copies_overlap = coin();
    software.scattered_messages = coin();
    software.hidden_in_pairs = number(0, 3) == 0 ? 0.5 : 0;
    software.step_overhead = {coin() ? 5e-3 : 0.0};
    Machine& machine = scenario.cluster.machine;
    machine.devices = one_of<int>({2, 4, 8});
    machine.outside.bandwidth.value = {one_of<double>({1e8, 1e9, 2e10})};
    machine.device.memory.value = {std::int64_t{number(40, 400)} << 20};
    scenario.training.gradient_clipping = number(0, 3) == 0 ? 1 : 0;
    return scenario;
  }

  // By any rule, or by none, with any flags that the rule has.
  Layout sharded(Layout layout) {
    if (coin()) return layout;
    layout.data.sharding = static_cast<Sharding>(number(1, static_cast<int>(Sharding::hsdp)));
    ShardingAsked asked;
    if (coin()) asked.reshard_after_forward = coin();
    if (coin()) asked.reduces_each_microbatch = coin();
    if (may_quantize(layout.data.sharding)) {
      asked.quantized_weights = coin();
      if (coin()) asked.secondary_shard = 2;
      if (coin()) asked.quantized_gradients = 2;
    }
    if (layout.data.sharding == Sharding::hsdp) asked.replicate = layout.data.degree > 1 && coin() ? 2 : 1;
    return settled_sharding(layout, asked).value();
  }

  std::mt19937_64 random_;
};

}  // namespace plumb::testing
