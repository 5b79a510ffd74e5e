#include "common/base/program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/files.hpp"

namespace plumb {
namespace {

// Time between two lines of a log that is no terminal; none if PLUMB_PROGRESS is `off`.
std::optional<std::chrono::seconds> between_log_lines() {
  using namespace std::chrono_literals;
  const char* asked = std::getenv("PLUMB_PROGRESS");
  if (asked == nullptr || *asked == '\0') return 10s;
  if (std::string_view(asked) == "off") return std::nullopt;
  return 5s;
}

// Opens streams that a daemon has closed: the next files and sockets would take their numbers.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

constexpr const char* no_memory =
    "there is no more memory\n  hint: is there a limit (ulimit -v)? else a smaller model, batch or search, or fewer "
    "ranks";

std::string name_of_program;  // for what ends it from any thread

// Set by --color and --quiet.
ColourWhen colour_when = ColourWhen::automatic;
bool quiet = false;

std::string said(std::string_view name, std::string_view text) {
  // Usage errors begin with the command, and so with the program's name.
  const bool named =
      text.starts_with(name) && text.size() > name.size() && (text[name.size()] == ':' || text[name.size()] == ' ');
  return (named ? "" : std::string(name) + ": ") + std::string(text) + "\n";
}

// Handler of exceptions that nobody catches, as on a library's own thread: prints one message and ends with status 3.
[[noreturn]] void leave_after_exception() {
  const auto leave = [](const char* text, int length) {  // without memory of its own
    (void)std::fprintf(stderr, "%s: %.*s\n", name_of_program.c_str(), length, text);
    std::_Exit(static_cast<int>(ExitStatus::run_failed));
  };
  if (std::current_exception() == nullptr) std::abort();
  try {
    throw;
  } catch (const std::bad_alloc&) {
    leave(no_memory, static_cast<int>(std::strlen(no_memory)));
  } catch (const std::exception& error) {
    leave(error.what(), static_cast<int>(std::strcspn(error.what(), "\n")));  // LibTorch's goes on with its stack
  } catch (...) {
    leave("an unknown error", 16);
  }
  std::abort();
}

// Installs that handler while it lives.
class LeavesAfterException {
 public:
  explicit LeavesAfterException(std::string_view name) {
    name_of_program = name;
    before_ = std::set_terminate(leave_after_exception);
  }
  LeavesAfterException(const LeavesAfterException&) = delete;
  LeavesAfterException& operator=(const LeavesAfterException&) = delete;
  ~LeavesAfterException() { std::set_terminate(before_); }

 private:
  std::terminate_handler before_ = nullptr;
};

int descriptor(Stream stream) { return stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO; }

}  // namespace

int run_program(std::string_view name, const std::function<ExitStatus()>& command) {
  open_standard_streams();
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // write() then says EFBIG, and the half-written file is removed
  const LeavesAfterException leaves(name);
  const auto report = [&](std::string_view message) {
    std::cout.flush();
    std::cerr << said(name, message);
  };
  try {
    const ExitStatus status = command();
    std::cout.flush();
    if (!std::cout) throw RunError("standard output", "could not be written", "is the disk full?");
    return static_cast<int>(status);
  } catch (const Error& error) {
    report(error.what());
    return static_cast<int>(error.status());
  } catch (const std::bad_alloc&) {
    report(no_memory);
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    report(text.substr(0, text.find('\n')));  // LibTorch's goes on with its stack
  } catch (...) {
    report("an unknown error");
  }
  return static_cast<int>(ExitStatus::run_failed);
}

bool is_terminal(Stream stream) { return ::isatty(descriptor(stream)) == 1; }

void set_colour(ColourWhen when) { colour_when = when; }

void set_quiet(bool wanted) { quiet = wanted; }

bool is_quiet() { return quiet; }

void print_note(std::string_view text) {
  if (!quiet) std::cerr << name_of_program << ": note: " << text << '\n';
}

void print_written(const std::string& file, const std::string& advice) {
  if (quiet || file == standard_stream) return;
  std::cout << "\nwrote " << file << (advice.empty() ? "" : ": ") << advice << '\n';
}

bool colour_allowed(Stream stream) {
  if (colour_when != ColourWhen::automatic) return colour_when == ColourWhen::always;
  const char* no_colour = std::getenv("NO_COLOR");
  return is_terminal(stream) && (no_colour == nullptr || *no_colour == '\0');
}

struct Progress::State {
  std::string what;
  Clock clock;
  std::chrono::steady_clock::time_point begin = clock();
  std::chrono::steady_clock::time_point shown = begin;
  bool visible = false;
};

Progress::Progress(std::string_view what, Clock clock)
    : state_(std::make_unique<State>(State{.what = std::string(what), .clock = std::move(clock)})) {}

Progress::~Progress() {
  if (state_->visible) std::cerr << "\r\033[K" << std::flush;
}

void Progress::update(std::int64_t done, std::int64_t total, std::string_view note) {
  using namespace std::chrono_literals;
  if (quiet) return;
  const auto now = state_->clock();
  if (now - state_->begin < 1s || now - state_->shown < 100ms) return;
  const bool terminal = is_terminal(Stream::err);
  if (const auto between = between_log_lines(); !terminal && (!between || now - state_->shown < *between)) return;
  state_->visible = terminal;
  state_->shown = now;
  std::cerr << (terminal ? "\r" : "") << state_->what << ": " << done << " of " << total << (note.empty() ? "" : ", ")
            << note << (terminal ? "\033[K" : "\n") << std::flush;
}

struct SignOfLife::State {
  std::mutex mutex = {};
  std::condition_variable ended = {};
  bool over = false;
  bool visible = false;
  std::thread thread = {};

  void show_until_over(const std::string& what) {
    const auto begin = std::chrono::steady_clock::now();
    const bool terminal = is_terminal(Stream::err);
    const auto log = between_log_lines();
    if (quiet || (!terminal && !log)) return;
    const std::chrono::seconds between = terminal ? std::chrono::seconds(1) : *log;
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, between, [this] { return over; })) {
      const auto passed = std::chrono::steady_clock::now() - begin;
      visible = terminal;
      std::cerr << (terminal ? "\r" : "") << what << ": working for "
                << std::chrono::duration_cast<std::chrono::seconds>(passed).count() << " s"
                << (terminal ? "\033[K" : "\n") << std::flush;
    }
  }
};

SignOfLife::SignOfLife(std::string_view what) : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get(), name = std::string(what)] { state->show_until_over(name); });
}

SignOfLife::~SignOfLife() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->over = true;
  }
  state_->ended.notify_one();
  state_->thread.join();
  if (state_->visible) std::cerr << "\r\033[K" << std::flush;
}

}  // namespace plumb
