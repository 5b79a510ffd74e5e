// What `plumb-exec calibrate` measured: seconds and bytes of each distinct block at given shapes, and the transport.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/cost/costs.hpp"
#include "common/model/lora.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Measured blocks are valid for these shapes only; costs of other shapes are refused by name.
struct ProfileShapes {
  std::string model = {};
  std::string model_digest = {};  // of all shapes of the model
  std::int64_t sequence = 0;
  std::int64_t microbatch = 0;
  ElementType precision = ElementType::fp32;
  Optimizer optimizer = Optimizer::adam;  // whose step was measured
  std::optional<Lora> lora = {};
  // As a rank of a 1d tensor group of so many has them: 1, the whole blocks. What is measured are their computations
  // and bytes; a prediction adds the time of their collectives from its machine's numbers.
  int tensor_degree = 1;
  bool sequence_parallel = false;
  bool operator==(const ProfileShapes&) const = default;
};

struct MeasuredBlock {
  std::string block = {};      // "embedding", "head", or a layer's kind with its sizes; equal layers are measured once
  ComputeCost cost = {};       // medians
  double spread_fraction = 0;  // (third − first quartile) / median of F + I + W
  int count = 1;               // blocks of the model that this entry stands for
  bool operator==(const MeasuredBlock&) const = default;
};

struct RateSample {
  Bytes bytes;
  Seconds time;
  bool operator==(const RateSample&) const = default;
};

// What devices do with so many bytes, alone or together: read by people; predictions take `transfer`.
struct MeasuredRate {
  std::string operation = {};  // "copy", "add"; "send", "all-reduce", "all-gather", "reduce-scatter"
  int ranks = 1;
  TransferCost cost = {};  // fitted to the samples
  std::vector<RateSample> samples = {};
  bool operator==(const MeasuredRate&) const = default;
};

struct Profile {
  std::string machine = {};   // host, processor, device
  std::string versions = {};  // LibTorch, transport
  int busy_ranks = 1;         // ranks that computed at the same time while measuring
  int samples = 0;            // rounds kept, of all busy ranks together
  int rejected = 0;           // rounds left out as disturbed, of all busy ranks together
  ProfileShapes shapes = {};
  std::vector<MeasuredBlock> blocks = {};
  TransferCost transfer = {};
  std::string transport = {};            // "local", "gloo" or "nccl"
  std::vector<MeasuredRate> rates = {};  // of GPUs
  bool operator==(const Profile&) const = default;
};

// Deterministic, and read back as an equal profile. `read_profile` throws InputError with line and column for another
// version and for what is missing, unknown, twice, or out of range.
[[nodiscard]] std::string to_yaml(const Profile& profile);
[[nodiscard]] Profile read_profile(const std::filesystem::path& path);

// Of this key. Throws InputError, naming it, if the profile lacks it.
[[nodiscard]] const MeasuredBlock& measured_block(const Profile& profile, const std::string& key);

// The key of block i (0 embedding, 1…n layers, n+1 head) in a profile: kind and sizes, the same for equal layers.
[[nodiscard]] std::string block_key(const Model& model, int block);
// Over all shapes of the model, for the refusal of a foreign profile. 16 hexadecimal digits.
[[nodiscard]] std::string model_digest(const Model& model);

// By how much the machine has moved between two profiles: the sum over all blocks of the model of |change of F + I +
// W|, over the sum of F + I + W before. Slower blocks do not make up for faster ones. Throws InputError for profiles of
// different shapes, and naming a block that the second lacks.
[[nodiscard]] double moved_fraction(const Profile& before, const Profile& after);

}  // namespace plumb
