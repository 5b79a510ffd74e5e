// What a scenario leaves open of its layout and recompute, read into lists; what it settles stands first.
#include <algorithm>

#include "common/base/error.hpp"
#include "common/layout/divisible.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

const std::string eight = "cluster: {machine: dgx-h100}\n";

std::vector<std::string> names(const Scenario& scenario) {
  std::vector<std::string> list;
  for (const Layout& layout : scenario.layouts) list.push_back(describe(layout));
  return list;
}

Layout tensor_layout(int degree) {
  Layout layout;
  layout.tensor.degree = degree;
  return layout;
}

}  // namespace

TEST_CASE("a scenario that settles its layout has one of each") {
  const Scenario scenario = read_text(scenario_text(eight + "layout: {pipeline: 4, data: {degree: 2}}\n"));
  CHECK(scenario.layouts == std::vector<Layout>{scenario.layout});
  CHECK(scenario.recomputes == std::vector<Recompute>{scenario.training.recompute});
  CHECK(combinations(scenario) == 1);
}

TEST_CASE("a layout as tables print it is answered with its keys, which make that layout") {
  const auto hint_of = [](const std::string& layout) -> std::string {
    try {
      (void)read_text(scenario_text("cluster: {machine: dgx-h100, nodes: 2}\nlayout: " + layout + "\n"));
    } catch (const InputError& error) {
      return error.hint();
    }
    return "no error";
  };
  CHECK(hint_of("pp8·tp2, sp") == "layout: {pipeline: 8, tensor: {degree: 2, sequence_parallel: true}}");
  for (const std::string printed :
       {"pp8·tp2", "tp2·dp8", "pp4·dp4", "pp4·dp4·zero1", "pp2·tp2·dp4·fsdp", "pp2·dp12-4"}) {
    CAPTURE(printed);
    const std::string keys = hint_of(printed);
    CAPTURE(keys);
    const Scenario scenario = read_text(
        scenario_text("cluster: {machine: dgx-h100, nodes: 2}\n" + (keys.starts_with("layout: ") ? keys : "?") + "\n"));
    CHECK(describe(scenario.layout) == printed);
  }
  CHECK(hint_of("pp2·dp8·hsdp4x2").starts_with("write its keys, as in layout: {pipeline: "));
}

TEST_CASE("layout auto opens degrees, sequence parallelism and order over all ranks of the cluster") {
  const Scenario scenario = read_text(scenario_text(eight + "layout: auto\ntraining: {recompute: auto}\n"));
  CHECK(scenario.cluster.ranks == 8);
  CHECK(scenario.layout == scenario.layouts.front());
  for (const Layout& layout : scenario.layouts) CHECK(ranks(layout) == 8);
  // tp1: pp1, 2, 4, 8 with orders 1, 2, 2, 1; tp2: pp1, 2, 4 with 2, 6, 2, twice; tp4: 2, 2, twice; tp8: 1, twice.
  CHECK(scenario.layouts.size() == 6 + 2 * (2 + 6 + 2) + 2 * (2 + 2) + 2);
  CHECK(scenario.recomputes.size() == 3);
  CHECK(scenario.training.recompute == scenario.recomputes.front());
  // Without a batch one that every layout divides.
  for (const Layout& layout : scenario.layouts) CHECK(scenario.training.global_batch % batch_shards(layout) == 0);
}

TEST_CASE("a recompute is named as scenarios write it") {
  for (const std::string name : {"none", "selective", "full", "{layers: 2}", "{every: 2}"}) {
    CHECK(describe(read_text(scenario_text("training: {recompute: " + name + "}\n")).training.recompute) == name);
  }
}

TEST_CASE("offload is printed as scenarios write it, as one value or a list of candidates") {
  const std::string sharded = "layout: {pipeline: 1, data: {degree: 2, sharding: fsdp}}\n";  // as parameters need
  for (const std::string name : {"none", "optimizer", "activations", "optimizer+activations", "parameters",
                                 "optimizer+parameters", "optimizer+parameters+activations"}) {
    const Scenario one = read_text(scenario_text("training: {offload: " + name + "}\n" + sharded));
    CHECK(describe(one.training.offload) == name);
    CHECK(combinations(one) == 1);
  }
  const Offload both{.optimizer = true, .parameters = true};
  CHECK(read_text(scenario_text("training: {offload: params + optimizer}\n" + sharded)).training.offload == both);
  const Scenario open = read_text(scenario_text("training: {offload: [optimizer, none]}\n"));
  CHECK(open.offloads == std::vector<Offload>{{.optimizer = true}, {}});
  CHECK(open.training.offload == open.offloads.front());
  CHECK(combinations(open) == 2);
  CHECK(leaves_layout_open(open));
  CHECK(read_text(scenario_text("training: {offload: auto}\n")).offloads.size() == 4);
}

TEST_CASE("some degrees are settled, some lists, some follow") {
  const Scenario data = read_text(scenario_text(eight + "layout: {pipeline: 2, tensor: {degree: 2}, data: auto}\n"));
  CHECK(names(data) == std::vector<std::string>{"pp2·tp2·dp2"});
  const Scenario list = read_text(scenario_text(eight + "layout: {pipeline: [8, 2], data: {degree: auto}}\n"));
  CHECK(names(list) == std::vector<std::string>{"pp8", "pp2·dp4"});
  // A pipeline that nobody mentions takes the ranks that are left.
  const Scenario left = read_text(scenario_text(eight + "layout: {tensor: {degree: [1, 2, 4]}}\n"));
  CHECK(names(left) == std::vector<std::string>{"pp8", "pp4·tp2", "pp2·tp4"});
  const Scenario fewer =
      read_text(scenario_text("cluster: {machine: dgx-h100, ranks: 4}\nlayout: {pipeline: auto, data: auto}\n"));
  CHECK(names(fewer) == std::vector<std::string>{"dp4", "pp2·dp2", "pp4"});
  // As Megatron-LM writes an order.
  const std::string nested = "layout: {pipeline: 4, data: {degree: 2}, order: ";
  CHECK(read_text(scenario_text(eight + nested + "tp-cp-ep-pp-dp}\n")).layout ==
        read_text(scenario_text(eight + nested + "[tensor, context, expert, pipeline, data]}\n")).layout);
  const Scenario orders = read_text(scenario_text(eight + "layout: {order: auto, pipeline: 4, data: {degree: 2}}\n"));
  CHECK(orders.layouts.size() == 2);
  const Scenario parallel = read_text(
      scenario_text(eight + "layout: {pipeline: 4, tensor: {degree: 2, sequence_parallel: [true, false]}}\n"));
  REQUIRE(parallel.layouts.size() == 2);
  CHECK(parallel.layouts[0].tensor.sequence_parallel);
  CHECK_FALSE(parallel.layouts[1].tensor.sequence_parallel);
}

TEST_CASE("shardings are read by their names, those of others and stages' numbers") {
  const auto read = [](const std::string& data) {
    return read_text(scenario_text(eight + "layout: {pipeline: 1, data: {degree: 8, sharding: " + data + "}}\n"))
        .layout;
  };
  const std::vector<std::pair<std::string, Sharding>> named = {{"none", Sharding::none},
                                                               {"0", Sharding::none},
                                                               {"1", Sharding::zero1},
                                                               {"2", Sharding::zero2},
                                                               {"3", Sharding::zero3},
                                                               {"zero-2", Sharding::zero2},
                                                               {"ZeRO_3", Sharding::zero3},
                                                               {"FULL_SHARD", Sharding::fsdp},
                                                               {"SHARD_GRAD_OP", Sharding::zero2},
                                                               {"fully_shard", Sharding::fsdp},
                                                               {"optim_grads_params", Sharding::zero3}};
  for (const auto& [word, sharding] : named) {
    CAPTURE(word);
    CHECK(read(word).data.sharding == sharding);
  }
  const Layout hybrid = read("{kind: HYBRID_SHARD, shard: 4}");
  CHECK(describe(hybrid) == "dp8·hsdp4x2");
  CHECK(read("{shard: 4, replicate: 2}") == hybrid);
  CHECK(hybrid.data.reshard_after_forward);
  CHECK_FALSE(read("fsdp, reshard_after_forward: false").data.reshard_after_forward);
  CHECK_FALSE(read("fsdp, reduce: last_microbatch").data.reduces_each_microbatch);
  CHECK(read("fsdp, reduce: last_microbatch").data.reshard_after_forward);
  CHECK_FALSE(read("zero2, reduce: last_microbatch").data.reduces_each_microbatch);
}

TEST_CASE("how many blocks are gathered ahead is read for layouts whose actions gather") {
  const auto read = [](const std::string& layout) { return read_text(scenario_text(eight + layout)); };
  const auto of_all = [&](const std::string& more) {
    return read("layout: {pipeline: 1, data: {degree: 8, sharding: " + more +
                "}}\nsoftware: {like: plumb, data_overlap: true}\n")
        .layout.data.prefetch;
  };
  CHECK(of_all("fsdp") == 1);
  CHECK(of_all("fsdp, prefetch: 0") == 0);
  CHECK(of_all("{kind: hsdp, shard: 4}, prefetch: 2") == 2);
  CHECK(of_all("zero++, prefetch: 1000") == 1000);
  CHECK(of_all("[zero1, fsdp], prefetch: 2") == 1);  // of the first
  CHECK(read("layout: {pipeline: 1, data: {degree: 8, sharding: fsdp, layers_per_unit: 4}}\n")
            .layout.data.layers_per_unit == 4);
  const Scenario open = read("layout: {pipeline: auto, data: {degree: auto, sharding: [zero2, fsdp], prefetch: 2}}\n");
  for (const Layout& layout : open.layouts) {
    CHECK(layout.data.prefetch == (gathers_in_actions(layout) ? 2 : 1));
  }
  CHECK(std::ranges::count_if(open.layouts, gathers_in_actions) == 1);
}

TEST_CASE("ZeRO++ is stage 3 with what it adds, each of which stands alone as well, in groups of a machine") {
  const auto read = [](const std::string& data, const std::string& pipeline = "1") {
    return describe(read_text(scenario_text("cluster: {machine: dgx-h100, nodes: 2}\nlayout: {pipeline: " + pipeline +
                                            ", data: {degree: auto, sharding: " + data + "}}\n"))
                        .layout);
  };
  const std::string all = "dp16·zero3·qwZ·hpZ8·qgZ8";
  for (const char* word : {"zero++", "ZeRO++", "zeropp", "zero_plus_plus", "{kind: zero++}"}) CHECK(read(word) == all);
  CHECK(read("zero3, quantized_weights: true, secondary_shard: 8, quantized_gradients: true") == all);
  CHECK(read("zero3, quantized_weights: true, secondary_shard: true, quantized_gradients: 8") == all);
  CHECK(read("zero++, quantized_gradients: false") == "dp16·zero3·qwZ·hpZ8");
  CHECK(read("zero++, secondary_shard: 4") == "dp16·zero3·qwZ·hpZ4·qgZ4");
  CHECK(read("zero++, reshard_after_forward: false") == "dp16·zero3·qwZ·qgZ8");
  CHECK(read("fsdp, reshard_after_forward: 4") == "dp16·fsdp·hpZ4");
  CHECK(read("fsdp, reshard_after_forward: 16") == "dp16·fsdp");
  CHECK(read("fsdp, quantized_gradients: true") == "dp16·fsdp·qgZ8");
  // On one machine, or one rank of each, there is no group between one rank and all.
  CHECK(read("zero++", "2") == "pp2·dp8·zero3·qwZ·qgZ8");
  CHECK(read("zero++, secondary_shard: 2", "2") == "pp2·dp8·zero3·qwZ·hpZ2·qgZ2");
  CHECK(read("[zero1, zero++]", "1") == "dp16·zero1");
  const Scenario open = read_text(scenario_text(
      "cluster: {machine: dgx-h100, nodes: 2}\nlayout: {pipeline: [1, 16], data: {degree: auto, sharding: "
      "[zero1, zero++]}}\n"));
  CHECK(names(open) == std::vector<std::string>{"dp16·zero1", all, "pp16"});
  for (const char* pipeline : {"1", "2"}) {
    const Layout layout =
        read_text(scenario_text("cluster: {machine: dgx-h100, nodes: 4}\nlayout: {pipeline: " + std::string(pipeline) +
                                ", data: {degree: auto, sharding: zero++}}\n"))
            .layout;
    CHECK(layout.data.reshard_after_forward);  // a second copy is for weights that are gathered again
    CHECK(layout.data.reduces_each_microbatch == (layout.pipeline == 1));
  }
}

TEST_CASE("each layout of open degrees settles the sharding by its own pipeline") {
  const Scenario open =
      read_text(scenario_text(eight + "layout: {pipeline: auto, data: {degree: auto, sharding: fsdp}}\n"));
  CHECK(names(open) == std::vector<std::string>{"dp8·fsdp", "pp2·dp4·fsdp", "pp4·dp2·fsdp", "pp8"});
  for (const Layout& layout : open.layouts) {
    CHECK(layout.data.reshard_after_forward == (layout.pipeline == 1));
    CHECK(layout.data.reduces_each_microbatch == (layout.pipeline == 1));
  }
  const Scenario hybrid = read_text(
      scenario_text(eight + "layout: {pipeline: auto, data: {degree: auto, sharding: {kind: hsdp, shard: 2}}}\n"));
  CHECK(names(hybrid) == std::vector<std::string>{"dp8·hsdp2x4", "pp2·dp4·hsdp2x2", "pp4·dp2·hsdp2x1"});
  // Several rules, or all: each layout with every one, once where a rank is alone; of hsdp a copy on each machine.
  const Scenario some = read_text(scenario_text(
      eight + "layout: {pipeline: [4, 8], data: {degree: auto, sharding: [none, zero1, {kind: hsdp, shard: 4}]}}\n"));
  CHECK(names(some) == std::vector<std::string>{"pp4·dp2", "pp4·dp2·zero1", "pp8"});
  const Scenario any = read_text(scenario_text(
      "cluster: {machine: dgx-h100, nodes: 2}\nlayout: {pipeline: 1, data: {degree: 16, sharding: auto}}\n"));
  CHECK(names(any) == std::vector<std::string>{"dp16", "dp16·zero1", "dp16·zero2", "dp16·fsdp", "dp16·hsdp8x2"});
  CHECK(any.layout == any.layouts.front());
  // Without a degree hsdp's own two are it.
  const Scenario own = read_text(
      scenario_text(eight + "layout: {pipeline: 2, data: {sharding: {kind: hsdp, shard: 2, replicate: 2}}}\n"));
  CHECK(describe(own.layout) == "pp2·dp4·hsdp2x2");
}

// plumb-exec refuses a plan that divides tokens within a tensor group of one rank.
TEST_CASE("a layout that leaves sequence parallelism open has none where the tensor degree is one") {
  for (const char* const layout : {"auto", "{tensor: auto}", "{tensor: {sequence_parallel: auto}}",
                                   "{tensor: {degree: [1, 2], sequence_parallel: true}}"}) {
    INFO(layout);
    bool alone = false;
    for (const Layout& each : read_text(scenario_text(eight + "layout: " + layout + "\n")).layouts) {
      alone = alone || each.tensor.degree == 1;
      CHECK((each.tensor.degree > 1 || !each.tensor.sequence_parallel));
    }
    CHECK(alone);
  }
}

TEST_CASE("a plan of one choice is that of a scenario which settles it") {
  const std::string rest = "schedule: 1f1b\nsplit: uniform\ntraining: {global_batch: 8, sequence: 64, recompute: ";
  const Scenario open = read_text(scenario_text(eight + "layout: auto\n" + rest + "auto}\n"));
  const Scenario settled = read_text(
      scenario_text(eight + "layout: {pipeline: 2, tensor: {degree: 2, sequence_parallel: true}, data: {degree: 2}}\n" +
                    rest + "full}\n"));
  const PlanChoice one{.microbatch = 2, .split = {.method = SplitMethod::uniform}};
  PlanChoice choice = one;
  choice.layout = settled.layout;
  choice.recompute = settled.training.recompute;
  REQUIRE(std::ranges::find(open.layouts, settled.layout) != open.layouts.end());
  CHECK(make_plan(open, choice) == make_plan(settled, one));
}

TEST_CASE("a tensor degree that divides not all heads is named, and the planner leaves it out with the reason") {
  const Scenario scenario = read_text(scenario_text(eight + "layout: auto\nsplit: uniform\n"));
  CHECK_THROWS_WITH(require_divisible(scenario.model, tensor_layout(8)),
                    ContainsSubstring("a tensor degree of 8 does not divide 4 heads"));
  CHECK_NOTHROW(require_divisible(scenario.model, tensor_layout(4)));  // twice as many as kv_heads: copies
  Model of_six = scenario.model;
  for (Layer& layer : of_six.layers) {
    auto& attention = std::get<SoftmaxAttention>(layer.mixer);
    attention.heads = 12;
    attention.kv_heads = 6;
  }
  CHECK_THROWS_WITH(require_divisible(of_six, tensor_layout(4)),
                    ContainsSubstring("neither divides 6 kv_heads nor is a multiple of them"));
  CHECK_THROWS_WITH(require_divisible(scenario.model, tensor_layout(3)), ContainsSubstring("64 hidden"));
  CHECK_NOTHROW(require_divisible(scenario.model, tensor_layout(2)));
  const PlanningResult result = plan_scenario(scenario, predict_by_path);
  for (const Candidate& candidate : result.candidates) {
    if (candidate.choice.layout->tensor.degree <= 4) continue;
    CHECK_FALSE(candidate.built);
    CHECK_THAT(candidate.reason, ContainsSubstring("heads"));
  }
  CHECK(best_fitting(result, scenario).fits);
}

TEST_CASE("degrees that multiply to more ranks than an int holds are told beside those of the cluster") {
  const auto said = [](const std::string& cluster, const std::string& layout) {
    return message_for(scenario_text("cluster: {machine: local-cpu" + cluster + "}\nlayout: " + layout + "\n"));
  };
  const std::string squared = "has 4294967296 ranks, the cluster 4";
  CHECK_THAT(said(", ranks: 4", "{pipeline: 65536, tensor: {degree: 65536}}"), ContainsSubstring(squared));
  CHECK_THAT(said(", ranks: 4", "{pipeline: [65536], tensor: {degree: [65536]}}"), ContainsSubstring(squared));
  CHECK_THAT(said(", ranks: 4", "{tensor: {degree: 65536}, data: {degree: 65536}}"), ContainsSubstring(squared));
  CHECK_THAT(said("", "{pipeline: 65536, data: {degree: 65536}}\ntraining: {global_batch: 65536}"),
             ContainsSubstring("has 4294967296 ranks, the cluster at most 1048576"));
  CHECK_THAT(said("", "{pipeline: 1048576, tensor: {degree: 1048576}, data: {degree: 1048576}}"),
             ContainsSubstring("has 1152921504606846976 ranks"));
  CHECK_THAT(said("", "{tensor: {degree: 65536}, data: {by_stage: [65536, 1]}}"), ContainsSubstring("too many ranks"));
}

TEST_CASE("a vocabulary over the pipeline is one of none, one and two barriers, a list of them, or all") {
  using Names = std::vector<std::string>;
  const auto layouts_in = [](const std::string& layout) {
    return names(read_text(scenario_text("cluster: {machine: dgx-h100, ranks: 2}\nlayout: {" + layout + "}\n")));
  };
  const Names all = {"pp2", "pp2·vocabulary1", "pp2·vocabulary2"};
  CHECK(layouts_in("pipeline: 2") == Names{"pp2"});
  CHECK(layouts_in("pipeline: 2, vocabulary: {}") == Names{"pp2·vocabulary1"});
  CHECK(layouts_in("pipeline: 2, vocabulary: {over: none}") == Names{"pp2"});
  CHECK(layouts_in("pipeline: 2, vocabulary: auto") == all);
  CHECK(layouts_in("pipeline: 2, vocabulary: {over: auto, barriers: auto}") == all);
  CHECK(layouts_in("pipeline: 2, vocabulary: {barriers: [2, 1]}") == Names{"pp2·vocabulary2", "pp2·vocabulary1"});
  CHECK(layouts_in("pipeline: 2, vocabulary: {over: [pipeline, none], barriers: 2}") ==
        Names{"pp2·vocabulary2", "pp2"});
  // A pipeline of one rank has nothing to divide among its ranks: each layout stands once.
  CHECK(layouts_in("pipeline: auto, data: auto, vocabulary: auto") ==
        Names{"dp2", "pp2", "pp2·vocabulary1", "pp2·vocabulary2"});
  CHECK(layouts_in("pipeline: auto, data: auto, vocabulary: {}") == Names{"dp2", "pp2·vocabulary1"});
}

TEST_CASE("faults of vocabulary parallelism are reported at line and key") {
  const auto told = [](const std::string& vocabulary) {
    return message_for(
        scenario_text("cluster: {machine: dgx-h100, ranks: 2}\nlayout:\n  pipeline: 2\n  vocabulary: " + vocabulary));
  };
  CHECK_THAT(told("{over: tensor}\n"), ContainsSubstring("scenario.yaml:14:") && ContainsSubstring("vocabulary.over") &&
                                           ContainsSubstring("unknown 'tensor'"));
  CHECK_THAT(told("{over: [pipeline, pipeline]}\n"), ContainsSubstring("scenario.yaml:14:33: 'pipeline' stands twice"));
  CHECK_THAT(told("{barriers: 3}\n"), ContainsSubstring("scenario.yaml:14:") && ContainsSubstring("barriers"));
  CHECK_THAT(told("{barriers: [1, 1]}\n"), ContainsSubstring("'1' stands twice"));
  CHECK_THAT(told("{over: none, barriers: 1}\n"), ContainsSubstring("a vocabulary that is whole has no barriers"));
  CHECK_THAT(told("{barrier: 1}\n"), ContainsSubstring("scenario.yaml:14:") && ContainsSubstring("barrier"));
  CHECK_THAT(told("2\n"), ContainsSubstring("expected keys and values, not '2'"));
}
