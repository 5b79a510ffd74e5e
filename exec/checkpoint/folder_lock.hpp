// Keeps a second run out of a folder of checkpoints that one writes into.
#pragma once

#include <filesystem>

namespace plumb::exec {

inline constexpr const char* lock_name = "run.lock";  // an empty file, which stays: the lock is the system's

// Held while it lives, and no longer than the process.
class FolderLock {
 public:
  // Of a folder that is there. Throws InputError that names it if another run has it, or if its file cannot be made.
  // Where the file system knows no locks, nobody is kept out.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int file_ = -1;
};

}  // namespace plumb::exec
