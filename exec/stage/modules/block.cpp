#include "exec/stage/modules/block.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/block_cost/block_work.hpp"
#include "common/model/lora.hpp"
#include "exec/data/pretrained_weights.hpp"
#include "exec/stage/modules/lora.hpp"
#include "exec/stage/modules/vocabulary_parts.hpp"

namespace plumb::exec {
namespace {

// With the layers of the model as they are, and its vocabulary as this rank has it.
Model local_model(Model model, const Divided* divided, const VocabularyPart& part, bool is_layer) {
  if (divided == nullptr) return with_rows_of_part(std::move(model), part);
  if (!is_layer && model.part != ModelPart::without_vocabulary) model.vocabulary = divided->of.vocabulary();
  return model;
}

// `first_row`: of a part of the vocabulary.
Module make_end(const ModuleContext& context, int block, std::int64_t first_row) {
  switch (context.model.part) {
    case ModelPart::whole:
      break;
    case ModelPart::without_vocabulary:
      return block == 0 ? make_positions(context) : make_last_norm(context);
    case ModelPart::vocabulary:
    case ModelPart::vocabulary_and_target_rows:
      return block == 0 ? make_embedding_part(context, first_row) : make_head_part(context);
  }
  return block == 0 ? make_embedding(context) : make_head(context);
}

Module make_module(const Model& whole, int block, const Training& training, WeightStore& store,
                   const Numerics& numerics, const Divided* divided, const VocabularyPart& part) {
  const bool is_layer = block > 0 && block < head_block(whole);
  const Model model = local_model(whole, divided, part, is_layer);
  ReadersByValue readers;
  const ModuleContext context{.model = model,
                              .weights = store,
                              .readers = readers,
                              .prefix = is_layer ? layer_prefix(static_cast<std::size_t>(block) - 1) : "",
                              .layer = block - 1,
                              .sequence = training.sequence,
                              .numerics = numerics,
                              .lora_scale = training.lora ? scale_of(*training.lora) : 1,
                              .redoes_attention = training.recompute.mode == RecomputeMode::selective,
                              .divided = divided};
  const auto layer = [&] {
    const Layer& all = model.layers[static_cast<std::size_t>(block - 1)];
    return divided == nullptr ? all : divided->of.local(all);
  };
  const std::int64_t first_row = is_part_of_vocabulary(whole) ? first_row_of_part(whole, part, divided) : 0;
  Module module = is_layer ? make_layer(context, layer()) : make_end(context, block, first_row);
  store.require_all_taken();
  return module;
}

// The program that is costed.
BlockProgram program_of(const Model& model, int block, const Training& training, const TensorLayout& tensor) {
  Scenario scenario;
  scenario.model = model;
  scenario.training = training;
  scenario.layout.tensor = tensor;
  return work_of_block(scenario, static_cast<std::size_t>(block))->program;
}

// `model`: with the rows of the vocabulary that its ranks share out.
std::unique_ptr<Divided> divided_block(const Model& model, int block, const Training& training, TensorGroupPtr group) {
  if (!group) return nullptr;
  Division division(model, block, group->layout(), training, group->position());
  auto divided = std::make_unique<Divided>(Divided{.of = std::move(division), .group = std::move(group), .moves = {}});
  const PlacedBlock& placed = divided->of.placed();
  const TensorLayout& tensor = divided->group->layout();
  divided->moves = block_moves("block " + std::to_string(block), placed, divided->group->position());
  if (!tensor.asynchronous) return divided;
  const BlockProgram program = program_of(model, block, training, tensor);
  divided->moves.in_pieces = moves_in_pieces(placed, program);
  if (is_grid(tensor)) divided->moves.panels = panel_steps(placed, program);
  return divided;
}

IndexRanges owned_by(const Divided& divided, const std::string& name, const VocabularyPart& part) {
  return elements_within_part(divided.of.owned(name), name, divided.of.elements(name), part);
}

// Which part of a parameter a rank has.
class LocalShapes {
 public:
  LocalShapes(const Divided* divided, const VocabularyPart& part) : divided_(divided), part_(part) {}

  [[nodiscard]] bool is_whole() const { return divided_ == nullptr && part_.count == 1; }
  [[nodiscard]] std::vector<std::int64_t> shape(const Parameter& whole) const {
    Parameter of_part = whole;
    of_part.shape = shape_of_part(whole, part_);
    return divided_ == nullptr ? of_part.shape : divided_->of.local_shape(of_part);
  }
  [[nodiscard]] IndexRanges owned(const Parameter& whole) const {
    return divided_ == nullptr ? elements_of_part(whole, part_) : owned_by(*divided_, whole.name, part_);
  }

 private:
  const Divided* divided_;
  VocabularyPart part_;
};

// Weights are drawn whole, so that the model is the same however it is divided.
Cut cut_of(const LocalShapes& local) {
  if (local.is_whole()) return {};
  return [local](const Parameter& parameter, const at::Tensor& whole) {
    at::Tensor part = at::empty(local.shape(parameter), whole.options());
    const at::Tensor to = part.view({-1});
    const at::Tensor from = whole.reshape({-1});
    std::int64_t at = 0;
    for (const IndexRange& range : local.owned(parameter)) {
      const std::int64_t count = range.end - range.begin;
      to.narrow(0, at, count).copy_(from.narrow(0, range.begin, count));
      at += count;
    }
    return part;
  };
}

// Of a file each rank reads its own part. Adapters are drawn: a checkpoint has none.
GivenValues given_of(const LocalShapes& local, const BlockSources& sources) {
  if (!sources.weights && !sources.table) return {};
  return [local, weights = sources.weights, table = sources.table](const Parameter& parameter) -> at::Tensor {
    if (table && parameter.name == table->name) return table->value;
    if (!weights || is_adapter(parameter.name)) return {};
    at::Tensor part = at::empty(local.shape(parameter), at::kFloat);
    weights->read(parameter, local.owned(parameter),
                  {part.mutable_data_ptr<float>(), static_cast<std::size_t>(part.numel())});
    return part;
  };
}

// A view of something larger keeps that alive: where no graph needs it, only the view's own part is kept.
Carried leaves(const Carried& carried, bool graph_needs_them) {
  Carried made;
  for (const at::Tensor& tensor : carried) {
    const bool is_part = tensor.storage().nbytes() > tensor.nbytes();
    made.push_back((is_part && !graph_needs_them ? tensor.clone() : tensor.detach()).requires_grad_());
  }
  return made;
}

}  // namespace

Block::Block(const Model& model, int block, const Training& training, const Numerics& numerics,
             const BlockSources& sources)
    : divided_(divided_block(with_rows_of_part(model, sources.part), block, training, sources.group)),
      part_(sources.part),
      store_(with_adapters(block_parameters(model, block), training.lora), training.seed, numerics,
             cut_of({divided_.get(), part_}), given_of({divided_.get(), part_}, sources)),
      module_(make_module(model, block, training, store_, numerics, divided_.get(), part_)),
      has_input_gradient_(gradient_goes_below(model, training.lora, static_cast<std::size_t>(block)) ||
                          (block == 0 && model.part == ModelPart::without_vocabulary)),
      has_backward_(has_input_gradient_ ||
                    std::ranges::any_of(store_.all(), [](const WeightPtr& weight) { return weight->is_trained(); })) {}

IndexRanges Block::owned(const Weight& weight) const {
  return divided_ ? owned_by(*divided_, weight.name, part_) : elements_of_part(weight.name, weight.elements(), part_);
}

at::Tensor Block::run(const at::Tensor& input, const Pass& pass) {
  begin(Phase::forward, pass.microbatch);
  at::Tensor output = module_(input, pass);
  end();
  return output;
}

void Block::begin(Phase phase, int microbatch) {
  if (divided_) divided_->group->ticks().begin(divided_->moves, phase, microbatch);
}

void Block::end() {
  if (divided_) divided_->group->ticks().end();
}

at::Tensor Block::forward(at::Tensor input, Pass pass, bool keep) {
  const c10::AutoGradMode grad_mode(keep && has_backward_);
  const int microbatch = pass.microbatch;
  const Slice slice = pass.slice;
  Carried carried;
  if (slice.count > 1) {
    pass.earlier = carried_before(pass);
    if (slice.index + 1 < slice.count) pass.carried = &carried;
  }
  if (!keep) {
    at::Tensor output = run(input, pass);
    if (slice.count > 1) carried_.try_emplace(microbatch, leaves(carried, false));
    return output;
  }
  pass.queue = c10::make_intrusive<WeightQueue>();
  if (has_input_gradient_) {
    input = input.detach().requires_grad_();
  }
  KeptTensors kept;
  std::optional<KeptTensors::Listing> listing;
  if (pass.lists_kept) {
    kept.add_leaf(input);
    listing.emplace(kept);
  }
  at::Tensor output = run(input, pass).contiguous();
  listing.reset();
  at::Tensor result = output.detach();
  if (has_backward_) {
    output.set_data(at::empty({0}, output.options()));
  } else {
    output.reset();
  }
  if (!has_input_gradient_ && !pass.lists_kept) input.reset();
  // After a recompute later slices have those of F, whose values are the same.
  if (slice.count > 1) carried_.try_emplace(microbatch, leaves(carried, has_backward_));
  const auto [position, inserted] = graphs_.try_emplace(microbatch, Graph{.input = std::move(input),
                                                                          .output = std::move(output),
                                                                          .queue = std::move(pass.queue),
                                                                          .slice = slice,
                                                                          .carried = std::move(carried),
                                                                          .kept = std::move(kept)});
  if (!inserted) {
    throw RunError("microbatch " + std::to_string(microbatch), "F of a microbatch whose F was before it");
  }
  return result;
}

KeptTensors* Block::kept(int microbatch) {
  const auto found = graphs_.find(microbatch);
  return found == graphs_.end() ? nullptr : &found->second.kept;
}

std::vector<Carried> Block::carried_before(const Pass& pass) const {
  std::vector<Carried> earlier;
  for (int before = pass.microbatch - pass.slice.index; before < pass.microbatch; ++before) {
    const auto found = carried_.find(before);
    if (found == carried_.end()) {
      throw RunError("microbatch " + std::to_string(pass.microbatch),
                     "F or R of a slice without what slice " + std::to_string(before) + " carries into it");
    }
    earlier.push_back(found->second);
  }
  return earlier;
}

// Its gradients are complete when all later slices have added theirs.
Carried Block::take_carried(int microbatch, const Slice& slice) {
  if (slice.index + 1 < slice.count && carried_.contains(microbatch + 1)) {
    throw RunError("microbatch " + std::to_string(microbatch),
                   "I or B of a slice while that of the next slice, which adds to its gradient, is still to come");
  }
  return std::move(carried_.extract(microbatch).mapped());
}

at::Tensor Block::input_gradient(int microbatch, at::Tensor output_gradient) {
  auto node = graphs_.extract(microbatch);
  if (node.empty()) {
    throw RunError("microbatch " + std::to_string(microbatch), "I or B of a microbatch without F (or R) before it");
  }
  Graph graph = std::move(node.mapped());
  if (!has_backward_) {
    if (graph.slice.count > 1) (void)take_carried(microbatch, graph.slice);
    queues_[microbatch] = std::move(graph.queue);
    return {};
  }
  std::vector<at::Tensor> roots{graph.output};
  std::vector<at::Tensor> gradients{std::move(output_gradient)};
  if (graph.slice.count > 1) {
    const Carried handed_on = take_carried(microbatch, graph.slice);
    for (std::size_t index = 0; index < handed_on.size(); ++index) {
      // No later slice looked so far back, or nothing before it is trained.
      if (!handed_on[index].grad().defined() || !graph.carried[index].requires_grad()) continue;
      roots.push_back(std::move(graph.carried[index]));
      gradients.push_back(handed_on[index].grad());
    }
    graph.carried.clear();
  }
  begin(Phase::input_gradient, microbatch);
  torch::autograd::backward(roots, gradients);
  end();
  queues_[microbatch] = std::move(graph.queue);
  if (!has_input_gradient_) {
    return {};
  }
  graph.output.reset();
  at::Tensor gradient = graph.input.grad();
  graph.input.mutable_grad().reset();
  return gradient.contiguous();
}

void Block::weight_gradient(int microbatch) {
  auto node = queues_.extract(microbatch);
  if (node.empty()) {
    throw RunError("microbatch " + std::to_string(microbatch), "W of a microbatch without I before it");
  }
  const c10::NoGradGuard no_grad;
  begin(Phase::weight_gradient, microbatch);
  node.mapped()->run();
  end();
}

}  // namespace plumb::exec
