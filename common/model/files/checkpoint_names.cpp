#include "common/model/files/checkpoint_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "common/base/error.hpp"

namespace plumb {
namespace {

// What a tensor is called where a parameter is "OWNER.weight" or "OWNER.bias" (those follow behind), or is OWNER alone;
// "{}" stands for an expert's number. Several parameters may lie behind each other in one: this is the part-th.
struct TensorPlace {
  std::string name;
  int part = 0;
  int parts = 1;
};
using Places = std::map<std::string, TensorPlace, std::less<>>;

struct FamilyNames {
  std::string prefix;  // of all but the head
  std::string layers;  // behind it, before a layer's number
  Places places;       // within a layer; and of embedding, last norm and head
  bool transposed = false;
  std::vector<std::string> buffers = {};  // ends of names
};

Places llama_places() {
  return {{"embedding", {"embed_tokens"}},
          {"final_norm", {"norm"}},
          {"head", {"lm_head"}},
          {"norm_1", {"input_layernorm"}},
          {"norm_2", {"post_attention_layernorm"}},
          {"attention.q", {"self_attn.q_proj"}},
          {"attention.k", {"self_attn.k_proj"}},
          {"attention.v", {"self_attn.v_proj"}},
          {"attention.out", {"self_attn.o_proj"}},
          {"attention.q_norm", {"self_attn.q_norm"}},
          {"attention.k_norm", {"self_attn.k_norm"}},
          {"mlp.gate", {"mlp.gate_proj"}},
          {"mlp.up", {"mlp.up_proj"}},
          {"mlp.down", {"mlp.down_proj"}},
          {"mlp.router", {"mlp.gate"}},
          {"mlp.experts.gate", {"mlp.experts.{}.gate_proj"}},
          {"mlp.experts.up", {"mlp.experts.{}.up_proj"}},
          {"mlp.experts.down", {"mlp.experts.{}.down_proj"}},
          {"mlp.shared.gate", {"mlp.shared_expert.gate_proj"}},
          {"mlp.shared.up", {"mlp.shared_expert.up_proj"}},
          {"mlp.shared.down", {"mlp.shared_expert.down_proj"}},
          {"mlp.shared_gate", {"mlp.shared_expert_gate"}}};
}

// Of adapters alone: no family of checkpoint_families has these.
Places places_named_alike() {
  return {{"attention.gate", {"self_attn.g_proj"}}, {"linear.q", {"linear_attn.q_proj"}},
          {"linear.k", {"linear_attn.k_proj"}},     {"linear.v", {"linear_attn.v_proj"}},
          {"linear.z", {"linear_attn.z_proj"}},     {"linear.beta", {"linear_attn.b_proj"}},
          {"linear.decay", {"linear_attn.a_proj"}}, {"linear.out", {"linear_attn.out_proj"}}};
}

FamilyNames llama() {
  return {.prefix = "model.", .layers = "layers.", .places = llama_places(), .buffers = {"rotary_emb.inv_freq"}};
}

FamilyNames mixtral() {
  FamilyNames names = llama();
  names.places["mlp.router"] = {"block_sparse_moe.gate"};
  names.places["mlp.experts.gate"] = {"block_sparse_moe.experts.{}.w1"};
  names.places["mlp.experts.up"] = {"block_sparse_moe.experts.{}.w3"};
  names.places["mlp.experts.down"] = {"block_sparse_moe.experts.{}.w2"};
  return names;
}

FamilyNames gpt2() {
  return {.prefix = "transformer.",
          .layers = "h.",
          .places = {{"embedding", {"wte"}},
                     {"embedding.positions", {"wpe.weight"}},
                     {"final_norm", {"ln_f"}},
                     {"head", {"lm_head"}},
                     {"norm_1", {"ln_1"}},
                     {"norm_2", {"ln_2"}},
                     {"attention.q", {"attn.c_attn", 0, 3}},
                     {"attention.k", {"attn.c_attn", 1, 3}},
                     {"attention.v", {"attn.c_attn", 2, 3}},
                     {"attention.out", {"attn.c_proj"}},
                     {"mlp.up", {"mlp.c_fc"}},
                     {"mlp.down", {"mlp.c_proj"}}},
          .transposed = true,
          .buffers = {".attn.bias", ".attn.masked_bias"}};
}

FamilyNames gptj() {
  return {.prefix = "transformer.",
          .layers = "h.",
          .places = {{"embedding", {"wte"}},
                     {"final_norm", {"ln_f"}},
                     {"head", {"lm_head"}},
                     {"norm_1", {"ln_1"}},
                     {"attention.q", {"attn.q_proj"}},
                     {"attention.k", {"attn.k_proj"}},
                     {"attention.v", {"attn.v_proj"}},
                     {"attention.out", {"attn.out_proj"}},
                     {"mlp.up", {"mlp.fc_in"}},
                     {"mlp.down", {"mlp.fc_out"}}},
          .buffers = {".attn.bias", ".attn.masked_bias"}};
}

FamilyNames vit() {
  return {.prefix = "vit.",
          .layers = "encoder.layer.",
          .places = {{"embedding.patches", {"embeddings.patch_embeddings.projection"}},
                     {"embedding.class_token", {"embeddings.cls_token"}},
                     {"embedding.positions", {"embeddings.position_embeddings"}},
                     {"final_norm", {"layernorm"}},
                     {"head", {"classifier"}},
                     {"norm_1", {"layernorm_before"}},
                     {"norm_2", {"layernorm_after"}},
                     {"attention.q", {"attention.attention.query"}},
                     {"attention.k", {"attention.attention.key"}},
                     {"attention.v", {"attention.attention.value"}},
                     {"attention.out", {"attention.output.dense"}},
                     {"mlp.up", {"intermediate.dense"}},
                     {"mlp.down", {"output.dense"}}}};
}

const std::map<std::string, FamilyNames>& known_families() {
  static const std::map<std::string, FamilyNames> all = {
      {"gpt2", gpt2()},   {"gptj", gptj()},   {"llama", llama()},     {"mistral", llama()},   {"mixtral", mixtral()},
      {"qwen2", llama()}, {"qwen3", llama()}, {"qwen2_moe", llama()}, {"qwen3_moe", llama()}, {"vit", vit()}};
  return all;
}

const FamilyNames* known_names(const Model& model) {
  if (!model.hugging_face) return nullptr;
  const auto found = known_families().find(model.hugging_face->model_type);
  return found == known_families().end() ? nullptr : &found->second;
}

const FamilyNames& names_of(const Model& model) {
  if (const FamilyNames* const names = known_names(model)) return *names;
  const std::string hint = fmt::format("known: {}", fmt::join(checkpoint_families(), ", "));
  if (!model.hugging_face) {
    throw InputError("model " + model.name,
                     "was read from no config.json, so its tensors have no names in a checkpoint", hint);
  }
  throw InputError(
      "model " + model.name,
      "is of the family '" + model.hugging_face->model_type + "', whose names in a checkpoint are not known", hint);
}

// "layers.3.attention.q.weight" as layer "3", owner "attention.q" and ending ".weight".
struct NameParts {
  std::string layer;  // empty: outside
  std::string owner;
  std::string ending;
};

NameParts parts_of(std::string_view name) {
  NameParts parts;
  std::string_view rest = without_layer_prefix(name);
  if (rest.size() < name.size()) {
    const std::string_view before = name.substr(0, name.size() - rest.size());
    const std::size_t dot = before.find('.');
    parts.layer = before.substr(dot + 1, before.size() - dot - 2);
  }
  for (const std::string_view ending : {".weight", ".bias"}) {
    if (!rest.ends_with(ending)) continue;
    parts.ending = ending;
    rest.remove_suffix(ending.size());
  }
  parts.owner = rest;
  return parts;
}

std::string with_number(std::string name, std::int64_t number) {
  const std::size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(number));
}

std::string module_of(const FamilyNames& names, const TensorPlace& place, const NameParts& of, std::int64_t expert) {
  const std::string prefix = of.owner == "head" ? "" : names.prefix;
  return prefix + (of.layer.empty() ? "" : names.layers + of.layer + ".") + with_number(place.name, expert);
}

TensorPiece matrix_piece(const TensorPlace& place, bool transposed, std::int64_t rows, std::int64_t columns) {
  const std::int64_t all = place.parts * rows;
  if (transposed) {
    return {.shape = {columns, all},
            .rows = rows,
            .columns = columns,
            .offset = place.part * rows,
            .row_step = 1,
            .column_step = all};
  }
  return {.shape = {all, columns},
          .rows = rows,
          .columns = columns,
          .offset = place.part * rows * columns,
          .row_step = columns};
}

TensorPiece vector_piece(const TensorPlace& place, std::int64_t size) {
  return {.shape = {place.parts * size}, .rows = size, .offset = place.part * size};
}

// Of images: a batch of one is written where others have none, and patches are a convolution's.
std::vector<std::int64_t> shape_in_vit(const Vision& vision, const Parameter& parameter) {
  if (parameter.name == "embedding.class_token") return {1, 1, parameter.shape[0]};
  if (parameter.name == "embedding.positions") return {1, parameter.shape[0], parameter.shape[1]};
  if (parameter.name != "embedding.patches.weight") return {};
  return {parameter.shape[0], vision.channels, vision.patch_size, vision.patch_size};
}

}  // namespace

const std::vector<std::string>& checkpoint_families() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const auto& [name, of] : known_families()) names.push_back(name);
    return names;
  }();
  return all;
}

std::vector<TensorPiece> checkpoint_pieces(const Model& model, const Parameter& parameter) {
  const FamilyNames& names = names_of(model);
  const NameParts of = parts_of(parameter.name);
  const auto found = names.places.find(of.owner);
  if (found == names.places.end()) {
    throw RunError("parameter " + parameter.name, "has no name in checkpoints of " + model.hugging_face->model_type +
                                                      ", whose layers have none like it");
  }
  const TensorPlace& place = found->second;
  const std::vector<std::int64_t>& shape = parameter.shape;
  const std::int64_t columns = shape.size() == 1 ? 1 : shape.back();
  const std::int64_t rows = shape.size() == 1 ? shape[0] : shape[shape.size() - 2];
  const std::int64_t experts = shape.size() == 3 ? shape[0] : 1;
  // Conv1D alone is transposed: neither tables of embeddings nor an untied head.
  const bool transposed = names.transposed && is_matmul(parameter.role) && !of.layer.empty();
  std::vector<TensorPiece> pieces;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    TensorPiece piece = shape.size() == 1 ? vector_piece(place, rows) : matrix_piece(place, transposed, rows, columns);
    piece.tensor = module_of(names, place, of, expert) + of.ending;
    piece.first = expert * rows * columns;
    if (model.vision) {
      if (std::vector<std::int64_t> written = shape_in_vit(*model.vision, parameter); !written.empty()) {
        piece.shape = std::move(written);
      }
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::string checkpoint_prefix(const Model& model) { return names_of(model).prefix; }

bool is_beside_parameters(const Model& model, std::string_view tensor) {
  const FamilyNames& names = names_of(model);
  if (model.tied_embeddings && tensor == "lm_head.weight") return true;
  return std::ranges::any_of(names.buffers, [&](const std::string& end) { return tensor.ends_with(end); });
}

std::optional<std::string> adapter_module(const Model& model, std::string_view owner, std::int64_t expert) {
  static const FamilyNames usual = [] {
    FamilyNames names = llama();
    names.places.merge(places_named_alike());
    return names;
  }();
  const FamilyNames* const known = known_names(model);
  const FamilyNames& names = known == nullptr ? usual : *known;
  const NameParts of = parts_of(owner);
  const auto found = names.places.find(of.owner);
  const TensorPlace place = found == names.places.end() ? TensorPlace{of.owner} : found->second;
  if (place.parts > 1) return std::nullopt;
  return module_of(names, place, of, expert);
}

bool has_transposed_matrices(const Model& model) {
  const FamilyNames* const known = known_names(model);
  return known != nullptr && known->transposed;
}

}  // namespace plumb
