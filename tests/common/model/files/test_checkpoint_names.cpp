// Names and places of parameters in checkpoints, against files that transformers has written.
#include "common/model/files/checkpoint_names.hpp"

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/model/files/config_json.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

const std::string checkpoints = std::string(PLUMB_SOURCE_DIR) + "/tests/data/hugging_face/";

std::vector<std::string> made_by_transformers() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

// From the headers of all files of a folder.
Shapes written_by_transformers(const std::string& folder) {
  Shapes shapes;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string file = read_file(entry.path());
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    const json header = json::parse(file.substr(8, length));
    for (const auto& [name, tensor] : header.items()) {
      if (name != "__metadata__") shapes[name] = tensor.at("shape").get<std::vector<std::int64_t>>();
    }
  }
  return shapes;
}

std::vector<Parameter> parameters_of(const Model& model) {
  std::vector<Parameter> all = embedding_parameters(model);
  const auto add = [&](const std::vector<Parameter>& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) add(layer_parameters(model, layer));
  add(final_norm_parameters(model));
  add(head_parameters(model));
  return all;
}

Model released(const std::string& name) {
  return read_config_json(fs::path(PLUMB_SOURCE_DIR) / "tests/data/models" / (name + ".config.json"));
}

// How often each element of each tensor is named by a parameter's pieces.
std::map<std::string, std::vector<int>> times_named(const Model& model) {
  std::map<std::string, std::vector<int>> named;
  for (const Parameter& parameter : parameters_of(model)) {
    std::int64_t next = 0;
    for (const TensorPiece& piece : checkpoint_pieces(model, parameter)) {
      REQUIRE(piece.first == next);
      next += piece.rows * piece.columns;
      std::vector<int>& elements_of = named[piece.tensor];
      elements_of.resize(static_cast<std::size_t>(elements(Parameter{.shape = piece.shape})));
      for (std::int64_t row = 0; row < piece.rows; ++row) {
        for (std::int64_t column = 0; column < piece.columns; ++column) {
          ++elements_of.at(static_cast<std::size_t>(piece.offset + row * piece.row_step + column * piece.column_step));
        }
      }
    }
    REQUIRE(next == elements(parameter));
  }
  return named;
}

// Smaller, with the same kinds of layers.
Model shrunk(Model model) {
  model.hidden = 8;
  model.vocabulary = model.vision ? 0 : 12;
  model.max_positions = 5;
  model.layers.resize(std::min<std::size_t>(model.layers.size(), 2));
  for (Layer& layer : model.layers) {
    if (auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer)) {
      const bool alike = attention->heads == attention->kv_heads;
      attention->heads = 2;
      attention->kv_heads = alike ? 2 : 1;
      attention->head_dim = attention->value_dim = 4;
    }
    if (auto* dense = std::get_if<DenseMlp>(&layer.mlp)) dense->width = 6;
    if (auto* moe = std::get_if<MoeMlp>(&layer.mlp)) {
      moe->experts = 3;
      moe->top_k = 2;
      moe->width = 5;
      if (moe->shared_width > 0) moe->shared_width = 7;
    }
  }
  return model;
}

}  // namespace

TEST_CASE("names and shapes are those that transformers has written") {
  const std::vector<std::string> names = made_by_transformers();
  CHECK(names.size() >= 4);
  for (const std::string& name : names) {
    CAPTURE(name);
    const Model model = read_config_json(fs::path(checkpoints + name + "/config.json"));
    Shapes expected;
    for (const Parameter& parameter : parameters_of(model)) {
      for (const TensorPiece& piece : checkpoint_pieces(model, parameter)) {
        const auto [there, is_new] = expected.emplace(piece.tensor, piece.shape);
        CHECK((is_new || there->second == piece.shape));
      }
    }
    Shapes written = written_by_transformers(checkpoints + name);
    std::erase_if(written, [&](const auto& tensor) { return is_beside_parameters(model, tensor.first); });
    CHECK(written == expected);
  }
}

TEST_CASE("every element of every tensor belongs to one parameter") {
  std::vector<Model> models;
  for (const char* const name : {"gpt2", "gpt-j-6b", "llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "vit-b-16"}) {
    models.push_back(shrunk(released(name)));
  }
  for (const std::string& name : made_by_transformers()) {
    models.push_back(read_config_json(fs::path(checkpoints + name + "/config.json")));
  }
  for (const Model& model : models) {
    CAPTURE(model.name);
    for (const auto& [tensor, times] : times_named(model)) {
      CAPTURE(tensor);
      CHECK(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
    }
  }
}

TEST_CASE("GPT-2's q, k and v are columns of one transposed matrix") {
  const Model model = released("gpt2");
  const std::int64_t hidden = model.hidden;
  const std::vector<TensorPiece> key =
      checkpoint_pieces(model, {.name = "layers.7.attention.k.weight", .shape = {hidden, hidden}});
  CHECK(key == std::vector<TensorPiece>{{.tensor = "transformer.h.7.attn.c_attn.weight",
                                         .shape = {hidden, 3 * hidden},
                                         .rows = hidden,
                                         .columns = hidden,
                                         .offset = hidden,
                                         .row_step = 1,
                                         .column_step = 3 * hidden}});
  const std::vector<TensorPiece> bias =
      checkpoint_pieces(model, {.name = "layers.7.attention.v.bias", .shape = {hidden}, .role = ParameterRole::vector});
  REQUIRE(bias.size() == 1);
  CHECK(bias[0].tensor == "transformer.h.7.attn.c_attn.bias");
  CHECK(bias[0].offset == 2 * hidden);
}

TEST_CASE("a model without a known family is refused with those that are known") {
  Model block = released("llama-3-8b");
  block.hugging_face.reset();
  const Parameter any{.name = "embedding.weight", .shape = {4, 4}};
  CHECK_THROWS_WITH(checkpoint_pieces(block, any), ContainsSubstring("was read from no config.json"));
  const Model gemma = released("gemma-3-12b");
  CHECK_THROWS_WITH(checkpoint_pieces(gemma, any),
                    ContainsSubstring("the family 'gemma3_text', whose names in a checkpoint are not known"));
  try {
    (void)checkpoint_pieces(released("qwen3-next-80b-a3b"), any);
    FAIL("qwen3_next is not known");
  } catch (const InputError& error) {
    CHECK_THAT(error.hint(), ContainsSubstring("llama, mistral, mixtral, qwen2"));
  }
}

TEST_CASE("buffers and a tied head stand beside the parameters, biases do not") {
  const Model gpt2 = released("gpt2");
  CHECK(is_beside_parameters(gpt2, "transformer.h.3.attn.bias"));
  CHECK(is_beside_parameters(gpt2, "h.3.attn.masked_bias"));
  CHECK_FALSE(is_beside_parameters(gpt2, "transformer.h.3.attn.c_attn.bias"));
  CHECK(is_beside_parameters(gpt2, "lm_head.weight"));
  const Model llama = released("llama-3-8b");
  CHECK(is_beside_parameters(llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK_FALSE(is_beside_parameters(llama, "model.layers.0.self_attn.q_proj.bias"));
  CHECK_FALSE(is_beside_parameters(llama, "lm_head.weight"));  // it has one of its own
}

TEST_CASE("modules of adapters") {
  Model block = released("llama-3-8b");
  CHECK(adapter_module(block, "layers.3.attention.out", 0) == "model.layers.3.self_attn.o_proj");
  block.hugging_face.reset();
  CHECK(adapter_module(block, "layers.3.mlp.experts.up", 5) == "model.layers.3.mlp.experts.5.up_proj");
  CHECK(adapter_module(block, "layers.0.linear.beta", 0) == "model.layers.0.linear_attn.b_proj");
  CHECK(adapter_module(block, "layers.0.something.else", 0) == "model.layers.0.something.else");
  const Model gpt2 = released("gpt2");
  CHECK(adapter_module(gpt2, "layers.1.mlp.up", 0) == "transformer.h.1.mlp.c_fc");
  CHECK(adapter_module(gpt2, "layers.1.attention.q", 0) == std::nullopt);
  CHECK(has_transposed_matrices(gpt2));
  CHECK_FALSE(has_transposed_matrices(block));
}
