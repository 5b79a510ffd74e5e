// Scenarios of 2d, 2.5d and 3d tensor layouts: what is a grid, what it divides, and what has no place in one.
#include "common/layout/divisible.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

TEST_CASE("a tensor layout of kind 2d to 3d is a grid that divides what it has a table for") {
  const std::string model = "model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*2\"}\n";
  const auto check_dense = [&](const std::string& tensor, const std::vector<std::string>& parts) {
    const std::string message = message_for(model + "layout: {tensor: {" + tensor + "}}\n");
    for (const std::string& part : parts) CHECK_THAT(message, ContainsSubstring(part));
  };
  check_dense("kind: 2d, degree: 8", {"scenario.yaml:2:37: ", "needs q² ranks", "not 8", "hint: degree: 4 or 9"});
  check_dense("kind: 2.5d, degree: 12, depth: 2", {"depth 2 needs 2·q² ranks", "not 12", "degree: 8 or 18"});
  check_dense("kind: 3d, degree: 4", {"needs q³ ranks", "not 4", "degree: 1 or 8"});
  check_dense("kind: 1d, degree: 4, depth: 2", {"scenario.yaml:2:47: ", "has no depth", "kind: 2.5d"});
  check_dense("kind: 2d, degree: 4, sequence_parallel: true", {"divides hidden states already", "kind: 1d"});
  check_dense("kind: 2d, degree: 9",
              {"among 3 ranks", "64 hidden channels", "hint: 63 or 66, another degree, or kind: 1d"});
  check_dense("kind: 3d, degree: 27", {"among 9 ranks", "64 hidden channels"});
  check_dense("kind: 2d, degree: 64", {"among 8 ranks", "4 heads"});
  check_dense("kind: 2d, degree: 4", {"no error"});
  check_dense("degree: 4, kind: [1d, 2d, 1d]", {"scenario.yaml:2:45: ", "'1d' stands twice"});
  check_dense("degree: 4, kind: [1d, 2d], depth: 2", {"none of the kinds has a depth", "2.5d among them"});
  check_dense("degree: 8, kind: [2d, 3d], sequence_parallel: auto", {"divides hidden states already", "kind: 1d"});
  CHECK_THAT(message_for("model: {vocabulary: 513, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense\"}\n"
                         "layout: {tensor: {kind: 2d, degree: 4}}\n"),
             ContainsSubstring("do not divide 513 tokens of the vocabulary") && ContainsSubstring("hint: 512 or 514"));
  CHECK_THAT(message_for(scenario_text("layout: {tensor: {kind: 2d, degree: 4}}\n")),
             ContainsSubstring("scenario.yaml:11:37: ") &&
                 ContainsSubstring("a mixture of experts cannot be planned yet with a 2d tensor layout") &&
                 ContainsSubstring("kind: 1d"));
  const std::vector<std::pair<Mixer, std::string>> others = {{GatedDelta{}, "the gated delta rule (linear)"},
                                                             {ChannelGatedDelta{}, "a gate per channel"},
                                                             {LatentAttention{}, "latent attention"},
                                                             {Lightning{}, "lightning attention"},
                                                             {Mamba{}, "mamba cannot"},
                                                             {Mamba2{}, "mamba2 cannot"}};
  for (const auto& [mixer, name] : others) {
    Model of_it{.vocabulary = 512, .hidden = 64};
    of_it.layers = {{.mixer = mixer}};
    Layout layout;
    layout.tensor = {.degree = 8, .kind = TensorKind::three_d};
    CHECK_THROWS_WITH(require_divisible(of_it, layout),
                      ContainsSubstring(name) && ContainsSubstring("cannot be planned yet with a 3d tensor layout"));
    layout.tensor.degree = 1;
    CHECK_NOTHROW(require_divisible(of_it, layout));
  }
  CHECK_THAT(message_for("model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense\", "
                         "tied_embeddings: true}\nlayout: {tensor: {kind: 2d, degree: 4}}\n"),
             ContainsSubstring("tied embedding's table cannot") && ContainsSubstring("tied_embeddings: false"));
}

TEST_CASE("kinds and depths that are open are candidates, degrees of no grid among them") {
  const auto layouts_in = [](const std::string& tensor) {
    const Scenario scenario = read_text(
        "model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense*2\"}\n"
        "cluster: {machine: dgx-a100}\nlayout: {data: auto, tensor: {" +
        tensor + "}, pipeline: 1}\n");
    CHECK(scenario.layout == scenario.layouts.front());
    std::vector<std::string> names;
    for (const Layout& layout : scenario.layouts) {
      names.push_back(describe(layout) + (layout.tensor.sequence_parallel ? " sp" : ""));
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(layouts_in("degree: 8, kind: auto") == Names{"tp8", "tp8·2d", "tp8·2.5d·depth2", "tp8·3d"});
  CHECK(layouts_in("degree: [4, 8], kind: [3d, 1d], sequence_parallel: auto") ==
        Names{"tp4·3d·dp2", "tp4·dp2 sp", "tp4·dp2", "tp8·3d", "tp8 sp", "tp8"});
  CHECK(layouts_in("degree: 8, kind: [2.5d, 2d], depth: [2, 8]") ==
        Names{"tp8·2.5d·depth2", "tp8·2.5d·depth8", "tp8·2d"});
  CHECK(layouts_in("degree: 8, kind: 2.5d, depth: auto") == Names{"tp8·2.5d·depth2"});
  CHECK(layouts_in("degree: auto, kind: 2d") == Names{"dp8", "tp2·2d·dp4", "tp4·2d·dp2", "tp8·2d"});
  CHECK(layouts_in("kind: auto") == Names{"dp8"});
  // Of several layouts those are asynchronous that can be.
  CHECK(layouts_in("degree: 8, sequence_parallel: true, asynchronous: auto") == Names{"tp8·async sp", "tp8 sp"});
  CHECK(layouts_in("degree: 8, sequence_parallel: [false, true], asynchronous: [false, true]") ==
        Names{"tp8", "tp8 sp", "tp8·async sp"});
  CHECK(layouts_in("degree: 8, sequence_parallel: auto, asynchronous: true") == Names{"tp8·async sp", "tp8"});
  CHECK(layouts_in("degree: 8, kind: [2d, 1d], sequence_parallel: true, asynchronous: true") ==
        Names{"tp8·2d·async", "tp8·async sp"});
  CHECK(layouts_in("degree: 8, kind: [2d, 3d], reshard_after_forward: auto") ==
        Names{"tp8·2d", "tp8·3d·reshard", "tp8·3d"});
  CHECK(layouts_in("degree: 8, kind: 2.5d, depth: auto, asynchronous: true") == Names{"tp8·2.5d·depth2·async"});
}

TEST_CASE("only what divides tokens, or has panels, is asynchronous") {
  const std::string two = "cluster: {machine: local-cpu, ranks: 4}\nlayout: {tensor: {degree: 4, ";
  for (const std::string& other :
       {std::string(), std::string("sequence_parallel: false, "), std::string("kind: 3d, ")}) {
    CHECK_THAT(message_for(scenario_text(two + other + "asynchronous: true}}\n")),
               ContainsSubstring("scenario.yaml:12:") && ContainsSubstring("gathers and scatters of tokens") &&
                   ContainsSubstring("hint: sequence_parallel: true beside it"));
  }
  for (const std::string fine : {"sequence_parallel: true, asynchronous: true}}\n", "asynchronous: false}}\n"}) {
    CHECK(message_for(scenario_text(two + fine)) == "no error");
  }
  CHECK_THAT(message_for(scenario_text("cluster: {machine: local-cpu, ranks: 2}\n"
                                       "layout: {tensor: {kind: 2d, asynchronous: true}}\n")),
             ContainsSubstring("scenario.yaml:12:") && ContainsSubstring("the tensor degree is 1"));
  CHECK_THAT(message_for(scenario_text("cluster: {machine: local-cpu, ranks: 8}\n"
                                       "layout: {tensor: {degree: 8, kind: 3d, asynchronous: true}}\n")),
             ContainsSubstring("the panels of 2d and 2.5d"));
}
