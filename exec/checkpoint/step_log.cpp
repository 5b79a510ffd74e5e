#include "exec/checkpoint/step_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/files.hpp"

namespace plumb::exec {
namespace {

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
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer()) {
      throw InputError(Place{.file = path, .line = number}, "is no line of a log of steps",
                       "name another file with --log");
    }
    if (parsed["step"].get<std::int64_t>() <= steps) lines += line;
    at = end + 1;
  }
  return lines;
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
  if (!std::filesystem::exists(path, none) || std::filesystem::is_regular_file(path, none)) return;
  throw InputError(path, "is no regular file: a resumed run could not keep the lines before its checkpoint",
                   "name a file with --log, and follow it: tail -f FILE");
}

StepLog::StepLog(std::string path, std::int64_t steps) : path_(std::move(path)) {
  require_log_file(path_);
  write_file(path_, kept(path_, steps));
  file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) throw InputError(path_, std::string("cannot be written: ") + std::strerror(errno));
}

StepLog::~StepLog() { ::close(file_); }

void StepLog::add(const LoggedStep& step) {
  const std::string line = to_json_line(step);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw RunError(path_, std::string("could not be written: ") + std::strerror(errno));
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace plumb::exec
