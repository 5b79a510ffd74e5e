// Keeps a second run out of a folder of checkpoints that one writes into.
#pragma once

#include <filesystem>
#include <vector>

namespace plumb::exec {

inline constexpr const char* lock_name = "run.lock";  // an empty file, which stays: the lock is the system's

// Of an open file, until it is closed. False: another process has it, or another open file of this one. Where the file
// system knows no locks, nobody has.
[[nodiscard]] bool lock_alone(int file);

// Held while it lives, and no longer than the process.
class FolderLock {
 public:
  // Makes the folder where it is not there; it goes again with the lock if nothing else has come into it. Throws
  // InputError that names the folder if another run has it, if it cannot be made, or if its file cannot be. Where the
  // file system knows no locks, nobody is kept out.
  explicit FolderLock(std::filesystem::path folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;  // the folder, then those that it stands in
  int file_ = -1;
};

}  // namespace plumb::exec
