// What rules of sharding may say, what they are where nothing is said, and which ranks share what.
#include "common/layout/sharding.hpp"

#include <algorithm>
#include <set>

#include "common/base/error.hpp"
#include "common/capability/capability.hpp"
#include "common/layout/layout_features.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

Layout layout_of(Sharding sharding, int data, int pipeline = 1, int shard = 1, int replicate = 1) {
  Layout layout;
  layout.pipeline = pipeline;
  layout.data = {.degree = data, .sharding = sharding, .shard = shard, .replicate = replicate};
  return layout;
}

DataLayout settled(const Layout& layout, const ShardingAsked& asked = {}) {
  return settled_sharding(layout, asked).value().data;
}

}  // namespace

TEST_CASE("without a pipeline weights are gathered and gradients reduced at use, under one once a step") {
  for (const Sharding sharding : {Sharding::zero3, Sharding::fsdp}) {
    CHECK(settled(layout_of(sharding, 4)).reshard_after_forward);
    CHECK(settled(layout_of(sharding, 4)).reduces_each_microbatch);
    CHECK_FALSE(settled(layout_of(sharding, 4, 2)).reshard_after_forward);
    CHECK_FALSE(settled(layout_of(sharding, 4, 2)).reduces_each_microbatch);
    CHECK(settled(layout_of(sharding, 4, 2), {.reshard_after_forward = true}).reshard_after_forward);
    CHECK_FALSE(settled(layout_of(sharding, 4), {.reduces_each_microbatch = false}).reduces_each_microbatch);
  }
  for (const int pipeline : {1, 2}) {
    CHECK(settled(layout_of(Sharding::zero2, 4, pipeline)).reduces_each_microbatch);
    CHECK_FALSE(settled(layout_of(Sharding::zero2, 4, pipeline)).reshard_after_forward);
    CHECK(settled(layout_of(Sharding::zero1, 4, pipeline)) == layout_of(Sharding::zero1, 4).data);
    CHECK(settled(layout_of(Sharding::none, 4, pipeline)) == layout_of(Sharding::none, 4).data);
  }
}

TEST_CASE("one rank alone shares nothing out, whatever is asked") {
  const ShardingAsked all{.reshard_after_forward = true, .reduces_each_microbatch = true};
  CHECK(settled(layout_of(Sharding::fsdp, 1), all) == layout_of(Sharding::fsdp, 1).data);
  CHECK(state_shards(layout_of(Sharding::fsdp, 1)) == 1);
  CHECK_FALSE(shards_weights(layout_of(Sharding::fsdp, 1)));
  CHECK(describe(layout_of(Sharding::fsdp, 1)) == "single");
}

TEST_CASE("the data degree settles HSDP's missing degree") {
  CHECK(settled(layout_of(Sharding::hsdp, 8), {.shard = 4}).replicate == 2);
  CHECK(settled(layout_of(Sharding::hsdp, 8), {.replicate = 4}).shard == 2);
  CHECK(settled(layout_of(Sharding::hsdp, 8), {.shard = 8, .replicate = 1}).shard == 8);
  CHECK(settled(layout_of(Sharding::hsdp, 8), {.replicate = 8}) == DataLayout{.degree = 8});  // shares nothing out
  CHECK_FALSE(settled_sharding(layout_of(Sharding::hsdp, 8), {.shard = 3}));
  CHECK_FALSE(settled_sharding(layout_of(Sharding::hsdp, 8), {.replicate = 16}));
  CHECK_FALSE(settled_sharding(layout_of(Sharding::hsdp, 8), {.shard = 2, .replicate = 2}));
}

TEST_CASE("layouts are named by their sharding, hsdp with both degrees") {
  CHECK(describe(layout_of(Sharding::fsdp, 8)) == "dp8·fsdp");
  CHECK(describe(layout_of(Sharding::zero2, 8, 4)) == "pp4·dp8·zero2");
  CHECK(describe(layout_of(Sharding::hsdp, 8, 1, 4, 2)) == "dp8·hsdp4x2");
  CHECK(describe(layout_of(Sharding::hsdp, 8, 1, 1, 8)) == "dp8");  // a copy on each: plain data parallelism
}

TEST_CASE("weights that actions gather come one block ahead unless it is said, others not at all") {
  CHECK(settled(layout_of(Sharding::fsdp, 4)).prefetch == 1);
  CHECK(settled(layout_of(Sharding::fsdp, 4), {.prefetch = 0}).prefetch == 0);
  CHECK(settled(layout_of(Sharding::fsdp, 4, 2), {.prefetch = 3}).prefetch == 1);
  CHECK(settled(layout_of(Sharding::zero2, 4), {.prefetch = 3}).prefetch == 1);
  Layout layout = layout_of(Sharding::fsdp, 4);
  layout.data.reshard_after_forward = true;
  layout.data.prefetch = 2;
  CHECK_NOTHROW(require_consistent(layout));
  CHECK(gathers_in_words(layout) == "weights gathered in each action, 2 blocks ahead, gradients reduced once a step");
  layout.data.prefetch = 0;
  CHECK(gathers_in_words(layout) == "weights gathered in each action, none ahead, gradients reduced once a step");
  layout.data.prefetch = -1;
  CHECK_THROWS_WITH(require_consistent(layout), ContainsSubstring("from 0 to 1000"));
  layout.data = {.degree = 4, .sharding = Sharding::fsdp, .prefetch = 2};
  CHECK_THROWS_WITH(require_consistent(layout), ContainsSubstring("of weights that each action gathers"));
  layout.data = {.degree = 4, .sharding = Sharding::fsdp, .layers_per_unit = 2};
  CHECK_THROWS_WITH(require_consistent(layout), ContainsSubstring("layers_per_unit is of weights that each action"));
  layout.data.reshard_after_forward = true;
  CHECK_NOTHROW(require_consistent(layout));
  layout.data.prefetch = 2;
  CHECK(gathers_in_words(layout) ==
        "weights gathered in each action, 2 layers as one, 2 units ahead, gradients reduced once a step");
  layout.data.layers_per_unit = 0;
  CHECK_THROWS_WITH(require_consistent(layout), ContainsSubstring("from 1 to 1000"));
  CHECK(settled(layout_of(Sharding::fsdp, 4), {.layers_per_unit = 2}).layers_per_unit == 2);
  CHECK(settled(layout_of(Sharding::fsdp, 4, 2), {.layers_per_unit = 2}).layers_per_unit == 1);
}

namespace {

DataLayout zero_plus_plus(int data, int inside) {
  return {.degree = data,
          .sharding = Sharding::zero3,
          .reshard_after_forward = true,
          .quantized_weights = true,
          .secondary_shard = inside,
          .quantized_gradients = inside};
}

}  // namespace

TEST_CASE("ZeRO++ is settled where its groups divide the ranks, and gathers in actions") {
  const Layout zero3 = layout_of(Sharding::zero3, 16, 2);
  const DataLayout all = settled(zero3, {.quantized_weights = true, .secondary_shard = 8, .quantized_gradients = 8});
  CHECK(all == zero_plus_plus(16, 8));
  CHECK_FALSE(settled_sharding(zero3, {.secondary_shard = 3}));
  CHECK_FALSE(settled_sharding(zero3, {.quantized_gradients = 32}));
  CHECK_FALSE(settled_sharding(zero3, {.secondary_shard = 8, .quantized_gradients = 4}));
  CHECK(settled(zero3, {.secondary_shard = 16}) == zero3.data);
  CHECK(settled(zero3, {.reshard_after_forward = false, .secondary_shard = 8}) == zero3.data);
  CHECK(settled(layout_of(Sharding::hsdp, 16), {.shard = 8, .secondary_shard = 2}).secondary_shard == 0);
  CHECK(settled(layout_of(Sharding::fsdp, 1), {.quantized_weights = true}) == layout_of(Sharding::fsdp, 1).data);
  Layout layout = zero3;
  layout.data = all;
  CHECK(describe(layout) == "pp2·dp16·zero3·qwZ·hpZ8·qgZ8");
  CHECK(
      gathers_in_words(layout) ==
      "weights gathered in each action as int8, but for F from a second copy in groups of 8, gradients reduced once a "
      "step as int4, in groups of 8 first");
}

// d = among · k + place: counted, of every rank of a mesh.
TEST_CASE("neighbours of ZeRO++ and those at one place among them make up the data axis, of each rank one group each") {
  Layout layout;
  layout.pipeline = 2;
  layout.tensor.degree = 2;
  layout.data = zero_plus_plus(12, 4);
  for (int rank = 0; rank < ranks(layout); ++rank) {
    const std::vector<int> all = shard_group(layout, rank);
    std::vector<int> inside;
    std::vector<int> across;
    const auto own = static_cast<int>(std::ranges::find(all, rank) - all.begin());
    for (int d = 0; d < 12; ++d) {
      if (d / 4 == own / 4) inside.push_back(all[static_cast<std::size_t>(d)]);
      if (d % 4 == own % 4) across.push_back(all[static_cast<std::size_t>(d)]);
    }
    CHECK(inside_group(layout, rank) == inside);
    CHECK(across_group(layout, rank) == across);
  }
}

TEST_CASE("inconsistent groups of ZeRO++ are refused") {
  const auto problem = [](const DataLayout& data) {
    Layout layout;
    layout.data = data;
    try {
      require_consistent(layout);
    } catch (const InputError& error) {
      return error.problem();
    }
    return std::string();
  };
  const DataLayout good = zero_plus_plus(16, 4);
  CHECK(problem(good).empty());
  const auto changed = [&](const auto& change) {
    DataLayout data = good;
    change(data);
    return problem(data);
  };
  CHECK_THAT(changed([](DataLayout& data) { data.sharding = Sharding::hsdp; }), ContainsSubstring("of zero3 and fsdp"));
  CHECK_THAT(changed([](DataLayout& data) { data.degree = 1; }), ContainsSubstring("of several ranks"));
  CHECK_THAT(changed([](DataLayout& data) { data.secondary_shard = 1; }), ContainsSubstring("at least 2"));
  CHECK_THAT(changed([](DataLayout& data) { data.quantized_gradients = 5; }), ContainsSubstring("does not divide"));
  CHECK_THAT(changed([](DataLayout& data) { data.secondary_shard = 16; }), ContainsSubstring("all ranks"));
  CHECK_THAT(changed([](DataLayout& data) { data.secondary_shard = 8; }), ContainsSubstring("one number"));
  CHECK_THAT(changed([](DataLayout& data) { data.reshard_after_forward = false; }), ContainsSubstring("resharded"));
}

TEST_CASE("when weights and gradients move is said in words") {
  const auto words = [](Sharding sharding, int pipeline, int shard = 1, int replicate = 1) {
    const ShardingAsked asked{.shard = shard, .replicate = replicate};
    return gathers_in_words(settled_sharding(layout_of(sharding, 8, pipeline), asked).value());
  };
  CHECK(words(Sharding::none, 1).empty());
  CHECK(words(Sharding::zero1, 1) == "weights gathered behind the step, gradients reduced once a step");
  CHECK(words(Sharding::fsdp, 1) == "weights gathered in each action, gradients reduced each microbatch");
  CHECK(words(Sharding::hsdp, 2, 4, 2) ==
        "weights gathered before a stage's first F, gradients reduced once a step, then over the copies");
}

TEST_CASE("an inconsistent sharding is refused, and nothing of it is planned and not built") {
  for (int kind = 0; kind <= static_cast<int>(Sharding::hsdp); ++kind) {
    const auto sharding = static_cast<Sharding>(kind);
    const bool both = sharding == Sharding::hsdp;
    Layout layout = layout_of(sharding, 8, 1, both ? 4 : 1, both ? 2 : 1);
    CHECK_NOTHROW(require_consistent(layout));
    CHECK_FALSE(is_refused(features_of(layout), Purpose::plan));
    layout.data.reshard_after_forward = true;
    if (sharding >= Sharding::zero3) CHECK_NOTHROW(require_consistent(layout));
    if (sharding < Sharding::zero3) {
      CHECK_THROWS_WITH(require_consistent(layout),
                        ContainsSubstring("keeps whole weights") && ContainsSubstring("zero3, fsdp and hsdp"));
    }
    layout.data.reshard_after_forward = false;
    layout.data.reduces_each_microbatch = true;
    if (sharding >= Sharding::zero2) CHECK_NOTHROW(require_consistent(layout));
    if (sharding < Sharding::zero2) {
      CHECK_THROWS_WITH(require_consistent(layout), ContainsSubstring("keeps whole gradients"));
    }
  }
  CHECK_THROWS_WITH(require_consistent(layout_of(Sharding::hsdp, 8, 1, 1, 8)), ContainsSubstring("sharding none"));
  CHECK_THROWS_WITH(require_consistent(layout_of(Sharding::hsdp, 8, 1, 2, 2)),
                    ContainsSubstring("shard 2 and replicate 2 is of a data degree of 4, not of 8"));
  CHECK_THROWS_WITH(require_consistent(layout_of(Sharding::fsdp, 8, 1, 4, 2)), ContainsSubstring("not of fsdp"));
  CHECK_THROWS_WITH(require_consistent(layout_of(Sharding::hsdp, 8, 1, -4, -2)), ContainsSubstring("at least 1"));
}

// d = copy · shard + place in the copy: of a mesh of all axes, by counting.
TEST_CASE("ranks that share a copy are neighbours on the data axis, those with one part stand `shard` apart") {
  Layout layout = layout_of(Sharding::hsdp, 12, 2, 4, 3);
  layout.tensor.degree = 2;
  for (const bool inside : {false, true}) {
    if (inside) std::swap(layout.order[3], layout.order[4]);
    std::set<std::vector<int>> copies;
    std::set<std::vector<int>> parts;
    for (int rank = 0; rank < ranks(layout); ++rank) {
      const MeshCoordinates own = coordinates(layout, rank);
      std::vector<int> sharing;
      std::vector<int> replicas;
      for (int other = 0; other < ranks(layout); ++other) {
        MeshCoordinates there = coordinates(layout, other);
        const int data = static_cast<int>(MeshAxis::data);
        const int from = own.at(data);
        const int to = there.at(data);
        there.at(data) = from;
        if (there != own) continue;
        if (from / 4 == to / 4) sharing.push_back(other);
        if (from % 4 == to % 4) replicas.push_back(other);
      }
      REQUIRE(shard_group(layout, rank) == sharing);
      REQUIRE(replicate_group(layout, rank) == replicas);
      copies.insert(sharing);
      parts.insert(replicas);
    }
    CHECK(copies.size() == 2 * 2 * 3);
    CHECK(parts.size() == 2 * 2 * 4);
  }
  const Layout fsdp = layout_of(Sharding::fsdp, 4);
  CHECK(shard_group(fsdp, 2) == std::vector<int>{0, 1, 2, 3});
  CHECK(replicate_group(fsdp, 2) == std::vector<int>{2});
}
