// Configurations of tests/data/models against the counts of an independent tool (see the README there).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/model/files/read_model.hpp"
#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

const std::filesystem::path folder = std::filesystem::path(PLUMB_SOURCE_DIR) / "tests/data/models";
const char* const model_names[] = {"deepseek-v3",
                                   "gemma-3-12b",
                                   "gpt-j-6b",
                                   "gpt-oss-20b",
                                   "gpt2",
                                   "gpt2-medium",
                                   "llama-2-7b",
                                   "llama-3-70b",
                                   "llama-3-8b",
                                   "mingpt-gpt-mini",
                                   "mingpt-gpt2",
                                   "minimax-text-01",
                                   "mixtral-8x7b",
                                   "qwen3-30b-a3b",
                                   "qwen3-next-80b-a3b",
                                   "small-glm-4.5",
                                   "small-glm-4.7-flash",
                                   "small-granite-4-h",
                                   "small-granite-4-h-dense",
                                   "small-jamba",
                                   "small-kimi-k2",
                                   "small-kimi-linear",
                                   "small-llama4",
                                   "small-nemotron-3",
                                   "small-qwen3-vl-moe",
                                   "small-qwen3.5",
                                   "small-qwen3.5-moe",
                                   "small-seed-oss",
                                   "vit-b-16"};

nlohmann::json counts_of(const std::string& name) {
  std::ifstream stream(folder / (name + ".counts.json"));
  return nlohmann::json::parse(stream);
}

}  // namespace

TEST_CASE("each configuration has counts, and the list above is complete") {
  std::size_t configurations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().ends_with(".config.json")) ++configurations;
  }
  CHECK(configurations == std::size(model_names));
}

TEST_CASE("parameter counts are exact: total, active, per layer, matmul, embedding, head, final norm, MTP") {
  for (const std::string name : model_names) {
    INFO(name);
    const Model model = read_model(folder / (name + ".config.json"));
    const nlohmann::json expected = counts_of(name);
    const ParameterCounts counts = count_parameters(model);
    CHECK(model.name == name);
    CHECK(counts.total == expected["total"].get<std::int64_t>());
    CHECK(counts.active == expected["active_per_token"].get<std::int64_t>());
    CHECK(counts.embedding == expected["embedding"].get<std::int64_t>());
    CHECK(counts.head == expected["head"].get<std::int64_t>());
    CHECK(counts.final_norm == expected["final_norm"].get<std::int64_t>());
    CHECK(counts.layers == expected["layers"].get<std::vector<std::int64_t>>());
    CHECK(counts.layers_matmul_active == expected["layer_matmul_active"].get<std::vector<std::int64_t>>());
    CHECK(model.tied_embeddings == expected["tied"].get<bool>());
    const std::int64_t mtp =
        expected.contains("mtp") ? expected["mtp"]["parameters_per_module"].get<std::int64_t>() : 0;
    CHECK(counts.mtp == mtp);
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const bool moe = std::holds_alternative<MoeMlp>(model.layers[i].mlp);
      CHECK(counts.layers[i] - counts.layers_active[i] ==
            (moe ? (expected["total"].get<std::int64_t>() - expected["active_per_token"].get<std::int64_t>()) /
                       static_cast<std::int64_t>(
                           std::count_if(model.layers.begin(), model.layers.end(),
                                         [](const Layer& layer) { return std::holds_alternative<MoeMlp>(layer.mlp); }))
                 : 0));
    }
  }
}

// transformers 5.24.0 with torch 2.13.0, of the released configurations.
TEST_CASE("shipped models have the parameters of the released ones") {
  const std::pair<const char*, std::int64_t> shipped[] = {
      {"glm-4.5", 352'797'814'784},         {"granite-4-h-small", 32'207'337'984},
      {"kimi-k2", 1'026'408'209'408},       {"llama-4-maverick", 400'711'848'960},
      {"qwen3-235b-a22b", 235'093'634'560}, {"qwen3.5-397b-a17b", 396'346'350'336}};
  for (const auto& [name, parameters] : shipped) {
    INFO(name);
    const Model model =
        read_model(std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios/models" / (std::string(name) + ".yaml"));
    CHECK(model.name == name);
    CHECK(count_parameters(model).total == parameters);
  }
}

TEST_CASE("layer kinds are those of the counted models") {
  // "mixer/mlp" in the words of plumb, or "mha+mlp", "swa+swiglu" and the like.
  const auto ours = [](const std::string& kind, const std::string& found) {
    const std::size_t slash = kind.find('/');
    if (kind.starts_with("softmax/")) {
      return (found.starts_with("sliding/") ? "sliding" : "full") + kind.substr(slash);
    }
    if (slash != std::string::npos) return kind;
    const std::size_t plus = kind.find('+');
    const std::string mixer = kind.substr(0, plus);
    const std::string mlp = kind.substr(plus + 1) == "moe" ? "moe" : "dense";
    if (mixer == "mla" || mixer == "lightning") return mixer + "/" + mlp;
    if (mixer == "swa") return "sliding/" + mlp;
    return (mixer == "gdn" ? "linear/" : "full/") + mlp;
  };
  for (const std::string name : model_names) {
    const Model model = read_model(folder / (name + ".config.json"));
    const auto kinds = counts_of(name)["layer_kinds"].get<std::vector<std::string>>();
    REQUIRE(kinds.size() == model.layers.size());
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      INFO(name << " layer " << i << ": " << kinds[i]);
      CHECK(kind_name(model.layers[i]) == ours(kinds[i], kind_name(model.layers[i])));
    }
  }
}

TEST_CASE("forward FLOPs are twice the matmul weights and the cores, in every model") {
  for (const std::string name : model_names) {
    INFO(name);
    const Model model = read_model(folder / (name + ".config.json"));
    const nlohmann::json expected = counts_of(name);
    const OperationContext context = {.sequence = default_sequence(model)};
    double weights = 0;
    const auto add = [&](const std::vector<Operation>& operations) {
      for (const Operation& operation : operations) {
        const bool matmul = operation.kind == OperationKind::matmul || operation.kind == OperationKind::expert_matmul;
        if (!matmul) {
          CHECK((operation.kind == OperationKind::convolution || operation.weight_gradient.value == 0));
          continue;
        }
        CHECK(operation.weight_gradient == operation.forward);
        weights += operation.forward.value / 2;
      }
    };
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const double before = weights;
      add(layer_operations(model, i, context));
      CHECK(weights - before == expected["layer_matmul_active"][i].get<double>());
    }
    if (!model.vision) {
      add(head_operations(model, context));
      CHECK(weights == expected["matmul_active_per_token"].get<double>());
    }
  }
}
