// A module is a function from activations to activations over named weights; one maker per kind of mixer and MLP.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/model.hpp"
#include "exec/stage/primitives/expert_rows.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "exec/stage/tensor/crossing.hpp"
#include "exec/stage/tensor/products_in_panels.hpp"
#include "exec/stage/tensor/products_in_pieces.hpp"

namespace plumb::exec {

// Which experts each token chose, by (layer, microbatch). A reference of higher precision replays the choices of the
// run that it is compared with: near ties flip otherwise.
struct RoutingLog {
  bool replay = false;
  // Of replayed choices: how much less likely than the one that it has taken the place of a chosen expert was, at most,
  // in parts of that. Near ties alone are small.
  double worst_gap = 0;
  std::map<std::pair<std::int64_t, int>, at::Tensor> chosen;
};

// Which of the parts of its sequences a pass is of: 1 where these are whole.
struct Slice {
  int index = 0;
  int count = 1;
  std::int64_t first_token = 0;
  std::vector<std::int64_t> ends = {};  // of the slices before it: the first token behind each
};

// What a mixer hands from one slice to the later ones of the same sequences, in an order of its own.
using Carried = std::vector<at::Tensor>;

// What one pass of one microbatch carries beside the activations.
struct Pass {
  int microbatch = 0;  // as a schedule counts: where sequences are cut, each slice is one
  WeightQueuePtr queue;
  at::Tensor targets;             // of the head
  RoutingLog* routing = nullptr;  // may be null
  bool lists_kept = false;        // its activations may be evicted
  Slice slice = {};
  std::vector<Carried> earlier = {};  // by slice, of those before this one
  Carried* carried = nullptr;         // what this one hands on; null: no slice comes after
  // Of a part that ranks share out: what it reads, and with sequence parallelism what its products keep of that.
  at::Tensor gathered = {};
  KeptPartPtr part = {};
  // Of an asynchronous layout, by the matrix: products that were made where their input was gathered.
  std::shared_ptr<std::map<const Weight*, at::Tensor>> made = {};

  // Of an input of a product; null: the product keeps it as it is.
  [[nodiscard]] KeptPartPtr part_of(const at::Tensor& x) const {
    return part && x.is_same(gathered) ? part : KeptPartPtr();
  }
  // Once: then it is the caller's alone.
  [[nodiscard]] at::Tensor take_product(const Weight& of) const { return std::exchange(made->at(&of), {}); }
};

using Module = std::function<at::Tensor(const at::Tensor& input, const Pass& pass)>;

// Products of one value that are made where it is gathered, in the order of their modules: in pieces of tokens, or on a
// grid in panels.
struct ReadersTogether {
  std::vector<ReadingProduct> in_pieces = {};
  std::vector<PanelProduct> in_panels = {};
};
using ReadersByValue = std::map<std::string, ReadersTogether>;

// What a module is made of. Of a divided block the model and its layer have this rank's heads, widths and vocabulary.
struct ModuleContext {
  const Model& model;
  WeightStore& weights;
  ReadersByValue& readers;
  std::string prefix;      // of its weights' names, such as "layers.3."
  std::int64_t layer = 0;  // index of the decoder layer
  std::int64_t sequence = 0;
  Numerics numerics;
  double lora_scale = 1;             // of adapters, alpha / rank
  bool redoes_attention = false;     // its core is made again in the backward
  const Divided* divided = nullptr;  // as the block is, among the ranks of a tensor group; null: it is whole
};

// How a value comes to the divided sites that read it.
struct Entry {
  CrossingPtr crossing;
  ReadersTogether readers = {};
};
// Of a value, of a site's first input. Precondition: all modules that read it are made.
[[nodiscard]] Entry module_entry(const ModuleContext& context, const std::string& value);
[[nodiscard]] Entry module_entry_into(const ModuleContext& context, std::string_view site);
// x as divided sites read it, with the pass that they go on with: x is `gathered` there. Where all that reads it is
// made in panels, it is not, and goes on as it is.
[[nodiscard]] Pass entered(const at::Tensor& x, const Pass& pass, const Entry& entry);
// `inner` reads the value of this name so; where nothing moves, `inner` itself.
[[nodiscard]] Module entering(const ModuleContext& context, const std::string& value, Module inner);

// Both kinds of linear with an adapter beside it where the weights have one. `name`.weight of `shape`; with a bias,
// `name`.bias of shape[0].
[[nodiscard]] WeightPtr weight_of(const ModuleContext& context, const std::string& name, at::IntArrayRef shape);
[[nodiscard]] Module make_linear(const ModuleContext& context, const std::string& name, std::int64_t out,
                                 std::int64_t in, bool bias = false);
// So too, out of a divided part: the ranks' products are summed, then the bias is added.
[[nodiscard]] Module make_leaving_linear(const ModuleContext& context, const std::string& name, std::int64_t out,
                                         std::int64_t in, bool bias = false);
// `name`.weight of [experts, out, in]; of rows sorted by expert, as expert_linear.
using ExpertModule = std::function<at::Tensor(const at::Tensor& x, const ExpertRowsPtr& rows, const Pass&)>;
[[nodiscard]] ExpertModule make_expert_linear(const ModuleContext& context, const std::string& name,
                                              at::IntArrayRef shape);
// Over hidden: of x, and of x + beside, which it gives as well.
struct Norm {
  Module of;
  std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor& x, const at::Tensor& beside, const Pass&)> of_sum;
};
[[nodiscard]] Norm make_norm(const ModuleContext& context, const std::string& name, NormKind kind);

// Whether the block is shared out by a grid of ranks (2d to 3d): their modules are these. A grid's matrix is gathered
// where it is used; a linear out of a divided part gathers its input, too. No norm: its channels are whole here.
[[nodiscard]] bool on_grid(const ModuleContext& context);
[[nodiscard]] Module make_grid_linear(const ModuleContext& context, const std::string& name, bool bias);
[[nodiscard]] Module make_grid_leaving_linear(const ModuleContext& context, const std::string& name, bool bias);
[[nodiscard]] std::optional<Norm> make_grid_norm(const ModuleContext& context, const std::string& name, NormKind kind);
[[nodiscard]] Module make_grid_embedding(const ModuleContext& context);

[[nodiscard]] Module make_softmax_attention(const ModuleContext& context, const SoftmaxAttention& attention);
[[nodiscard]] Module make_gated_delta(const ModuleContext& context, const GatedDelta& delta);
[[nodiscard]] Module make_dense_mlp(const ModuleContext& context, const DenseMlp& mlp);
[[nodiscard]] Module make_moe_mlp(const ModuleContext& context, const MoeMlp& moe);

// Block 0: tokens to hidden states. Blocks 1…n: x + mixer(norm(x)), then x + mlp(norm(x)), or in parallel
// x + mixer(norm(x)) + mlp(norm(x)). Block n+1: final norm, head and mean loss over the pass's targets; a tied head
// reads "embedding.weight".
[[nodiscard]] Module make_embedding(const ModuleContext& context);
[[nodiscard]] Module make_layer(const ModuleContext& context, const Layer& layer);
[[nodiscard]] Module make_head(const ModuleContext& context);

// Of a model of images (ViT, arXiv 2010.11929). Patches [batch, patches, channels · patch²] become hidden states
// [batch, 1 + patches, hidden], the class token first. The head sees the class token alone, behind the norm of all.
[[nodiscard]] Module make_patch_embedding(const ModuleContext& context, const Vision& vision);
[[nodiscard]] Module make_class_head(const ModuleContext& context, const Vision& vision);

}  // namespace plumb::exec
