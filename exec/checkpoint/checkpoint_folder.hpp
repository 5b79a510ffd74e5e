// A folder of checkpoints: each is a folder of its own that appears whole, and what is not whole is never taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/plan/plan.hpp"
#include "exec/checkpoint/checkpoint_index.hpp"

namespace plumb::exec {

inline constexpr const char* index_name = "index.json";

// "step-000010", and back; none for any other name.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> step_of_checkpoint(std::string_view name);
// Whether a name begins as theirs do, as also those of half-written and half-removed ones.
[[nodiscard]] bool begins_as_checkpoint(std::string_view name);
// "rank-00003.safetensors".
[[nodiscard]] std::string rank_file_name(int rank);
// While it is written: "step-000010.partial" beside its place.
[[nodiscard]] std::filesystem::path partial_folder(const std::filesystem::path& folder, std::int64_t step);

// What a folder has: checkpoints by step, ascending; what runs have left that were ended while they wrote or removed
// one; and steps at whose names something stands that is no checkpoint, for it has no index. A folder that is not there
// has nothing. Throws InputError if it is no folder or cannot be read.
struct CheckpointFolder {
  std::vector<std::int64_t> steps = {};
  std::vector<std::string> leftovers = {};
  std::vector<std::int64_t> without_index = {};
};
[[nodiscard]] CheckpointFolder look_into(const std::filesystem::path& folder);

// Removes them; a line on each. What is left of an old checkpoint may stay, with the reason in its line: it is never
// taken. Throws RunError where one that was not written to its end cannot be removed.
[[nodiscard]] std::vector<std::string> remove_leftovers(const std::filesystem::path& folder,
                                                        const CheckpointFolder& found);

// A folder's checkpoints by step, ascending: those of a training (CheckpointIndex::training_id), and all others, also
// those whose index cannot be read. Throws as look_into.
struct CheckpointsByTraining {
  std::vector<std::int64_t> own = {};
  std::vector<std::int64_t> others = {};
};
[[nodiscard]] CheckpointsByTraining by_training(const std::filesystem::path& folder, const std::string& training_id);

// Of these checkpoints of a folder, `steps` ascending, all but the `keep` newest; 0 keeps all. They leave the list.
// Each is renamed first, so that none is ever there in part; one that somebody has removed is passed over. Throws
// RunError where one cannot be removed.
void keep_newest(const std::filesystem::path& folder, std::vector<std::int64_t>& steps, std::int64_t keep);

// A checkpoint that can be read.
struct Checkpoint {
  std::filesystem::path folder = {};
  CheckpointIndex index = {};
};

// `from`: a checkpoint's folder, or a folder of checkpoints, of which the newest counts; its index, checked. None: it
// is a folder without checkpoints, or not there. Throws InputError as parse_index.
[[nodiscard]] std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& from);

// Throws InputError that names what differs, if the checkpoint is of another model or optimizer; and as require_whole.
// Returns what else is otherwise, a line each: the run goes on all the same.
[[nodiscard]] std::vector<std::string> require_fits(const Checkpoint& checkpoint, const Plan& plan,
                                                    const std::string& data_digest);

}  // namespace plumb::exec
