// What the first block of a model reads and the last one compares with, for one microbatch: token ids or images.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/scenario/scenario.hpp"
#include "exec/data/data.hpp"

namespace plumb::exec {

// Which microbatches of a step's batch a stage sees, of ranks that share it out: its microbatch m is the batch's
// m · count + index (as Megatron-LM's sampler deals them: MegatronPretrainingSampler in
// megatron/training/datasets/data_samplers.py).
struct BatchShare {
  int index = 0;
  int count = 1;
};

// `count` tokens from `first` on of each of a microbatch's sequences, which count from 0 over the whole run.
struct TokenRange {
  std::int64_t sequence = 0;  // the microbatch's first
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Token ids [microbatch, count]: inputs, or with shift 1 their targets.
[[nodiscard]] at::Tensor token_ids(const Corpus& corpus, const Training& training, const TokenRange& range,
                                   std::int64_t shift);

// Of the run's images from `first` on: [microbatch, patches, channels · patch²] in `type`, from −1 up to 127/128, which
// bf16 holds exactly; and the labels [microbatch].
[[nodiscard]] at::Tensor image_patches(const Vision& vision, const Training& training, std::int64_t first,
                                       at::ScalarType type);
[[nodiscard]] at::Tensor image_labels(const Vision& vision, const Training& training, std::int64_t first);

// The model's own of these; images are whole.
[[nodiscard]] at::Tensor batch_inputs(const Corpus& corpus, const Model& model, const Training& training,
                                      const TokenRange& range, at::ScalarType type);
[[nodiscard]] at::Tensor batch_targets(const Corpus& corpus, const Model& model, const Training& training,
                                       const TokenRange& range);

}  // namespace plumb::exec
