#include "exec/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/files.hpp"

namespace plumb::exec {

namespace {

namespace fs = std::filesystem;

constexpr const char* other_folder = "--save must name a folder that you may write to";

// What is made, innermost first.
std::vector<fs::path> make_folders(const fs::path& folder) {
  std::vector<fs::path> made;
  std::error_code error;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error); path = path.parent_path()) {
    if (!path.filename().empty()) made.push_back(path);
  }
  fs::create_directories(folder, error);
  if (error) throw InputError(folder.string(), "cannot be made: " + error.message(), other_folder);
  try {
    require_writable(folder / lock_name);
  } catch (const InputError& refused) {  // of a file that the user has not named
    throw InputError(folder.string(), refused.problem(), other_folder);
  }
  return made;
}

// False: whoever had made it has removed it since it was opened.
bool is_there(int file, const std::string& name) {
  struct stat opened = {};
  struct stat named = {};
  return ::fstat(file, &opened) == 0 && ::stat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

bool has_nothing_else(const fs::path& folder) {
  std::error_code error;
  std::size_t entries = 0;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) ++entries;
  return !error && entries == 1;
}

}  // namespace

bool lock_alone(int file) { return ::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

FolderLock::FolderLock(fs::path folder) : folder_(std::move(folder)) {
  const std::string name = (folder_ / lock_name).string();
  while (true) {
    for (fs::path& made : make_folders(folder_)) made_.push_back(std::move(made));
    file_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);  // to write: NFS locks nothing else
    if (file_ < 0 && errno == ENOENT) continue;  // another run has just removed the folder that it had made
    if (file_ < 0) {
      throw InputError(name, std::string("cannot be written: ") + std::strerror(errno),
                       "checkpoints can only be saved to a folder in which you may write this file");
    }
    if (!lock_alone(file_)) break;
    if (is_there(file_, name)) return;
    ::close(file_);
  }
  ::close(file_);
  throw InputError(folder_.string(), "another run saves its checkpoints there, and has not ended",
                   "wait for it, end it, or name another folder with --save");
}

// As long as it has the lock nobody else comes into the folder.
FolderLock::~FolderLock() {
  if (!made_.empty() && has_nothing_else(folder_)) {
    std::error_code error;
    fs::remove(folder_ / lock_name, error);
    for (const fs::path& folder : made_) {
      if (error || !fs::remove(folder, error)) break;  // each but with nothing in it
    }
  }
  ::close(file_);
}

}  // namespace plumb::exec
