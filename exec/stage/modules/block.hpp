// One block of the model (embedding, layer or head) with what it remembers of each microbatch between F, I and W.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <vector>

#include "common/model/model.hpp"
#include "common/placement/index_ranges.hpp"
#include "common/scenario/scenario.hpp"
#include "exec/stage/modules/kept_tensors.hpp"
#include "exec/stage/modules/module.hpp"
#include "exec/stage/primitives/block_parameters.hpp"
#include "exec/stage/vocabulary/part_rows.hpp"

namespace plumb::exec {

class PretrainedWeights;  // exec/data/pretrained_weights.hpp

// Where a block's weights come from, and whose they are.
struct BlockSources {
  TensorGroupPtr group = {};                              // null: the block is whole
  std::shared_ptr<const PretrainedWeights> weights = {};  // to begin with; null: drawn from the seed
  VocabularyPart part = {};                               // of an embedding or a head that is a part of the vocabulary
  WeightPtr table = {};                                   // the part's of a tied table, which another block has made
};

// Every block is an autograd graph of its own, so that a stage is exactly the sequence of its blocks: the same bits and
// the same memory wherever the split falls.
class Block {
 public:
  // `block` counts as in common/split: 0 the embedding, 1…n the layers, n+1 the head.
  // Of the training count sequence, seed, LoRA and selective recompute; where the ranks of a tensor group share the
  // block out, its microbatch.
  Block(const Model& model, int block, const Training& training, const Numerics& numerics,
        const BlockSources& sources = {});

  // F. With `keep` false nothing is remembered but what slices carry on: a recompute will follow. Slices of a
  // sequence come in ascending order here, and in descending order in I.
  [[nodiscard]] at::Tensor forward(at::Tensor input, Pass pass, bool keep);
  // I. Undefined for the embedding, and with LoRA where nothing before is trained. `output_gradient` is given up.
  [[nodiscard]] at::Tensor input_gradient(int microbatch, at::Tensor output_gradient);
  // W.
  void weight_gradient(int microbatch);

  // Between F and I, of a pass that lists it: what the graph keeps. Null if there is no graph.
  [[nodiscard]] KeptTensors* kept(int microbatch);

  // No microbatch's I or W is still to come.
  [[nodiscard]] bool idle() const { return graphs_.empty() && queues_.empty() && carried_.empty(); }
  [[nodiscard]] const std::vector<WeightPtr>& weights() const { return store_.all(); }
  // As a rank of a tensor group has it; null: it is whole.
  [[nodiscard]] const Division* division() const { return divided_ ? &divided_->of : nullptr; }
  [[nodiscard]] const Divided* divided() const { return divided_.get(); }
  // Of a block that has no module: what its action moves is ticked off from here to `end`.
  void begin(Phase phase, int microbatch);
  void end();
  // Division::summands of a weight.
  [[nodiscard]] std::vector<int> summands(const Weight& weight) const {
    return divided_ ? divided_->of.summands(weight.name) : std::vector<int>{};
  }
  // Which elements of the whole weight this rank holds.
  [[nodiscard]] IndexRanges owned(const Weight& weight) const;

 private:
  struct Graph {
    at::Tensor input;   // leaf
    at::Tensor output;  // root; its data are given up, only its history counts
    WeightQueuePtr queue;
    Slice slice;
    Carried carried;  // roots, too; their gradients are what later slices leave on the leaves below
    KeptTensors kept = {};
  };

  [[nodiscard]] std::vector<Carried> carried_before(const Pass& pass) const;
  [[nodiscard]] at::Tensor run(const at::Tensor& input, const Pass& pass);
  [[nodiscard]] Carried take_carried(int microbatch, const Slice& slice);

  std::unique_ptr<Divided> divided_;  // null: it is whole
  VocabularyPart part_;
  WeightStore store_;
  Module module_;
  bool has_input_gradient_;
  bool has_backward_;  // without: all of it is frozen, and all before
  std::map<int, Graph> graphs_;
  std::map<int, WeightQueuePtr> queues_;
  // Of slices, from F until I: what each carries on, detached from its own graph: leaves of those of later slices.
  std::map<int, Carried> carried_;
};

}  // namespace plumb::exec
