// What a stage on LibTorch is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/stage/batch.hpp"
#include "exec/stage/primitives/weight_optimizer.hpp"
#include "exec/stage/primitives/weights.hpp"
#include "exec/stage/tensor/tensor_group.hpp"
#include "exec/stage/vocabulary/part_rows.hpp"

namespace plumb::exec {

class PretrainedWeights;  // exec/data/pretrained_weights.hpp
class ShardGroup;         // exec/stage/sharding/shard_group.hpp

// What data-parallel ranks share out beside the optimizer's states.
struct DataSharding {
  bool weights = false;
  bool by_block = false;        // weights are gathered for each unit in each action; else once a step, for all of it
  bool gradients = false;       // and reduced behind W of each microbatch
  std::vector<int> units = {};  // how many blocks each has that actions gather and reduce as one, in their order
  std::shared_ptr<ShardGroup> group = {};  // null if neither is within actions
};

struct TorchStageSettings {
  Model model;  // of a divided vocabulary with the part of it (ModelPart) that the stage has, and all rows
  Training training;
  BlockRange blocks;
  int stage = 0;         // for errors
  int microbatches = 1;  // of sliced sequences each slice is one, as in the schedule
  int slices = 1;
  std::vector<std::int64_t> slice_tokens = {};  // as in the schedule
  bool recomputed = false;
  bool evicts = false;  // some microbatch's activations
  Numerics numerics;
  int update_every = 0;                     // microbatches per optimizer step; 0: one step at the end
  std::vector<std::int32_t> versions = {};  // with several updates: of the weights that each microbatch uses
  BatchShare share = {};
  StateShard states = {};  // of the optimizer, that this rank has
  DataSharding sharding = {};
  bool logs_routing = false;  // of its experts, of the step that ended last
  TensorGroupPtr group = {};  // the ranks that share out each block; null: this one has all of it
  std::shared_ptr<const PretrainedWeights> weights = {};  // to begin with; null: drawn from the seed
  VocabularyPart part = {};                               // of a stage that is a part of a divided vocabulary
  bool has_table_of_embedding = false;                    // a head's part reads its rank's part of a tied table:
  WeightPtr table = {};                                   // that of the embedding's part
};

[[nodiscard]] Numerics numerics_of(ElementType precision, c10::Device device = at::kCPU);
// Stage `stage` of a plan, with the first share of its batch.
[[nodiscard]] TorchStageSettings stage_settings(const Plan& plan, int stage, c10::Device device = at::kCPU);
// All blocks as one stage, on one device, with the whole batch.
[[nodiscard]] TorchStageSettings whole_model_settings(const Plan& plan, const Numerics& numerics);

}  // namespace plumb::exec
