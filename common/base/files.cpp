#include "common/base/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/base/error.hpp"

namespace plumb {

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw InputError(path.string(), "is a folder, expected a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InputError(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  std::ostringstream content;
  content << stream.rdbuf();
  if (stream.bad()) throw InputError(path.string(), "could not be read to its end");
  return std::move(content).str();
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  if (std::filesystem::is_directory(path)) throw InputError(path.string(), "is a folder, expected a file name");
  const std::filesystem::path temporary = path.string() + ".part" + std::to_string(::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    throw InputError(path.string(), std::string("cannot be written: ") + std::strerror(errno),
                     "name a folder that exists and that you may write to");
  }
  const auto fail = [&] {
    const std::string reason = std::strerror(errno);
    ::close(file);
    ::unlink(temporary.c_str());
    throw RunError(path.string(), "could not be written: " + reason, "nothing was left behind; is the disk full?");
  };
  for (std::string_view rest = content; !rest.empty();) {
    const ssize_t written = ::write(file, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file) != 0 && errno != EINVAL) fail();
  ::close(file);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    ::unlink(temporary.c_str());
    throw InputError(path.string(), "cannot be written: " + reason);
  }
}

}  // namespace plumb
