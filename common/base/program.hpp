// What both programs do around a command: errors become one message on stderr and an exit status.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "common/base/error.hpp"

namespace plumb {

// Runs `command`; whatever it throws is printed as "NAME: message" on stderr and becomes its exit status
// (errors from elsewhere: run_failed). Broken pipes on stdout end quietly.
[[nodiscard]] int run_program(std::string_view name, const std::function<ExitStatus()>& command);

// True if escape codes may be written to this stream: it is a terminal, and NO_COLOR is not set (no-color.org).
enum class Stream { out, err };
[[nodiscard]] bool colour_allowed(Stream stream);
[[nodiscard]] bool is_terminal(Stream stream);

// On a terminal a line on stderr that is rewritten as work proceeds, after the first second; elsewhere a line every ten
// seconds, every five where PLUMB_PROGRESS is set, none where it is `off`.
class Progress {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  explicit Progress(std::string_view what, Clock clock = std::chrono::steady_clock::now);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // wipes the line

  // `note` stands behind the numbers: "best so far 9.800 s".
  void update(std::int64_t done, std::int64_t total, std::string_view note = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb
