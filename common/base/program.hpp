// Frame of both programs: errors become one message on stderr and an exit status; progress, notes and colours.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace plumb {

// Runs `command`; an exception is printed as "NAME: message" on stderr and becomes the exit status (run_failed for
// exceptions of libraries). A broken pipe on stdout ends the program quietly.
[[nodiscard]] int run_program(std::string_view name, const std::function<ExitStatus()>& command);

// Set by --color and --quiet.
enum class ColourWhen { automatic, always, never };
void set_colour(ColourWhen when);
void set_quiet(bool wanted);
[[nodiscard]] bool is_quiet();

// Prints "NAME: note: …" on stderr, nothing with --quiet.
void print_note(std::string_view text);

// Prints "wrote FILE" and what to do with it on stdout; nothing with --quiet, or if the file is standard output.
void print_written(const std::string& file, const std::string& advice = "");

// True if escape codes may be written to this stream: --color always, or a terminal without NO_COLOR (no-color.org) and
// without --color never.
enum class Stream { out, err };
[[nodiscard]] bool colour_allowed(Stream stream);
[[nodiscard]] bool is_terminal(Stream stream);

// Line of progress on stderr from the first second on. A terminal's is rewritten; elsewhere a new one comes every ten
// seconds, every five if PLUMB_PROGRESS is set. None if it is `off`, or with --quiet.
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

// Shows once a second that work without steps to count goes on, and for how long: where and when Progress would. From a
// thread of its own, so that no process may be forked while it lives.
class SignOfLife {
 public:
  explicit SignOfLife(std::string_view what);
  SignOfLife(const SignOfLife&) = delete;
  SignOfLife& operator=(const SignOfLife&) = delete;
  ~SignOfLife();  // wipes the line

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb
