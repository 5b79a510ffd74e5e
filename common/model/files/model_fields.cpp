// Tables of the fields of a model block.
#include "common/model/files/model_fields.hpp"
#include "common/model/files/model_block.hpp"
#include "common/model/layer.hpp"
#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

Field size_field(std::string key, std::int64_t most, std::string description, std::string default_text = "",
                 std::string example = "") {
  return {.key = std::move(key),
          .shape = shapes::whole(1, most),
          .description = std::move(description),
          .default_text = std::move(default_text),
          .example = std::move(example)};
}

Field needed(Field field) {
  field.required = true;
  return field;
}

Field flag_field(std::string key, std::string description, std::string default_text) {
  return {.key = std::move(key),
          .shape = shapes::flag(),
          .description = std::move(description),
          .default_text = std::move(default_text),
          .example = "true"};
}

}  // namespace

const std::vector<std::string>& mixer_words() {
  static const std::vector<std::string> names = {"full",      "sliding", "linear", "kda", "mla",
                                                 "lightning", "mamba",   "mamba2", "none"};
  return names;
}

const std::vector<std::string>& mlp_words() {
  static const std::vector<std::string> names = {"dense", "moe", "none"};
  return names;
}

const std::vector<std::string>& activation_words() {
  static const std::vector<std::string> names = {"swiglu", "gelu", "geglu", "relu2", "gelu_erf"};
  return names;
}

const FieldBlock& linear_block() {
  static const FieldBlock block{
      .name = "linear",
      .title = "Gated delta rule (linear)",
      .description = "Sizes of `linear` layers (Gated DeltaNet, arXiv 2412.06464), as in Qwen3-Next.",
      .fields = {size_field("key_heads", limits::heads, "Heads of queries and keys; divides `value_heads`.", "heads",
                            "16"),
                 size_field("value_heads", limits::heads, "Heads of values.", "key_heads", "32"),
                 size_field("key_dim", limits::head_dim, "Size of a head of queries and keys.", "head_dim", "128"),
                 size_field("value_dim", limits::head_dim, "Size of a head of values.", "key_dim", "128"),
                 size_field("conv_kernel", limits::kernel, "Width of the convolution.",
                            std::to_string(GatedDelta{}.conv_kernel)),
                 size_field("chunk", limits::chunk, "Tokens that the recurrence takes at once.",
                            std::to_string(GatedDelta{}.chunk))},
      .bare = "key_heads"};
  return block;
}

const FieldBlock& kda_block() {
  static const FieldBlock block{
      .name = "kda",
      .title = "Kimi Delta Attention (kda)",
      .description = "Sizes of `kda` layers: a gated delta rule with a gate for each channel.",
      .fields = {size_field("heads", limits::heads, "Heads.", "the model's heads", "16"),
                 size_field("head_dim", limits::head_dim, "Size of a head.", "the model's head_dim", "128"),
                 size_field("conv_kernel", limits::kernel, "Width of the convolution.",
                            std::to_string(ChannelGatedDelta{}.conv_kernel)),
                 size_field("chunk", limits::chunk, "Tokens that the recurrence takes at once.",
                            std::to_string(ChannelGatedDelta{}.chunk))},
      .bare = "heads"};
  return block;
}

const FieldBlock& mla_block() {
  static const FieldBlock block{
      .name = "mla",
      .title = "Latent attention (mla)",
      .description = "Sizes of `mla` layers (DeepSeek-V2, arXiv 2405.04434).",
      .fields = {
          size_field("q_lora_rank", limits::hidden, "Rank of the queries' projection.", "queries straight from hidden",
                     "1536"),
          needed(size_field("kv_lora_rank", limits::hidden, "Rank of the keys' and values' projection.", "", "512")),
          needed(size_field("nope_dim", limits::head_dim, "Part of a head without positions.", "", "128")),
          needed(size_field("rope_dim", limits::head_dim, "Part of a head with rotary positions.", "", "64")),
          needed(size_field("value_dim", limits::head_dim, "Size of a head of values.", "", "128"))}};
  return block;
}

const FieldBlock& lightning_block() {
  static const FieldBlock block{
      .name = "lightning",
      .title = "Lightning attention (lightning)",
      .description = "Sizes of `lightning` layers (MiniMax-01, arXiv 2501.08313).",
      .fields = {size_field("heads", limits::heads, "Heads.", "the model's heads", "64"),
                 size_field("head_dim", limits::head_dim, "Size of a head.", "the model's head_dim", "128"),
                 size_field("block", limits::chunk, "Tokens that the recurrence takes at once.",
                            std::to_string(Lightning{}.block))},
      .bare = "heads"};
  return block;
}

const FieldBlock& mamba_block() {
  static const FieldBlock block{
      .name = "mamba",
      .title = "Mamba-1 (mamba)",
      .description = "Sizes of `mamba` layers (arXiv 2312.00752).",
      .fields = {size_field("expand", limits::expand, "Inner width over `hidden`.", "2"),
                 size_field("state", limits::head_dim, "States of each channel.", "16"),
                 size_field("dt_rank", limits::hidden, "Rank of the time step's projection.", "hidden / 16, rounded up",
                            "128"),
                 size_field("conv_kernel", limits::kernel, "Width of the convolution.",
                            std::to_string(Mamba{}.conv_kernel)),
                 flag_field("conv_bias", "The convolution has a bias.", "true"),
                 flag_field("proj_bias", "The projections have biases.", "false"),
                 flag_field("inner_norms", "Norms on dt, B and C, as Jamba has them.", "false")},
      .bare = "state"};
  return block;
}

const FieldBlock& mamba2_block() {
  static const FieldBlock block{
      .name = "mamba2",
      .title = "Mamba-2 (mamba2)",
      .description = "Sizes of `mamba2` layers (arXiv 2405.21060).",
      .fields = {
          needed(size_field("heads", limits::heads, "Heads.", "", "64")),
          needed(size_field("head_dim", limits::head_dim, "Size of a head.", "", "64")),
          needed(size_field("state", limits::head_dim, "States of each channel.", "", "128")),
          size_field("groups", limits::heads, "Groups of B and C; divides `heads`.", "1", "8"),
          size_field("conv_kernel", limits::kernel, "Width of the convolution.", std::to_string(Mamba2{}.conv_kernel)),
          size_field("chunk", limits::chunk, "Tokens that the recurrence takes at once.",
                     std::to_string(Mamba2{}.chunk)),
          flag_field("conv_bias", "The convolution has a bias.", "true")}};
  return block;
}

const FieldBlock& experts_block() {
  static const FieldBlock block{
      .name = "experts",
      .title = "Experts (moe)",
      .description = "Sizes of `moe` layers.",
      .fields = {needed(size_field("count", limits::experts, "Routed experts.", "", "64")),
                 needed(size_field("top_k", limits::experts, "Experts that a token visits, at most `count`.", "", "8")),
                 needed(size_field("ffn", limits::width, "Width of one expert.", "", "1408")),
                 {.key = "shared",
                  .shape = shapes::whole(0, limits::shared_experts),
                  .description = "Experts of the same width that every token visits.",
                  .default_text = "0",
                  .example = "1"},
                 flag_field("shared_gate", "A sigmoid gate on the shared experts, as Qwen3-Next has it.", "false")},
      .bare = "count"};
  return block;
}

const FieldBlock& rotary_block() {
  static const FieldBlock block{
      .name = "rotary",
      .title = "Rotary positions",
      .description = "Part of a head that rotary positions turn.",
      .fields = {{.key = "dim",
                  .shape = shapes::whole(2, limits::head_dim),
                  .description = "Entries of a head that are rotated; even, at most the head's size.",
                  .default_text = "head_dim",
                  .example = "64"},
                 flag_field("interleaved", "Pairs are neighbours, not halves of the head.", "false")},
      .bare = "dim"};
  return block;
}

const FieldBlock& patches_block() {
  static const FieldBlock block{
      .name = "patches",
      .title = "Images",
      .description = "A vision transformer (arXiv 2010.11929) in place of a model of text: it has no vocabulary.",
      .fields = {needed(size_field("image", limits::head_dim, "Side of an image in pixels, a multiple of `patch`.", "",
                                   "224")),
                 needed(size_field("patch", limits::head_dim, "Side of a patch in pixels.", "", "16")),
                 size_field("channels", limits::kernel, "Channels of a pixel.", "3"),
                 needed(size_field("classes", limits::vocabulary, "Classes that the head tells apart.", "", "1000"))}};
  return block;
}

// NOLINTNEXTLINE(readability-function-size): a table
const FieldBlock& model_block() {
  static const FieldBlock block{
      .name = "model",
      .title = "Model",
      .description = "Sizes of a model, and its layers in order. Embedding, final norm and head are implied.",
      .fields = {
          {.key = "name",
           .shape = shapes::text("text"),
           .description = "Name in plans and tables.",
           .default_text = "the file's name",
           .example = "ours"},
          {.key = "vocabulary",
           .shape = shapes::whole(1, limits::vocabulary),
           .description = "Rows of the embedding and of the head.",
           .example = "50304",
           .required = true,
           .unless = "patches"},
          needed(size_field("hidden", limits::hidden, "Width of the residual stream.", "", "2048")),
          size_field(
              "heads", limits::heads,
              "Query heads of full, sliding and mla layers, and the default of other mixers. Required where a layer "
              "needs it.",
              "", "16"),
          size_field("kv_heads", limits::heads, "Heads of keys and values of full and sliding layers; divides `heads`.",
                     "heads", "4"),
          size_field("head_dim", limits::head_dim, "Size of a head of queries and keys.", "hidden / heads", "128"),
          size_field("value_dim", limits::head_dim, "Size of a head of values, of full and sliding layers.", "head_dim",
                     "128"),
          size_field("ffn", limits::width, "Width of a dense MLP. Required by dense layers.", "", "5632"),
          {.key = "activation",
           .shape = shapes::choice(activation_words()),
           .description = "Activation of MLPs and experts; gelu is the tanh form, gelu_erf the exact one.",
           .default_text = "swiglu",
           .example = "swiglu"},
          {.key = "norm",
           .shape = shapes::choice({"rmsnorm", "layernorm"}),
           .description = "All norms, the last one too.",
           .default_text = "rmsnorm",
           .example = "rmsnorm"},
          flag_field("bias", "Biases of dense MLPs, and of attention unless `attention_bias` says otherwise.", "false"),
          {.key = "positions",
           .shape = shapes::choice({"rope", "learned", "none"}),
           .description = "Positions; learned ones have a table of `max_positions` rows.",
           .default_text = "rope",
           .example = "rope"},
          size_field("window", limits::positions,
                     "Keys that a query sees in sliding layers, itself included. Required there.", "", "1024"),
          {.key = "max_positions",
           .shape = shapes::tokens(limits::positions),
           .description = "Longest sequence; required by learned positions.",
           .default_text = "no limit",
           .example = "8k"},
          {.key = "experts",
           .shape = shapes::block(experts_block()),
           .description = "Sizes of moe layers. Required there."},
          {.key = "layers",
           .shape = shapes::text("attention/mlp layers", {}, "[^/]+/[A-Za-z0-9_/*(), \\s-]*"),
           .description = "Layers in order, each attention/mlp; `*n` repeats, parentheses group.",
           .example = "\"full/dense*12\"",
           .required = true},
          {.key = "linear",
           .shape = shapes::block(linear_block()),
           .description = "Sizes of linear layers.",
           .default_text = "{}"},
          {.key = "kda",
           .shape = shapes::block(kda_block()),
           .description = "Sizes of kda layers.",
           .default_text = "{}"},
          {.key = "mla", .shape = shapes::block(mla_block()), .description = "Sizes of mla layers. Required there."},
          {.key = "mamba",
           .shape = shapes::block(mamba_block()),
           .description = "Sizes of mamba layers.",
           .default_text = "{}"},
          {.key = "mamba2",
           .shape = shapes::block(mamba2_block()),
           .description = "Sizes of mamba2 layers. Required there."},
          {.key = "lightning",
           .shape = shapes::block(lightning_block()),
           .description = "Sizes of lightning layers.",
           .default_text = "{}"},
          flag_field("qk_norm", "RMSNorm on each head of queries and keys, of full and sliding layers.", "false"),
          flag_field("output_gate", "Gates attention's output and doubles the query projection, as Qwen3-Next has it.",
                     "false"),
          {.key = "mtp",
           .shape = shapes::whole(0, limits::mtp_modules),
           .description = "Modules of multi-token prediction, each a layer like the last, on the last stage.",
           .default_text = "0",
           .example = "1"},
          flag_field("tied_embeddings", "Embedding and head are one matrix.", "false"),
          flag_field("attention_bias", "Biases of the projections of full and sliding layers.", "bias"),
          flag_field("head_bias", "Bias of the head.", "false; of images true"),
          flag_field("parallel", "Mixer and MLP read the same norm and are added together, as in GPT-J.", "false"),
          {.key = "rotary",
           .shape = shapes::block(rotary_block()),
           .description = "Part of a head that rotary positions turn.",
           .default_text = "the whole head, in halves"},
          {.key = "patches",
           .shape = shapes::block(patches_block()),
           .description = "A vision transformer in place of a model of text.",
           .default_text = "none"}}};
  return block;
}

const FieldBlock& model_file_block() {
  static const FieldBlock block{
      .name = "model file",
      .title = "File of a model",
      .description = "The model's keys under one key.",
      .fields = {
          {.key = "model", .shape = shapes::block(model_block()), .description = "The model.", .required = true}}};
  return block;
}

const FieldBlock& config_block() {
  static const FieldBlock block{.name = "config",
                                .title = "Configuration of Hugging Face transformers",
                                .description = "Keys of a config.json, which differ from family to family.",
                                .fields = {{.key = "model_type",
                                            .shape = shapes::text("a family"),
                                            .description = "The family.",
                                            .example = "llama",
                                            .required = true}},
                                .open = true};
  return block;
}

}  // namespace plumb
