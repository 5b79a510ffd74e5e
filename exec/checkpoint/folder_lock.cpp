#include "exec/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/error.hpp"

namespace plumb::exec {

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::string file = (folder / lock_name).string();
  file_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);  // to write: NFS locks nothing else
  if (file_ < 0) {
    throw InputError(file, std::string("cannot be written: ") + std::strerror(errno),
                     "checkpoints can only be saved to a folder in which you may write this file");
  }
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(file_);
  throw InputError(folder.string(), "another run saves its checkpoints there, and has not ended",
                   "wait for it, end it, or name another folder with --save");
}

FolderLock::~FolderLock() { ::close(file_); }

}  // namespace plumb::exec
