// What a checkpoint says of itself: index.json of its folder, written last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/model/model.hpp"
#include "common/placement/index_ranges.hpp"
#include "common/plan/plan.hpp"
#include "exec/stage/state_part.hpp"

namespace plumb::exec {

inline constexpr int checkpoint_version = 1;
inline constexpr std::int64_t block_elements = std::int64_t{1} << 20;  // that one checksum is of

// A tensor of a file: of which elements of which whole tensor, and the CRC-32C of each of its blocks of
// `block_elements` elements. It is ascending, as the file has it.
struct CheckpointPiece {
  std::string weight;
  StateKind kind = StateKind::weight;
  ElementType type = ElementType::fp32;  // or bf16
  std::vector<IndexRun> runs = {};
  std::vector<std::uint32_t> checksums = {};
  bool operator==(const CheckpointPiece&) const = default;
};
[[nodiscard]] std::int64_t elements(const CheckpointPiece& piece);
// What it is called in its file: "layers.0.mlp.up.weight", and "….exp_avg" of a moment.
[[nodiscard]] std::string tensor_name(const CheckpointPiece& piece);

struct CheckpointFile {
  std::string name = {};  // in the checkpoint's folder
  std::int64_t bytes = 0;
  std::vector<CheckpointPiece> pieces = {};
  bool operator==(const CheckpointFile&) const = default;
};

struct CheckpointTensor {
  std::vector<std::int64_t> shape = {};
  bool frozen = false;
  bool operator==(const CheckpointTensor&) const = default;
};

struct CheckpointIndex {
  std::int64_t step = 0;     // steps made
  std::int64_t updates = 0;  // optimizer steps made: more than steps where a step has several
  Model model = {};
  Training training = {};
  std::string data_digest = {};  // of the text; empty: images
  // The same in all checkpoints of one training, whatever plans it goes on with: training_id of the run that began it.
  std::string training_id = {};
  std::int64_t sequences = 0;  // where the data stood: steps · global_batch of the run that wrote it
  // Of the run that wrote it, to be read by people:
  std::string layout = {};
  std::string schedule = {};
  std::vector<int> split = {};
  std::map<std::string, CheckpointTensor> tensors = {};  // whole ones, by name
  std::vector<CheckpointFile> files = {};
  bool operator==(const CheckpointIndex&) const = default;
};

// Of what a run begins with: what its model computes, how it is trained, the text.
[[nodiscard]] std::string training_id(const Model& model, const Training& training, const std::string& data_digest);

// All but step, updates, sequences and files, of a plan's run that begins a training.
[[nodiscard]] CheckpointIndex index_of(const Plan& plan, const std::string& data_digest);

// With a checksum of its own. `parse_index` throws InputError that names the file and what is wrong: damaged or of
// another version, names of files that are paths, numbers that make no sense.
[[nodiscard]] std::string to_json(const CheckpointIndex& index);
[[nodiscard]] CheckpointIndex parse_index(std::string_view text, const std::string& file);
// Throws InputError, naming tensor and element, unless each element of each state stands in one piece; of tensors whose
// shapes are known to be right, for this takes time and memory with their sizes.
void require_whole(const CheckpointIndex& index, const std::string& file);

// What to do about a checkpoint that is damaged: its folder stands in the way of those before it.
[[nodiscard]] std::string hint_without(const std::filesystem::path& checkpoint);

// Of one file, for the ranks that write them.
[[nodiscard]] std::string to_json(const CheckpointFile& file);
[[nodiscard]] CheckpointFile parse_checkpoint_file(std::string_view text, const std::string& where);

// Which states a tensor has under an optimizer.
[[nodiscard]] std::vector<StateKind> kinds_of(const CheckpointTensor& tensor, Optimizer optimizer);

// All values of a whole checkpoint: fp32, but of frozen weights as the training has them.
[[nodiscard]] Bytes bytes_of_states(const CheckpointIndex& index);

// Where the pieces of each state stand: by whole tensor and kind, in files by number, and in these by number.
using PiecePlaces = std::map<std::pair<std::string, StateKind>, std::vector<std::pair<std::size_t, std::size_t>>>;
[[nodiscard]] PiecePlaces places_of_pieces(const CheckpointIndex& index);

}  // namespace plumb::exec
