#include "common/model/files/model_block.hpp"

#include <filesystem>
#include <fstream>

#include "common/model/files/read_model.hpp"
#include "common/model/layer_text.hpp"
#include "common/model/parameters.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

const Place place = {"m.yaml", 3, 11};

std::vector<std::string> expand(const std::string& text) { return expand_layers(text, place); }

template <class Read>
std::string error_of(Read read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string expand_error(const std::string& text) {
  return error_of([&] { (void)expand(text); });
}

const std::string small = "vocabulary: 10\nhidden: 16\nheads: 4\nffn: 20\n";

Model block(const std::string& text) { return read_model_block(YamlValue::parse(text, "m.yaml")); }

std::string block_error(const std::string& text) {
  return error_of([&] { (void)block(text); });
}

}  // namespace

TEST_CASE("layers repeat like Megatron's layout strings") {
  using List = std::vector<std::string>;
  CHECK(expand("a/b") == List{"a/b"});
  CHECK(expand("a/b*2, (c/d, e/f)*2") == List{"a/b", "a/b", "c/d", "e/f", "c/d", "e/f"});
  CHECK(expand(" ( a/b * 2 ,c/d ) * 2 ") == List{"a/b", "a/b", "c/d", "a/b", "a/b", "c/d"});
  CHECK(expand("((a/b)*2,c/d)*1") == List{"a/b", "a/b", "c/d"});
  CHECK(expand("a/b*10000").size() == 10000);
  CHECK(expand("(a/b*100)*100").size() == 10000);
}

TEST_CASE("a repeated group equals the group written out, whatever is in it") {
  for (const std::string group : {"a/b", "a/b, c/d", "(a/b, c/d)*3, e/f", "a/b*2, (c/d*2, e/f)*2"}) {
    std::string written;
    for (int times = 1; times <= 5; ++times) {
      written += (times > 1 ? ", " : "") + group;
      CHECK(expand("(" + group + ")*" + std::to_string(times)) == expand(written));
    }
  }
}

TEST_CASE("malformed layers are refused with file, line and the character") {
  CHECK_THAT(expand_error("full/dense*0"), ContainsSubstring("m.yaml:3:11: layers: expected a count of at least 1"));
  CHECK_THAT(expand_error("full/dense*"), ContainsSubstring("at character 12 of 'full/dense*'"));
  CHECK_THAT(expand_error("(a/b, c/d"), ContainsSubstring("expected ')' or ','"));
  CHECK_THAT(expand_error("a/b)"), ContainsSubstring("unexpected ')' at character 4"));
  CHECK_THAT(expand_error("a/b c/d"), ContainsSubstring("unexpected 'c'"));
  CHECK_THAT(expand_error("a/b,"), ContainsSubstring("expected a layer"));
  CHECK_THAT(expand_error(""), ContainsSubstring("expected a layer"));
  CHECK_THAT(expand_error("a/b*-3"), ContainsSubstring("expected a count"));
  CHECK_THAT(expand_error("a/b*2*3"), ContainsSubstring("unexpected '*'"));
  for (const std::string huge : {"a/b*1000000000", "a/b*99999999999999999999", "(a/b*5000)*5000", "a/b*10000, a/b",
                                 "((((a/b*999)*999)*999)*999)*999"}) {
    CHECK_THAT(expand_error(huge), ContainsSubstring("more than 10000 layers"));
  }
  CHECK_THAT(expand_error(std::string(100000, '(')), ContainsSubstring("nested too deeply"));
}

TEST_CASE("a model block: defaults") {
  const Model model = block(small + "layers: \"full/dense*2\"\n");
  CHECK(model.layers.size() == 2);
  CHECK(model.layers[0].mixer == Mixer{SoftmaxAttention{.heads = 4, .kv_heads = 4, .head_dim = 4, .value_dim = 4}});
  CHECK(model.layers[0].mlp == Mlp{DenseMlp{.width = 20}});
  CHECK(model.positions == Positions::rope);
  CHECK_FALSE(model.tied_embeddings);
}

TEST_CASE("every kind of layer that can be written is read, and its name is what was written") {
  const std::string keys = small +
                           "window: 8\nexperts: {count: 4, top_k: 2, ffn: 6, shared: 1}\n"
                           "mla: {kv_lora_rank: 4, nope_dim: 2, rope_dim: 2, value_dim: 2}\n"
                           "mamba2: {heads: 4, head_dim: 6, state: 8}\n";
  for (const std::string kind : {"full/dense", "sliding/moe", "linear/dense", "kda/moe", "mla/dense", "lightning/moe",
                                 "mamba/none", "mamba2/none", "none/moe", "full/none"}) {
    const Model model = block(keys + "layers: " + kind + "\n");
    REQUIRE(model.layers.size() == 1);
    CHECK(kind_name(model.layers[0]) == kind);
    CHECK(model.layers[0].norms == (kind.find("none") == std::string::npos ? 2 : 1));
    CHECK(count_parameters(model).layers[0] > 0);
  }
}

TEST_CASE("a wrong model block is refused with its line and a hint") {
  CHECK_THAT(block_error(small + "layres: full/dense\n"),
             ContainsSubstring("m.yaml:5:1: unknown key 'layres'") && ContainsSubstring("did you mean 'layers'?"));
  CHECK_THAT(block_error(small), ContainsSubstring("key 'layers' is missing"));
  CHECK_THAT(block_error(small + "layers: 12\n"), ContainsSubstring("m.yaml:5:9: layers: expected text"));
  CHECK_THAT(block_error(small + "layers: ful/dense\n"), ContainsSubstring("did you mean 'full'?"));
  CHECK_THAT(block_error(small + "layers: full/danse\n"), ContainsSubstring("did you mean 'dense'?"));
  CHECK_THAT(block_error(small + "layers: full\n"), ContainsSubstring("'full' is not attention/mlp"));
  CHECK_THAT(block_error(small + "layers: none/none\n"), ContainsSubstring("is no layer"));
  CHECK_THAT(block_error(small + "layers: sliding/dense\n"), ContainsSubstring("key 'window' is missing"));
  CHECK_THAT(block_error(small + "layers: full/moe\n"), ContainsSubstring("need the key 'experts'"));
  CHECK_THAT(block_error(small + "layers: mla/dense\n"), ContainsSubstring("need the key 'mla'"));
  CHECK_THAT(block_error(small + "kv_heads: 3\nlayers: full/dense\n"),
             ContainsSubstring("heads (4) must be a multiple of kv_heads (3)"));
  CHECK_THAT(block_error("vocabulary: 10\nhidden: 10\nheads: 4\nffn: 1\nlayers: full/dense\n"),
             ContainsSubstring("m.yaml:2:9: hidden (10) must be a multiple of heads (4)"));
  // Rotary positions turn pairs, of all of a head or of a part of it.
  const std::string odd = small + "head_dim: 5\nlayers: full/dense\n";
  CHECK_THAT(block_error(odd), ContainsSubstring("rotary positions need an even head size, not 5"));
  CHECK(block_error(odd + "rotary: {dim: 4}\n") == "no error");
  CHECK(block_error(odd + "positions: none\n") == "no error");
  CHECK_THAT(block_error(small + "positions: learned\nlayers: full/dense\n"), ContainsSubstring("max_positions"));
  CHECK_THAT(block_error(small + "experts: {count: 4, top_k: 5, ffn: 6}\nlayers: full/moe\n"),
             ContainsSubstring("m.yaml:5:28: experts.top_k: expected a whole number from 1 to 4, not '5'"));
  CHECK_THAT(block_error(small + "activation: swiglue\nlayers: full/dense\n"),
             ContainsSubstring("did you mean 'swiglu'?"));
}

TEST_CASE("sizes that are zero, negative, no number or absurd are refused before anything is counted") {
  for (const std::string bad :
       {"0", "-4", "4.5", "nan", ".inf", "1e3", "9999999999999999999", "four", "[4]", "", "'4'"}) {
    for (const std::string key : {"vocabulary", "hidden", "heads", "ffn", "kv_heads", "head_dim"}) {
      std::string text = small;
      const std::size_t at = text.find(key + ":");
      if (at != std::string::npos) text.erase(at, text.find('\n', at) + 1 - at);
      INFO(key << ": " << bad);
      CHECK_THAT(block_error(text + key + ": " + bad + "\nlayers: full/dense\n"), ContainsSubstring("m.yaml:"));
    }
  }
  CHECK_THAT(block_error("vocabulary: 10\nhidden: 1048576\nheads: 4\nffn: 16777216\n"
                         "experts: {count: 65536, top_k: 1, ffn: 16777216}\nlayers: full/moe*10000\n"),
             ContainsSubstring("more than 10^16 parameters"));
}

TEST_CASE("the models that plumb ships equal the released configurations") {
  const std::filesystem::path source = PLUMB_SOURCE_DIR;
  for (const std::string name :
       {"gpt2", "gpt-j-6b", "llama-3-8b", "mixtral-8x7b", "qwen3-next-80b-a3b", "deepseek-v3", "vit-b-16"}) {
    INFO(name);
    Model released = read_model(source / "tests/data/models" / (name + ".config.json"));
    CHECK(released.hugging_face);
    released.hugging_face.reset();  // which a block has none of
    CHECK(read_model(source / "scenarios/models" / (name + ".yaml")) == released);
  }
}

TEST_CASE(
    "GPT-J's block: one norm for both, part of the head rotated in neighbouring pairs, biases where it has them") {
  const std::string keys = small + "head_dim: 8\nbias: true\nattention_bias: false\nhead_bias: true\nparallel: true\n";
  const Model model = block(keys + "rotary: {dim: 4, interleaved: true}\nlayers: full/dense\n");
  const auto& attention = std::get<SoftmaxAttention>(model.layers[0].mixer);
  CHECK(attention.rotary == Rotary{.dim = 4, .interleaved = true});
  CHECK_FALSE(attention.qkv_bias);
  CHECK_FALSE(attention.out_bias);
  CHECK(std::get<DenseMlp>(model.layers[0].mlp).bias);
  CHECK(model.layers[0].parallel);
  CHECK(model.layers[0].norms == 1);
  CHECK(head_parameters(model).back().shape == std::vector<std::int64_t>{10});
  CHECK(std::get<SoftmaxAttention>(block(keys + "rotary: {}\nlayers: full/dense\n").layers[0].mixer).rotary ==
        Rotary{.dim = 8});
  CHECK_FALSE(block(keys + "layers: none/dense\n").layers[0].parallel);
  CHECK_THAT(block_error(keys + "rotary: {dim: 3}\nlayers: full/dense\n"), ContainsSubstring("multiple of a pair (2)"));
  CHECK_THAT(block_error(keys + "rotary: {dim: 10}\nlayers: full/dense\n"), ContainsSubstring("from 2 to 8"));
}

TEST_CASE("a block of images has patches, classes and attention that sees both ways") {
  const std::string keys = "hidden: 12\nheads: 4\nffn: 20\nlayers: full/dense\n";
  const std::string patches = "patches: {image: 32, patch: 4, channels: 3, classes: 10}\n";
  const Model model = block(keys + patches);
  CHECK(model.vision == Vision{.image_size = 32, .patch_size = 4, .channels = 3, .classes = 10});
  CHECK(model.positions == Positions::learned);
  CHECK(model.max_positions == 65);
  CHECK(default_sequence(model) == 65);
  CHECK(model.head_bias);
  CHECK_FALSE(std::get<SoftmaxAttention>(model.layers[0].mixer).causal);
  CHECK(embedding_parameters(model).front().shape == std::vector<std::int64_t>{12, 48});
  CHECK_THAT(block_error(keys + patches + "vocabulary: 10\n"),
             ContainsSubstring("m.yaml:6:13: vocabulary: a model of"));
  CHECK_THAT(block_error(keys + "patches: {image: 30, patch: 4, classes: 10}\n"),
             ContainsSubstring("image (30) must be a multiple of patch (4)"));
  CHECK_THAT(block_error(keys + "patches: {image: 32, patch: 4}\n"), ContainsSubstring("key 'classes' is missing"));
  CHECK_THAT(block_error("hidden: 12\nheads: 4\nffn: 20\nwindow: 4\nlayers: sliding/dense\n" + patches),
             ContainsSubstring("window"));
}

TEST_CASE("the small hybrid that plumb ships") {
  const Model model = read_model(std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios/models/tiny-hybrid.yaml");
  REQUIRE(model.layers.size() == 11);
  CHECK(kind_name(model.layers[2]) == "linear/dense");
  CHECK(kind_name(model.layers[3]) == "sliding/moe");
  CHECK(kind_name(model.layers[10]) == "full/moe");
}

TEST_CASE("a model file is a block, a block under `model`, or a config.json, whatever its name") {
  const auto folder = std::filesystem::temp_directory_path() / "plumb_test_read_model";
  std::filesystem::create_directories(folder);
  const auto read = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return read_model(folder / name);
  };
  const std::string plain = small + "layers: full/dense\n";
  const Model model = read("plain.yaml", plain);
  CHECK(model.name == "plain");
  Model nested =
      read("nested.yaml", "model: {vocabulary: 10, hidden: 16, heads: 4, ffn: 20, layers: full/dense, name: plain}\n");
  CHECK(nested == model);
  CHECK(read("in.json", R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 4,
                            "vocab_size": 5})")
            .hidden == 8);
  CHECK_THAT(error_of([&] { (void)read("both.yaml", "model: {hidden: 1}\nlayres: 3\n"); }),
             ContainsSubstring("both.yaml:2:1: unknown key 'layres'"));
  CHECK_THAT(error_of([&] { (void)read("list.yaml", "[1, 2]\n"); }), ContainsSubstring("list.yaml:1:1"));
  CHECK_THAT(error_of([&] { (void)read("empty.yaml", ""); }), ContainsSubstring("is empty"));
  CHECK_THROWS_AS(read_model(folder / "missing.yaml"), InputError);
  std::filesystem::remove_all(folder);
}
