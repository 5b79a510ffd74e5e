#include "common/model/files/config_json.hpp"

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "common/base/files.hpp"
#include "common/model/parameters.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using nlohmann::json;

namespace {

Model read(const json& config) { return read_config_json(YamlValue::parse(config.dump(1), "config.json")); }

std::string error_of(const json& config) {
  try {
    (void)read(config);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

json config_of(const std::string& name) {
  return json::parse(read_file(std::string(PLUMB_SOURCE_DIR) + "/tests/data/models/" + name + ".config.json"));
}

json with(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const std::string& key) {
  config.erase(key);
  return config;
}

const json llama = {{"model_type", "llama"},    {"hidden_act", "silu"},          {"vocab_size", 100},
                    {"hidden_size", 64},        {"intermediate_size", 96},       {"num_hidden_layers", 4},
                    {"num_attention_heads", 4}, {"max_position_embeddings", 128}};

std::string kinds(const Model& model) {
  std::string text;
  for (const Layer& layer : model.layers) text += (text.empty() ? "" : " ") + kind_name(layer);
  return text;
}

}  // namespace

TEST_CASE("fields that change no shape are accepted, null counts as absent") {
  json config = llama;
  config.update(json{{"architectures", {"LlamaForCausalLM"}},
                     {"bos_token_id", 1},
                     {"eos_token_id", {1, 2}},
                     {"rope_theta", 10000.0},
                     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "yarn"}}},
                     {"rms_norm_eps", 1e-6},
                     {"initializer_range", 0.02},
                     {"torch_dtype", "bfloat16"},
                     {"transformers_version", "4.40.0"},
                     {"use_cache", true},
                     {"attention_dropout", 0.0},
                     {"pretraining_tp", 1},
                     {"quantization_config", {{"bits", 4}}},
                     {"num_key_value_heads", nullptr},
                     {"head_dim", nullptr},
                     {"something_new", nullptr}});
  CHECK(read(config) == read(llama));
  const Model model = read(llama);
  CHECK(std::get<SoftmaxAttention>(model.layers[0].mixer).kv_heads == 4);
  CHECK(std::get<SoftmaxAttention>(model.layers[0].mixer).head_dim == 16);
}

TEST_CASE("a field that may change shapes and is not understood is an error with its name and line") {
  CHECK_THAT(error_of(with(llama, "inner_layers", 2)),
             ContainsSubstring("config.json:4:") && ContainsSubstring("'inner_layers' is not understood"));
  CHECK_THAT(error_of(with(llama, "attention_bais", true)), ContainsSubstring("did you mean 'attention_bias'?"));
  CHECK_THAT(error_of(with(config_of("gpt2"), "add_cross_attention", true)), ContainsSubstring("only decoders"));
}

TEST_CASE("all fields that are not understood are named at once") {
  CHECK_THAT(error_of(with(with(llama, "inner_layers", 2), "outer_layers", 3)),
             ContainsSubstring("the fields 'inner_layers', 'outer_layers' are not understood"));
}

TEST_CASE("each field that changes nothing at one value is refused at another") {
  for (const char* field : {"qkv_bias", "use_qk_norm", "use_bias", "attn_output_gate", "attention_out_bias"}) {
    INFO(field);
    CHECK(read(with(llama, field, false)) == read(llama));
    CHECK_THAT(error_of(with(llama, field, true)), ContainsSubstring(field));
  }
  const json qwen3 = config_of("qwen3-30b-a3b");
  CHECK(read(with(qwen3, "use_qk_norm", true)) == read(qwen3));
  CHECK_THAT(error_of(with(qwen3, "use_qk_norm", false)), ContainsSubstring("'use_qk_norm'"));
}

TEST_CASE("a refusal names everything that plumb lacks, in one message") {
  json deepseek = config_of("deepseek-v3");
  deepseek.update(json{{"index_n_heads", 64}, {"index_topk", 2048}, {"moe_latent_size", 512}, {"hidden_act", "situ"}});
  CHECK_THAT(error_of(deepseek),
             ContainsSubstring("sparse attention with an indexer ('index_n_heads', 'index_topk')") &&
                 ContainsSubstring("experts of a latent width ('moe_latent_size')") &&
                 ContainsSubstring("the activation situ"));
  CHECK_THAT(error_of(with(deepseek, "inner_layers", 2)),
             ContainsSubstring("moe_latent_size") && ContainsSubstring("not understood: 'inner_layers'"));
  // The family is known, and refused; a later field adds to it.
  CHECK_THAT(error_of(with(with(llama, "model_type", "gemma4_text"), "attention_k_eq_v", true)),
             ContainsSubstring("full and sliding attention with different heads") &&
                 ContainsSubstring("values that are the keys ('attention_k_eq_v')"));
  // The family is not known.
  CHECK_THAT(error_of(with(with(llama, "model_type", "nextgen"), "hc_mult", 4)),
             ContainsSubstring("'nextgen' is not known, and plumb lacks: hyper-connections"));
  CHECK(read(with(config_of("deepseek-v3"), "moe_latent_size", nullptr)) == read(config_of("deepseek-v3")));
}

TEST_CASE("remarks name each part of a config that is left out") {
  const auto remarks = [](const json& config) {
    return config_remarks(YamlValue::parse(config.dump(1), "config.json"));
  };
  CHECK(remarks(llama).empty());
  const json capped = with(with(llama, "final_logit_softcapping", 30.0), "attn_logit_softcapping", 50.0);
  REQUIRE(remarks(capped).size() == 1);
  CHECK_THAT(remarks(capped)[0], ContainsSubstring("attn_logit_softcapping, final_logit_softcapping: left out"));
  CHECK(remarks(with(llama, "final_logit_softcapping", nullptr)).empty());
  const std::vector<std::string> inside = remarks(json{{"text_config", capped}, {"vision_config", {{"depth", 2}}}});
  REQUIRE(inside.size() == 2);
  CHECK_THAT(inside[0], ContainsSubstring("text only: vision_config is left out"));
  CHECK(inside[1] == remarks(capped)[0]);
  const json qwen = without(config_of("qwen3-next-80b-a3b"), "num_nextn_predict_layers");
  REQUIRE(remarks(qwen).size() == 1);
  CHECK_THAT(remarks(qwen)[0], ContainsSubstring("multi-token prediction is left out") &&
                                   ContainsSubstring("num_nextn_predict_layers: 1"));
  CHECK(read(qwen).mtp_modules == 0);
  const json stated = with(qwen, "num_nextn_predict_layers", 1);
  CHECK(remarks(stated).empty());
  CHECK(read(stated).mtp_modules == 1);
  const std::vector<std::string> chunks = remarks(config_of("small-llama4"));
  REQUIRE(chunks.size() == 1);
  CHECK_THAT(chunks[0], ContainsSubstring("chunks of 256 tokens count as a sliding window"));
}

TEST_CASE("a family that is not known is refused by its name") {
  CHECK_THAT(error_of(with(llama, "model_type", "lama")), ContainsSubstring("did you mean 'llama'?"));
  CHECK_THAT(error_of(with(llama, "model_type", "olmo2")), ContainsSubstring("over all heads"));
  CHECK_THAT(error_of(with(llama, "model_type", "xyz")), ContainsSubstring("'xyz' is not known"));
  CHECK(read(without(llama, "model_type")) == read(llama));
  CHECK_THAT(error_of(without(config_of("gpt2"), "model_type")), ContainsSubstring("'model_type' is missing"));
  CHECK_THAT(error_of(without(config_of("qwen3-next-80b-a3b"), "model_type")),
             ContainsSubstring("'model_type' is missing"));
}

TEST_CASE("every required field of every configuration is missed by name, never defaulted") {
  for (const char* name : {"gpt2", "llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen3-next-80b-a3b", "gemma-3-12b",
                           "deepseek-v3", "gpt-oss-20b", "minimax-text-01", "vit-b-16"}) {
    const json config = config_of(name);
    for (const auto& [key, value] : config.items()) {
      INFO(name << " without " << key);
      std::string error;
      try {
        const Model model = read(without(config, key));
        const Model whole = read(config);
        // What may be left out is implied, or has no part in the shapes of a full sequence.
        const bool optional = model == whole || key == "tie_word_embeddings" || key == "max_position_embeddings" ||
                              key == "sliding_window_pattern" || key == "num_key_value_heads" ||
                              key == "num_nextn_predict_layers" || key == "q_lora_rank" || key == "kv_lora_rank" ||
                              key == "attention_bias" || key == "model_type";
        CHECK(optional);
      } catch (const InputError& caught) {
        CHECK_THAT(std::string(caught.what()), ContainsSubstring("config.json"));
      }
    }
  }
}

TEST_CASE("numbers out of range are refused with their line") {
  for (const json& bad : {json(0), json(-1), json(1.5), json("64"), json(1e30), json::array({64}), json(true),
                          json(std::int64_t{1} << 40)}) {
    for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                            "intermediate_size", "num_key_value_heads", "head_dim"}) {
      INFO(key << " = " << bad);
      CHECK_THAT(error_of(with(llama, key, bad)), ContainsSubstring("config.json:"));
    }
  }
  CHECK_THAT(error_of(with(llama, "num_key_value_heads", 3)), ContainsSubstring("no multiple of 3 KV heads"));
  CHECK_THAT(error_of(with(llama, "num_attention_heads", 5)), ContainsSubstring("no multiple of 5 heads"));
  CHECK_THAT(error_of(with(config_of("vit-b-16"), "patch_size", 15)), ContainsSubstring("multiple of 'patch_size'"));
  CHECK_THAT(error_of(with(config_of("mixtral-8x7b"), "num_experts_per_tok", 9)), ContainsSubstring("8 experts"));
  CHECK_THAT(error_of(json::array({1, 2})), ContainsSubstring("config.json:1:1"));
}

TEST_CASE("truncated and repeated JSON is refused with its line") {
  const std::string text = llama.dump(1);
  for (std::size_t length = 1; length < text.size(); length += 7) {
    CHECK_THROWS_AS(read_config_json(YamlValue::parse(text.substr(0, length), "config.json")), InputError);
  }
  CHECK_THROWS_AS(read_config_json(YamlValue::parse(R"({"hidden_size": 1, "hidden_size": 2})", "c.json")), InputError);
}

TEST_CASE("a file with a few bytes changed is read or refused, never anything else") {
  std::mt19937 random(1);
  for (const std::string name : {"gpt2", "qwen3-next-80b-a3b", "gpt-oss-20b", "deepseek-v3"}) {
    const std::string text = config_of(name).dump(1);
    for (int round = 0; round < 500; ++round) {
      std::string broken = text;
      for (std::size_t changes = 1 + random() % 4; changes > 0; --changes) {
        const std::string bytes = "{}[]:,\"'-0189eE.&*!|>%@`#~\n\t \xff\x01?nN";
        const char byte = bytes[random() % bytes.size()];
        const std::size_t at = random() % broken.size();
        if (random() % 2 == 0) {
          broken[at] = byte;
        } else {
          broken.insert(at, 1, byte);
        }
      }
      try {
        (void)count_parameters(read_config_json(YamlValue::parse(broken, "config.json")));
      } catch (const InputError& error) {
        CHECK(std::string(error.what()).starts_with("config.json"));
      }
    }
  }
}

TEST_CASE("the language model inside a multimodal file") {
  const json gemma = config_of("gemma-3-12b");
  const json outer = {{"model_type", "gemma3"},
                      {"text_config", gemma},
                      {"vision_config", {{"hidden_size", 1152}}},
                      {"mm_tokens_per_image", 256}};
  CHECK(read(outer) == read(gemma));
  CHECK(read(json{{"text_config", without(gemma, "tie_word_embeddings")}}).tied_embeddings);
  CHECK_FALSE(read(json{{"text_config", gemma}, {"tie_word_embeddings", false}}).tied_embeddings);
}

TEST_CASE("a file with vision beside the text has the text's model, and says so") {
  const Model model = read(config_of("small-qwen3-vl-moe"));
  CHECK(kinds(model) == "full/moe full/moe full/moe full/moe");
  json flat = with(llama, "model_type", "qwen2_vl");
  flat["vision_config"] = {{"depth", 2}};
  const std::vector<std::string> remarks = config_remarks(YamlValue::parse(flat.dump(1), "config.json"));
  REQUIRE(remarks.size() == 1);
  CHECK_THAT(remarks[0], ContainsSubstring("text only: vision_config"));
  const std::string folder = std::string(PLUMB_SOURCE_DIR) + "/tests/data/models/";
  CHECK(is_text_part(read_config_json(std::filesystem::path(folder + "small-qwen3-vl-moe.config.json"))));
  CHECK_FALSE(is_text_part(read_config_json(std::filesystem::path(folder + "small-llama4.config.json"))));
  // The type of the file counts where the block inside has none.
  json inner = config_of("qwen3-30b-a3b");
  const json outer = {{"model_type", "qwen3_vl_moe"}, {"text_config", without(inner, "model_type")}};
  CHECK(read(outer) == read(inner));
}

TEST_CASE("transformers 4 and 5 name the same layers") {
  json kimi = config_of("small-kimi-linear");
  json before = kimi;
  for (const char* name :
       {"layer_types", "mlp_layer_types", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"}) {
    before.erase(name);
  }
  before["linear_attn_config"] = {{"full_attn_layers", {4}},
                                  {"kda_layers", {1, 2, 3}},
                                  {"head_dim", 16},
                                  {"num_heads", 4},
                                  {"short_conv_kernel_size", 4}};
  before["first_k_dense_replace"] = 1;
  CHECK(read(before) == read(kimi));

  const json nemotron = config_of("small-nemotron-3");
  CHECK(read(with(without(nemotron, "layers_block_type"), "hybrid_override_pattern", "ME*-")) == read(nemotron));
  CHECK(read(with(nemotron, "layers_block_type", {"mamba", "moe", "attention", "mlp"})) == read(nemotron));
  CHECK_THAT(error_of(with(nemotron, "num_nextn_predict_layers", 1)),
             ContainsSubstring("multi-token prediction by other layers"));
  CHECK_THAT(error_of(with(nemotron, "moe_latent_size", 16)), ContainsSubstring("experts of a latent width"));

  const json granite = config_of("small-granite-4-h");
  CHECK(read(with(granite, "layer_types",
                  {"linear_attention", "linear_attention", "full_attention", "linear_attention"})) == read(granite));
  CHECK(read(granite).positions == Positions::none);
  CHECK(read(with(granite, "position_embedding_type", "rope")).positions == Positions::rope);
}

TEST_CASE("Llama 4: layers without rotary positions are full, every step-th has experts") {
  const json llama4 = config_of("small-llama4");
  CHECK(kinds(read(llama4)) == "sliding/dense sliding/moe sliding/dense full/moe");
  CHECK(kinds(read(without(llama4, "no_rope_layers"))) == "sliding/dense sliding/moe sliding/dense full/moe");
  CHECK(kinds(read(with(llama4, "attention_chunk_size", nullptr))) == "full/dense full/moe full/dense full/moe");
  CHECK(kinds(read(with(llama4, "moe_layers", {0}))) == "sliding/moe sliding/dense sliding/dense full/dense");
  const json listed =
      with(llama4, "layer_types", {"chunked_attention", "full_attention", "full_attention", "chunked_attention"});
  CHECK(kinds(read(listed)) == "sliding/dense full/moe full/dense sliding/moe");
  CHECK(std::get<SoftmaxAttention>(read(llama4).layers[0].mixer).window == 256);
}

TEST_CASE("a head size that is null is the hidden size over the heads") {
  const json qwen3 = config_of("qwen3-30b-a3b");
  CHECK(std::get<SoftmaxAttention>(read(with(qwen3, "head_dim", nullptr)).layers[0].mixer).head_dim == 2048 / 32);
  CHECK_THAT(error_of(without(qwen3, "head_dim")), ContainsSubstring("is missing"));
  const json saved = with(without(qwen3, "head_dim"), "transformers_version", "5.24.0");
  CHECK(std::get<SoftmaxAttention>(read(saved).layers[0].mixer).head_dim == 2048 / 32);
  const json image = without(config_of("vit-b-16"), "num_labels");
  CHECK_THAT(error_of(image), ContainsSubstring("'num_labels' or 'id2label' is missing"));
  CHECK(read(with(image, "transformers_version", "5.24.0")).vision->classes == 2);
}

TEST_CASE("rows of the reference page: each family once, refused ones with all that they lack") {
  const std::vector<FamilyRow> rows = config_family_rows();
  std::set<std::string> names;
  bool refused = false;
  for (const FamilyRow& row : rows) {
    for (const std::string& name : row.model_types) {
      INFO(name);
      CHECK(names.insert(name).second);
      CHECK(row.lacks.empty() == !row.read_as.empty());
      CHECK(row.lacks.empty() == !row.runs.empty());
    }
    CHECK((row.lacks.empty() ? !refused : true));
    refused = refused || !row.lacks.empty();
  }
  CHECK(refused);
  CHECK(names.contains("qwen3_vl_moe"));
  CHECK(names.contains("deepseek_v32"));
}

TEST_CASE("lists and rules name the layers with experts") {
  json moe = with(with(with(llama, "num_local_experts", 8), "num_experts_per_tok", 2), "moe_intermediate_size", 32);
  moe["num_hidden_layers"] = 6;
  const auto pattern = [&](const json& config) {
    std::string text;
    for (const Layer& layer : read(config).layers) text += std::holds_alternative<MoeMlp>(layer.mlp) ? 'E' : '-';
    return text;
  };
  CHECK(pattern(moe) == "EEEEEE");
  CHECK(pattern(with(moe, "first_k_dense_replace", 2)) == "--EEEE");
  CHECK(pattern(with(with(moe, "first_k_dense_replace", 1), "moe_layer_freq", 2)) == "--E-E-");
  CHECK(pattern(with(moe, "moe_layer_freq", {0, 1, 1, 0, 1, 0})) == "-EE-E-");
  CHECK(pattern(with(moe, "decoder_sparse_step", 2)) == "-E-E-E");
  CHECK(pattern(with(with(moe, "decoder_sparse_step", 2), "mlp_only_layers", {3})) == "-E---E");
  CHECK(pattern(with(with(moe, "expert_layer_period", 3), "expert_layer_offset", 1)) == "-E--E-");
  CHECK(pattern(with(moe, "mlp_layer_types", {"dense", "sparse", "dense", "sparse", "sparse", "dense"})) == "-E-EE-");
  CHECK_THAT(error_of(with(moe, "moe_layer_freq", {0, 1})), ContainsSubstring("one entry for each of the 6 layers"));
  CHECK_THAT(error_of(with(moe, "moe_layer_freq", "([0]*1+[1]*5)")), ContainsSubstring("moe_layer_freq"));
}

TEST_CASE("lists and rules name the mixer of each layer") {
  const json gemma = without(config_of("gemma-3-12b"), "sliding_window_pattern");
  json three = with(gemma, "num_hidden_layers", 3);
  CHECK(kinds(read(with(three, "sliding_window_pattern", 2))) == "sliding/dense full/dense sliding/dense");
  CHECK(kinds(read(with(three, "layer_types", {"full_attention", "sliding_attention"}))) == "full/dense sliding/dense");
  CHECK_THAT(error_of(three), ContainsSubstring("the list of layer kinds is missing"));
  CHECK_THAT(error_of(with(three, "layer_types", {"chunked_attention"})),
             ContainsSubstring("'chunked_attention' is not understood"));

  const json mistral = with(with(with(llama, "model_type", "mistral"), "sliding_window", 32), "num_hidden_layers", 2);
  CHECK(kinds(read(mistral)) == "sliding/dense sliding/dense");
  json qwen = with(with(mistral, "model_type", "qwen2"), "max_window_layers", 1);
  CHECK(kinds(read(qwen)) == "full/dense full/dense");
  CHECK(kinds(read(with(qwen, "use_sliding_window", true))) == "full/dense sliding/dense");
  CHECK(std::get<SoftmaxAttention>(read(qwen).layers[0].mixer).qkv_bias);
  CHECK_FALSE(std::get<SoftmaxAttention>(read(qwen).layers[0].mixer).out_bias);
}

TEST_CASE("Jamba: attention and experts at an offset, Mamba-1 with norms elsewhere") {
  const json jamba = {{"model_type", "jamba"},    {"hidden_act", "silu"},     {"vocab_size", 64},
                      {"hidden_size", 48},        {"intermediate_size", 96},  {"num_hidden_layers", 8},
                      {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"attn_layer_period", 4},
                      {"attn_layer_offset", 2},   {"expert_layer_period", 2}, {"expert_layer_offset", 1},
                      {"num_experts", 4},         {"num_experts_per_tok", 2}, {"mamba_d_state", 16},
                      {"mamba_d_conv", 4},        {"mamba_expand", 2},        {"mamba_dt_rank", "auto"},
                      {"mamba_conv_bias", true},  {"mamba_proj_bias", false}, {"use_mamba_kernels", true}};
  const Model model = read(jamba);
  CHECK(kinds(model) == "mamba/dense mamba/moe full/dense mamba/moe mamba/dense mamba/moe full/dense mamba/moe");
  CHECK(std::get<Mamba>(model.layers[0].mixer) ==
        Mamba{.inner = 96, .state = 16, .dt_rank = 3, .conv_kernel = 4, .conv_bias = true, .inner_norms = true});
  CHECK(std::get<MoeMlp>(model.layers[1].mlp).width == 96);
  CHECK(model.positions == Positions::none);
  CHECK_THAT(error_of(without(jamba, "attn_layer_offset")), ContainsSubstring("attn_layer_offset"));
}

TEST_CASE("Nemotron-H: one mixer per layer, one norm") {
  const json nemotron = {{"model_type", "nemotron_h"},
                         {"mlp_hidden_act", "relu2"},
                         {"vocab_size", 64},
                         {"hidden_size", 48},
                         {"intermediate_size", 96},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"head_dim", 16},
                         {"mamba_num_heads", 6},
                         {"mamba_head_dim", 8},
                         {"n_groups", 2},
                         {"ssm_state_size", 16},
                         {"conv_kernel", 4},
                         {"chunk_size", 128},
                         {"expand", 2},
                         {"hybrid_override_pattern", "M-M*-"},
                         {"use_bias", false},
                         {"use_conv_bias", true},
                         {"attention_bias", false},
                         {"mlp_bias", false},
                         {"num_hidden_layers", 5}};
  const Model model = read(nemotron);
  CHECK(kinds(model) == "mamba2/none none/dense mamba2/none full/none none/dense");
  for (const Layer& layer : model.layers) CHECK(layer.norms == 1);
  CHECK(std::get<Mamba2>(model.layers[0].mixer) ==
        Mamba2{.heads = 6, .head_dim = 8, .groups = 2, .state = 16, .conv_kernel = 4, .chunk = 128});
  CHECK(std::get<DenseMlp>(model.layers[1].mlp).activation == Activation::relu2);
  // facts of the family: h(2di + 2GN + H) + di·h, convolution (di + 2GN)(kc + 1), 3H, norm di, and the layer's norm.
  CHECK(count_parameters(model).layers[0] == 48 * (2 * 48 + 2 * 2 * 16 + 6) + 48 * 48 + (48 + 64) * 5 + 18 + 48 + 48);
  CHECK_THAT(error_of(with(nemotron, "hybrid_override_pattern", "MX")), ContainsSubstring("'X' is no layer"));
  CHECK_THAT(error_of(with(nemotron, "use_bias", true)),
             ContainsSubstring("biases of Mamba-2 projections ('use_bias')"));
}

TEST_CASE("Kimi Linear: layers are numbered from 1") {
  const json kimi = {{"model_type", "kimi_linear"},
                     {"hidden_act", "silu"},
                     {"vocab_size", 64},
                     {"hidden_size", 48},
                     {"intermediate_size", 96},
                     {"moe_intermediate_size", 24},
                     {"num_hidden_layers", 4},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 4},
                     {"head_dim", 12},
                     {"q_lora_rank", nullptr},
                     {"kv_lora_rank", 16},
                     {"qk_nope_head_dim", 8},
                     {"qk_rope_head_dim", 4},
                     {"v_head_dim", 8},
                     {"linear_attn_config",
                      {{"full_attn_layers", {4}},
                       {"kda_layers", {1, 2, 3}},
                       {"head_dim", 8},
                       {"num_heads", 4},
                       {"short_conv_kernel_size", 4}}},
                     {"first_k_dense_replace", 1},
                     {"moe_layer_freq", 1},
                     {"num_experts", 8},
                     {"num_experts_per_token", 2},
                     {"num_shared_experts", 1}};
  const Model model = read(kimi);
  CHECK(kinds(model) == "kda/dense kda/moe kda/moe mla/moe");
  // 4hD + 2(hd + dD) + hH, convolution 3·kc·D, A_log H, dt_bias D, norm d; MLP 3hf; two norms.
  CHECK(count_parameters(model).layers[0] ==
        4 * 48 * 32 + 2 * (48 * 8 + 8 * 32) + 48 * 4 + 3 * 4 * 32 + 4 + 32 + 8 + 3 * 48 * 96 + 2 * 48);
  json wrong = kimi;
  wrong["linear_attn_config"]["kda_layers"] = {1, 2};
  CHECK_THAT(error_of(wrong), ContainsSubstring("layer 3 is in no list"));
  wrong["linear_attn_config"]["kda_layers"] = {1, 2, 3, 4};
  CHECK_THAT(error_of(wrong), ContainsSubstring("listed twice"));
}

TEST_CASE("Gemma 2 alternates without saying so, and its head size may not be left out") {
  json gemma = config_of("gemma-3-12b");
  gemma.erase("sliding_window_pattern");
  gemma["model_type"] = "gemma2";
  gemma["num_hidden_layers"] = 3;
  CHECK(kinds(read(gemma)) == "sliding/dense full/dense sliding/dense");
  CHECK_THAT(error_of(without(gemma, "head_dim")), ContainsSubstring("'head_dim' or 'attention_head_dim' is missing"));
}
