#include "exec/checkpoint/step_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "exec/checkpoint/folder_lock.hpp"

namespace plumb::exec {
namespace {

// As to_json_line writes them.
constexpr std::string_view begin_of_line = R"({"step":)";
constexpr std::size_t longest_line = 4096;  // they have some 150 characters

bool is_line(std::string_view line) {
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() && parsed.contains("step") && parsed["step"].is_number_integer();
}

// Nothing, a first line of a step, or the begin of one that a run was killed while it wrote.
bool begins_as_log(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path, std::string("cannot be read: ") + std::strerror(errno));
  std::string begin(longest_line, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  const std::size_t end = begin.find('\n');
  if (end != std::string::npos) return is_line(std::string_view(begin).substr(0, end));
  return begin.empty() || is_line(begin) || (begin.size() < longest_line && begin.starts_with(begin_of_line));
}

// The lines of steps up to this one.
std::string kept(const std::string& path, std::int64_t steps) {
  std::error_code none;
  if (steps == 0 || !std::filesystem::exists(path, none)) return "";
  const std::string text = read_file(path);
  std::string lines;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // it was killed while it wrote
    const std::string_view line = std::string_view(text).substr(at, end + 1 - at);
    ++number;
    if (!is_line(line)) {
      throw InputError(Place{.file = path, .line = number}, "is no line of a log of steps",
                       "name another file with --log");
    }
    if (nlohmann::json::parse(line)["step"].get<std::int64_t>() <= steps) lines += line;
    at = end + 1;
  }
  return lines;
}

[[noreturn]] void fail_of_other_run(const std::string& path) {
  throw InputError(path, "another run writes the log of its steps there, and has not ended",
                   "wait for it, end it, or name another file with --log");
}

void require_no_other_run(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);  // to write: NFS locks nothing else
  if (file < 0) throw InputError(path, std::string("cannot be written: ") + std::strerror(errno));
  const bool locked = lock_alone(file);
  ::close(file);
  if (!locked) fail_of_other_run(path);
}

}  // namespace

std::string to_json_line(const LoggedStep& step) {
  const double tokens_per_s = static_cast<double>(step.tokens) / step.seconds.value;
  const nlohmann::ordered_json json{{"step", step.step},
                                    {"loss", step.loss},
                                    {"learning_rate", step.learning_rate},
                                    {"sequences", step.sequences},
                                    {"step_s", step.seconds.value},
                                    {"tokens_per_s", tokens_per_s}};
  return json.dump() + "\n";
}

void require_log_file(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return;
  if (!std::filesystem::is_regular_file(path, none)) {
    throw InputError(path, "is no regular file: a resumed run could not keep the lines before its checkpoint",
                     "name a file with --log, and follow it: tail -f FILE");
  }
  if (!begins_as_log(path)) {
    throw InputError(path, "has something in it that is no log of steps, which --log would begin anew",
                     "name another file with --log, or remove this one");
  }
  require_no_other_run(path);
}

StepLog::StepLog(std::string path, std::int64_t steps) : path_(std::move(path)) {
  require_log_file(path_);
  write_file(path_, kept(path_, steps));
  file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) throw InputError(path_, std::string("cannot be written: ") + std::strerror(errno));
  if (lock_alone(file_)) return;
  ::close(file_);
  fail_of_other_run(path_);
}

StepLog::~StepLog() { ::close(file_); }

void StepLog::add(const LoggedStep& step) {
  const std::string line = to_json_line(step);
  const off_t begin = ::lseek(file_, 0, SEEK_END);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const std::string reason = std::strerror(errno);
      if (begin >= 0 && ::ftruncate(file_, begin) != 0) {  // then half a line stays; a resumed run leaves it out
      }
      throw RunError(path_, "could not be written: " + reason, "is the disk full?");
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace plumb::exec
