#include "common/base/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "common/base/error.hpp"
#include "common/base/first_signals.hpp"

namespace plumb {
namespace {

// False: errno says why.
bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Devices and pipes are written to, not replaced.
void write_through(const std::filesystem::path& path, std::string_view content) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) throw InputError(path.string(), std::string("cannot be written: ") + std::strerror(errno));
  const bool written = write_all(file, content);
  const std::string reason = std::strerror(errno);
  ::close(file);
  if (!written) throw RunError(path.string(), "could not be written: " + reason, "is the disk full?");
}

std::filesystem::path behind_link(const std::filesystem::path& link) {
  std::error_code error;
  std::filesystem::path target = std::filesystem::weakly_canonical(link, error);
  if (error) throw InputError(link.string(), "is a link that cannot be followed: " + error.message());
  return target;
}

// The file behind a link is renewed, not the link.
std::filesystem::path written_path(const std::filesystem::path& name) {
  std::error_code none;
  return std::filesystem::is_symlink(name, none) ? behind_link(name) : name;
}

bool is_written_through(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none);
}

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  return path.string() + ".part" + std::to_string(::getpid());
}

// Tries to make the file: permissions alone do not tell of /proc or of a read-only file system.
bool can_be_made(const std::filesystem::path& temporary) {
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return false;
  ::close(file);
  ::unlink(temporary.c_str());
  return true;
}

// Reads a pipe or a device, which may have no end.
std::string read_stream(const std::filesystem::path& path, std::istream& stream) {
  constexpr std::size_t most = std::size_t{1} << 30U;  // bytes; what plumb reads is far smaller
  constexpr std::size_t at_once = std::size_t{1} << 20U;
  std::string content;
  while (stream) {
    const std::size_t before = content.size();
    if (before >= most) {
      throw InputError(path.string(), "is no regular file, and has not ended after 1 GiB", "name a file that ends");
    }
    content.resize(before + at_once);
    stream.read(content.data() + before, at_once);
    content.resize(before + static_cast<std::size_t>(stream.gcount()));
  }
  if (stream.bad()) throw InputError(path.string(), "could not be read to its end");
  return content;
}

// Read once and kept: a command may look at its input before it reads it.
const std::string& standard_input_text() {
  static std::optional<std::string> text;
  if (!text) text = read_stream(standard_stream, std::cin);
  return *text;
}

// Names the file to remove if a signal ends the program.
class Unfinished {
 public:
  explicit Unfinished(const std::filesystem::path& path) { set_unfinished_file(path.c_str()); }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() { set_unfinished_file(nullptr); }
};

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  if (path == standard_stream) return standard_input_text();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw InputError(path.string(), "is a folder, expected a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InputError(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  if (is_written_through(path)) return read_stream(path, stream);
  std::ostringstream content;
  content << stream.rdbuf();
  if (stream.bad()) throw InputError(path.string(), "could not be read to its end");
  return std::move(content).str();
}

void require_writable(const std::filesystem::path& name, const std::vector<std::string>& inputs) {
  if (name.empty()) throw InputError("output file", "has an empty name", "name a file");
  if (name == standard_stream) return;
  std::error_code none;
  const std::filesystem::path path = written_path(name);
  if (std::filesystem::is_directory(path, none)) throw InputError(path.string(), "is a folder, expected a file name");
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!std::filesystem::is_directory(folder, none)) {
    throw InputError(path.string(), "cannot be written: its folder does not exist", "mkdir -p " + folder.string());
  }
  const bool through = is_written_through(path);
  for (const std::string& input : inputs) {
    if (through || !std::filesystem::equivalent(path, input, none)) continue;
    throw InputError(path.string(), "is read and would be written over", "name another file");
  }
  if (through ? ::access(path.c_str(), W_OK) != 0 : !can_be_made(temporary_beside(path))) {
    throw InputError(path.string(), std::string("cannot be written: ") + std::strerror(errno),
                     "name a file in a folder that you may write to");
  }
}

void write_file(const std::filesystem::path& name, std::string_view content) {
  if (name == standard_stream) {
    std::cout << content << std::flush;
    if (!std::cout) throw RunError("standard output", "could not be written", "is the disk full?");
    return;
  }
  require_writable(name);
  const std::filesystem::path path = written_path(name);
  if (is_written_through(path)) {
    write_through(path, content);
    return;
  }
  const std::filesystem::path temporary = temporary_beside(path);
  const Unfinished unfinished(temporary);
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    throw InputError(path.string(), std::string("cannot be written: ") + std::strerror(errno));
  }
  const auto fail = [&] {
    const std::string reason = std::strerror(errno);
    ::close(file);
    ::unlink(temporary.c_str());
    throw RunError(path.string(), "could not be written: " + reason, "nothing was left behind; is the disk full?");
  };
  if (!write_all(file, content)) fail();
  if (::fsync(file) != 0 && errno != EINVAL) fail();
  ::close(file);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    ::unlink(temporary.c_str());
    throw InputError(path.string(), "cannot be written: " + reason);
  }
}

}  // namespace plumb
