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
  check_dense("kind: 2d, degree: 8", {"scenario.yaml:2:37: ", "q² of a 2d", "found 8", "hint: degree: 4 or 9"});
  check_dense("kind: 2.5d, degree: 12, depth: 2", {"2·q² of a 2.5d", "depth 2, found 12", "degree: 8 or 18"});
  check_dense("kind: 3d, degree: 4", {"q³ of a 3d", "found 4", "degree: 1 or 8"});
  check_dense("kind: 1d, degree: 4, depth: 2", {"scenario.yaml:2:47: ", "has no depth", "kind: 2.5d"});
  check_dense("kind: 2d, degree: 4, sequence_parallel: true", {"divides hidden states already", "kind: 1d"});
  check_dense("kind: 2d, degree: 9",
              {"among 3 ranks", "64 hidden channels", "hint: 63 or 66, another degree, or kind: 1d"});
  check_dense("kind: 3d, degree: 27", {"among 9 ranks", "64 hidden channels"});
  check_dense("kind: 2d, degree: 64", {"among 8 ranks", "4 heads"});
  check_dense("kind: 2d, degree: 4", {"no error"});
  for (const std::string kinds : {"[1d, 2d]", "auto"}) {
    check_dense("degree: 4, kind: " + kinds, {"scenario.yaml:2:36: ", "not searched yet", "plumb layout compare"});
  }
  CHECK_THAT(message_for("model: {vocabulary: 513, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense\"}\n"
                         "layout: {tensor: {kind: 2d, degree: 4}}\n"),
             ContainsSubstring("do not divide 513 tokens of the vocabulary") && ContainsSubstring("hint: 512 or 514"));
  CHECK_THAT(message_for(scenario_text("layout: {tensor: {kind: 2d, degree: 4}}\n")),
             ContainsSubstring("scenario.yaml:11:37: ") &&
                 ContainsSubstring("a mixture of experts cannot be planned in a 2d tensor layout yet") &&
                 ContainsSubstring("kind: 1d"));
  const std::vector<std::pair<Mixer, std::string>> others = {{GatedDelta{}, "the gated delta rule (linear)"},
                                                             {ChannelGatedDelta{}, "channel-wise"},
                                                             {LatentAttention{}, "latent attention"},
                                                             {Lightning{}, "lightning attention"},
                                                             {Mamba{}, "Mamba cannot"},
                                                             {Mamba2{}, "Mamba-2"}};
  for (const auto& [mixer, name] : others) {
    Model of_it{.vocabulary = 512, .hidden = 64};
    of_it.layers = {{.mixer = mixer}};
    Layout layout;
    layout.tensor = {.degree = 8, .kind = TensorKind::three_d};
    CHECK_THROWS_WITH(require_divisible(of_it, layout),
                      ContainsSubstring(name) && ContainsSubstring("cannot be planned in a 3d tensor layout"));
    layout.tensor.degree = 1;
    CHECK_NOTHROW(require_divisible(of_it, layout));
  }
  CHECK_THAT(message_for("model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, layers: \"full/dense\", "
                         "tied_embeddings: true}\nlayout: {tensor: {kind: 2d, degree: 4}}\n"),
             ContainsSubstring("tied embedding's table cannot") && ContainsSubstring("tied_embeddings: false"));
}
