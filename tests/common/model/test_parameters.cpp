#include "common/model/parameters.hpp"

#include <set>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

std::vector<std::string> names_and_shapes(const std::vector<Parameter>& parameters) {
  std::vector<std::string> lines;
  for (const Parameter& parameter : parameters) {
    std::string line = parameter.name;
    for (const std::int64_t extent : parameter.shape) line += " " + std::to_string(extent);
    lines.push_back(line);
  }
  return lines;
}

const Model hybrid = {
    .name = "hybrid",
    .vocabulary = 50,
    .hidden = 16,
    .layers = {Layer{.mixer = GatedDelta{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 6},
                     .mlp = DenseMlp{.width = 40}},
               Layer{.mixer = SoftmaxAttention{.heads = 4, .kv_heads = 2, .head_dim = 8, .value_dim = 8},
                     .mlp = MoeMlp{.experts = 8, .top_k = 2, .width = 12, .shared_width = 24}}}};

}  // namespace

TEST_CASE("executors find each tensor under its name, weights as out × in, in the order of the forward pass") {
  CHECK(names_and_shapes(embedding_parameters(hybrid)) == std::vector<std::string>{"embedding.weight 50 16"});
  CHECK(names_and_shapes(layer_parameters(hybrid, 0)) ==
        std::vector<std::string>{
            "layers.0.norm_1.weight 16", "layers.0.linear.q.weight 16 16", "layers.0.linear.k.weight 16 16",
            "layers.0.linear.v.weight 24 16", "layers.0.linear.z.weight 24 16", "layers.0.linear.beta.weight 4 16",
            "layers.0.linear.decay.weight 4 16", "layers.0.linear.conv.weight 56 4", "layers.0.linear.a_log 4",
            "layers.0.linear.dt_bias 4", "layers.0.linear.norm.weight 6", "layers.0.linear.out.weight 16 24",
            "layers.0.norm_2.weight 16", "layers.0.mlp.gate.weight 40 16", "layers.0.mlp.up.weight 40 16",
            "layers.0.mlp.down.weight 16 40"});
  CHECK(names_and_shapes(layer_parameters(hybrid, 1)) ==
        std::vector<std::string>{"layers.1.norm_1.weight 16", "layers.1.attention.q.weight 32 16",
                                 "layers.1.attention.k.weight 16 16", "layers.1.attention.v.weight 16 16",
                                 "layers.1.attention.out.weight 16 32", "layers.1.norm_2.weight 16",
                                 "layers.1.mlp.router.weight 8 16", "layers.1.mlp.experts.gate.weight 8 12 16",
                                 "layers.1.mlp.experts.up.weight 8 12 16", "layers.1.mlp.experts.down.weight 8 16 12",
                                 "layers.1.mlp.shared.gate.weight 24 16", "layers.1.mlp.shared.up.weight 24 16",
                                 "layers.1.mlp.shared.down.weight 16 24"});
  CHECK(names_and_shapes(final_norm_parameters(hybrid)) == std::vector<std::string>{"final_norm.weight 16"});
  CHECK(names_and_shapes(head_parameters(hybrid)) == std::vector<std::string>{"head.weight 50 16"});
}

TEST_CASE("GPT-2's block: biases, LayerNorm, learned positions, tied head") {
  const Model gpt = {
      .vocabulary = 50,
      .hidden = 16,
      .layers = {Layer{
          .mixer =
              SoftmaxAttention{
                  .heads = 4, .kv_heads = 4, .head_dim = 4, .value_dim = 4, .qkv_bias = true, .out_bias = true},
          .mlp = DenseMlp{.width = 64, .activation = Activation::gelu, .bias = true},
          .norm = NormKind::layernorm}},
      .final_norm = NormKind::layernorm,
      .positions = Positions::learned,
      .max_positions = 32,
      .tied_embeddings = true};
  CHECK(names_and_shapes(embedding_parameters(gpt)) ==
        std::vector<std::string>{"embedding.weight 50 16", "embedding.positions 32 16"});
  CHECK(names_and_shapes(layer_parameters(gpt, 0)) ==
        std::vector<std::string>{
            "layers.0.norm_1.weight 16", "layers.0.norm_1.bias 16", "layers.0.attention.q.weight 16 16",
            "layers.0.attention.q.bias 16", "layers.0.attention.k.weight 16 16", "layers.0.attention.k.bias 16",
            "layers.0.attention.v.weight 16 16", "layers.0.attention.v.bias 16", "layers.0.attention.out.weight 16 16",
            "layers.0.attention.out.bias 16", "layers.0.norm_2.weight 16", "layers.0.norm_2.bias 16",
            "layers.0.mlp.up.weight 64 16", "layers.0.mlp.up.bias 64", "layers.0.mlp.down.weight 16 64",
            "layers.0.mlp.down.bias 16"});
  CHECK(names_and_shapes(final_norm_parameters(gpt)) ==
        std::vector<std::string>{"final_norm.weight 16", "final_norm.bias 16"});
  CHECK(head_parameters(gpt).empty());
  CHECK(count_parameters(gpt).head == 0);
}

TEST_CASE("a token meets all parameters but those of the experts that were not chosen") {
  const ParameterCounts counts = count_parameters(hybrid);
  const std::int64_t one_expert = 3 * 16 * 12;
  CHECK(counts.layers_active[0] == counts.layers[0]);
  CHECK(counts.layers[1] - counts.layers_active[1] == 6 * one_expert);
  CHECK(counts.total - counts.active == 6 * one_expert);
  CHECK(counts.total == counts.embedding + counts.head + counts.final_norm + counts.layers[0] + counts.layers[1]);
}

TEST_CASE("names are unique over the whole model, and Gemma's four norms stand around mixer and MLP") {
  Model model = hybrid;
  model.mtp_modules = 2;
  model.layers[1].norms = 4;
  std::set<std::string> names;
  std::size_t count = 0;
  const auto collect = [&](const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters) names.insert(parameter.name);
    count += parameters.size();
  };
  collect(embedding_parameters(model));
  for (std::size_t i = 0; i < model.layers.size(); ++i) collect(layer_parameters(model, i));
  collect(final_norm_parameters(model));
  collect(head_parameters(model));
  collect(mtp_parameters(model));
  CHECK(names.size() == count);
  CHECK(names.count("layers.1.norm_4.weight") == 1);
  CHECK(names.count("mtp.1.norm_3.weight") == 1);
  CHECK(layer_parameters(model, 1).back().name == "layers.1.norm_4.weight");
}
