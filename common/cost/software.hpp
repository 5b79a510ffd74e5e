// What the training system does: which kernels it fuses, what it overlaps, how it exchanges messages. Facts of software
// that decide as much as the hardware does, so they are inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

// How neighbouring pipeline ranks exchange messages.
enum class PipelineExchange : std::uint8_t {
  asynchronous,  // a message leaves when it is made and arrives when it arrives
  synchronous,   // after each step of its schedule a rank waits until its sends and receives are done (Megatron-LM)
};

// How much of the forward a backward redoes at once.
enum class RecomputeUnit : std::uint8_t {
  stage,  // an action of its own, R, before the backward of the stage
  layer,  // inside the backward, layer by layer: embedding and head are not redone
};

// By the values of the enumerations, as in scenarios and files.
[[nodiscard]] const std::vector<std::string>& exchange_names();
[[nodiscard]] const std::vector<std::string>& recompute_unit_names();

// How much is reduced at once where gradients are reduced beside the backward: so many bytes of main gradients, or so
// many parameters, and at least so many for each data-parallel rank.
struct GradientBucket {
  std::int64_t parameters = 0;
  std::int64_t parameters_per_rank = 0;
  Bytes bytes = {25 << 20};  // torch's DDP (`bucket_cap_mb`); 0: the parameters count
  // Ranks behind the pipeline's first, and stages behind a rank's first one, reduce all at once behind the backward,
  // which the first rank ends later.
  bool first_stage_only = false;
  bool operator==(const GradientBucket&) const = default;
};

struct Software {
  std::string name = "plumb";
  std::string source = {};            // where the facts below are from
  bool flash_attention = true;        // else all scores are made: arXiv 2205.05198, section 4.1
  bool composed = true;               // recurrences and expert routing are made of a framework's operations, each of
                                      // which keeps what its gradient needs; else of kernels that keep little
  bool eager = false;                 // activation functions, rotary embeddings and what repeats key-value heads are a
                                      // framework's operations, each a kernel of its own; else fused kernels
  bool eager_norms = false;           // RMSNorm too
  bool dropout = false;               // on embedding, attention and branches
  bool fused_projections = false;     // matmuls that read the same input are one: queries, keys and values; gate and up
  bool fused_weight_gradient = true;  // W adds to the main gradient within the matmul
  bool tensor_overlap = false;        // the backward's tensor-parallel collectives hide behind its matmuls
  bool scattered_messages = false;    // each rank of a tensor group sends its part of a message, gathered on arrival
  bool data_overlap = false;          // gradients are reduced beside the last microbatch's backward …
  GradientBucket data_bucket = {};    // … in buckets; else as one behind it
  bool copies_overlap = false;        // HSDP's sums over copies go with them, each behind its own bucket on a stream of
                                      // their own; else as one behind all
  double optimizer_bytes = 0;         // per parameter, that its kernels read and write; 0: each state once each way
  ElementType gradients = ElementType::fp32;  // main gradients: fp32, or the training's 16 bits
  PipelineExchange exchange = PipelineExchange::asynchronous;
  RecomputeUnit recompute_unit = RecomputeUnit::stage;
  double hidden_in_pairs = 0;    // of the shorter action of an overlapped pair, the fraction that the longer one hides
  bool post_validation = false;  // ranks step without waiting for each other (arXiv 2401.10241, section 4): from step
                                 // to step it takes the longest rank's own span
  Seconds step_overhead = {};    // per step, that nothing else names: data loading, logging, scalar reductions
  bool operator==(const Software&) const = default;
};

// Software of a scenario that names none: what plumb-exec does, with gathers and reductions of data-parallel ranks
// beside compute on GPUs, as DDP and FSDP2 have them by default.
[[nodiscard]] inline Software assumed_software(DeviceType device) {
  return {.data_overlap = device == DeviceType::cuda};
}

// Returns false for assumed software: each software that is read has a source.
[[nodiscard]] inline bool is_stated(const Software& software) { return !software.source.empty(); }

// "megatron-2022", "not stated, plumb with data_overlap is assumed".
[[nodiscard]] std::string describe(const Software& software);

// Whether a rank of a tensor group sends its part of a message alone, of hidden states that are divided already or that
// the software scatters; and whether the others' parts are gathered from their tensor group on arrival.
[[nodiscard]] inline bool sends_parts(const Software& software, const TensorLayout& tensor) {
  return tensor.sequence_parallel || is_grid(tensor) || software.scattered_messages;
}
[[nodiscard]] inline bool gathers_messages(const Software& software, const TensorLayout& tensor) {
  return software.scattered_messages && tensor.degree > 1 && !tensor.sequence_parallel && !is_grid(tensor);
}

// Returns true if HSDP's copies are reduced while the backward runs; gradients that actions reduce need a prefetch.
[[nodiscard]] inline bool overlaps_copies(const Software& software, const Layout& layout) {
  const bool overlaps = software.copies_overlap && software.data_overlap;
  return overlaps && (!reduces_in_actions(layout) || layout.data.prefetch > 0);
}

// The files that plumb ships, by name.
[[nodiscard]] const std::vector<std::string>& software_names();

}  // namespace plumb
