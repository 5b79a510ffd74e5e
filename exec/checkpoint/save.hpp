// Saves what all ranks of a run hold as a checkpoint: each element once, streamed, and the folder appears only whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/checkpoint/checkpoint_index.hpp"
#include "exec/stage/stage.hpp"
#include "exec/stage/state_part.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// What a rank writes of one of its parts: which elements of the whole, and where they stand in the part.
struct WrittenPart {
  StatePart part;
  std::vector<std::int64_t> shape;       // in the file: the whole's, or of some elements of it their number
  IndexRanges ranges;                    // ascending
  std::vector<SharedStretch> stretches;  // `in_first` in the part, `in_second` in what is written
};

// Writes them to a file, a block after the other, until `stop` says so, if it is there; what the index is to know of
// it. Throws as SafetensorsWriter, and RunError where it was stopped or a value is not finite: then there is no file.
[[nodiscard]] CheckpointFile write_parts(const std::filesystem::path& path, const std::vector<WrittenPart>& parts,
                                         const std::atomic<bool>* stop = nullptr);

// One per rank, on its thread; all ranks make the same calls, between steps. Collectives go from host to host.
class CheckpointSaver {
 public:
  // `folder`: of checkpoints, the same for all ranks on every host. `index`: as index_of makes it. The ranks tell each
  // other what they hold. `keep`: as keep_newest has it, of checkpoints of the index's training, also of those that are
  // there. Throws RunError if an element of some tensor is held by none.
  CheckpointSaver(Transport& transport, const std::vector<std::unique_ptr<Stage>>& stages, CheckpointIndex index,
                  std::filesystem::path folder, std::int64_t keep = 0);
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;
  // Stops what is pending, and leaves nothing of it behind once the savers of all ranks are gone.
  ~CheckpointSaver();

  // After so many steps. All leave together, when it is there. Throws RunError, with the file and the system's words,
  // if it cannot be written, and tells all ranks: the checkpoints before it stay. Returns its folder.
  std::filesystem::path save(std::int64_t steps);

  // The same beside the steps that follow: what this rank writes is copied first, and a thread of its own writes it.
  // Precondition: none is pending.
  void begin(std::int64_t steps);
  [[nodiscard]] bool is_pending() const { return pending_.has_value(); }
  // Behind each step while one is pending: whether all ranks have written theirs, and if so it is put together. Throws
  // what writing has thrown.
  [[nodiscard]] std::optional<std::filesystem::path> finish_if_written();
  // Waits for it.
  std::filesystem::path finish();

 private:
  struct Pending {
    std::int64_t steps = 0;
    std::int64_t updates = 0;
    std::shared_ptr<std::atomic<bool>> stop;
    std::future<std::string> written;  // this rank's file, as JSON
  };

  void share_out(const std::vector<std::unique_ptr<Stage>>& stages);
  void make_folder(std::int64_t steps);
  [[nodiscard]] std::int64_t updates() const { return stages_.empty() ? 0 : stages_.front()->updates(); }
  void put_together(std::int64_t steps, std::int64_t updates, const std::string& mine);
  void remove_old(std::int64_t saved);
  void drop_own_file(std::int64_t steps);
  void give_up(std::int64_t steps, const std::string& reason);
  template <class Body>
  void or_clean_up(std::int64_t steps, const Body& body);

  Transport& transport_;
  CheckpointIndex index_;
  std::filesystem::path folder_;
  std::int64_t keep_;
  std::vector<std::int64_t> kept_;    // on rank 0: of this training, ascending, where `keep_` counts them
  std::vector<const Stage*> stages_;  // that stand here
  std::vector<WrittenPart> parts_;
  std::optional<Pending> pending_;
};

}  // namespace plumb::exec
