#include "exec/launch/processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "exec/device/clock.hpp"
#include "exec/host/pauses.hpp"

extern char** environ;

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 20ms;

std::vector<std::string> own_arguments() {
  const std::string line = read_file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::size_t start = 0; start < line.size();) {
    const std::size_t end = line.find('\0', start);
    arguments.push_back(line.substr(start, end - start));
    start = end == std::string::npos ? line.size() : end + 1;
  }
  return arguments;
}

std::vector<std::string> environment_of(int rank, const ProcessOptions& options) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(variables, [&](const std::string& variable) { return variable.starts_with(name + "="); });
    variables.push_back(name + "=" + value);
  };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(options.ranks));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(options.store_port));
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  set("PLUMB_LAUNCHER", std::to_string(::getpid()));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> made;
  for (std::string& text : texts) made.push_back(text.data());
  made.push_back(nullptr);
  return made;
}

// Processes of the ranks, as far as their launcher sees them.
class Processes {
 public:
  explicit Processes(const ProcessOptions& options) : pids_(static_cast<std::size_t>(options.ranks), 0) {
    std::vector<std::string> arguments = options.arguments.empty() ? own_arguments() : options.arguments;
    const std::string program = options.program.empty() ? "/proc/self/exe" : options.program;
    for (int rank = 0; rank < options.ranks; ++rank) {
      std::vector<std::string> environment = environment_of(rank, options);
      const int error = ::posix_spawn(&pids_[static_cast<std::size_t>(rank)], program.c_str(), nullptr, nullptr,
                                      pointers(arguments).data(), pointers(environment).data());
      if (error == 0) continue;
      pids_[static_cast<std::size_t>(rank)] = 0;
      kill_and_reap();
      throw RunError("rank " + std::to_string(rank), std::string("could not be started: ") + std::strerror(error));
    }
  }

  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() { kill_and_reap(); }

  // Returns those that have ended since the last call, and takes note of who is stopped. `now` is without pauses.
  [[nodiscard]] std::vector<RankEnd> poll(Clock::time_point now) {
    std::vector<RankEnd> ends;
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      while (pids_[rank] != 0 && ::waitpid(pids_[rank], &status, WNOHANG | WUNTRACED | WCONTINUED) == pids_[rank]) {
        stops_.erase(rank);
        if (WIFSTOPPED(status)) stops_[rank] = {.signal = WSTOPSIG(status), .since = now};
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) continue;
        pids_[rank] = 0;
        RankEnd end{.rank = static_cast<int>(rank)};
        if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
        if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
        ends.push_back(end);
      }
    }
    return ends;
  }

  // Returns those that are stopped, the longest first.
  [[nodiscard]] std::vector<RankStop> stopped(Clock::time_point now) const {
    std::vector<RankStop> found;
    for (const auto& [rank, stop] : stops_) {
      found.push_back(
          {.rank = static_cast<int>(rank), .signal = stop.signal, .since = seconds_of(now) - seconds_of(stop.since)});
    }
    std::ranges::stable_sort(found, std::ranges::greater(), [](const RankStop& stop) { return stop.since.value; });
    return found;
  }

  // SIGTERM waits until a stopped process goes on; SIGKILL does not.
  void tell_to_end() const {
    send(SIGTERM);
    for (const auto& [rank, stop] : stops_) ::kill(pids_[rank], SIGKILL);
  }

  void send(int signal) const {
    for (const pid_t pid : pids_) {
      if (pid != 0) ::kill(pid, signal);
    }
  }

  [[nodiscard]] bool any() const {
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; });
  }

 private:
  void kill_and_reap() {
    send(SIGKILL);
    for (pid_t& pid : pids_) {
      if (pid != 0) ::waitpid(pid, nullptr, 0);
      pid = 0;
    }
  }

  struct Stop {
    int signal = 0;
    Clock::time_point since;
  };

  std::vector<pid_t> pids_;            // 0 if the rank has ended
  std::map<std::size_t, Stop> stops_;  // by rank
};

bool failed(const RankEnd& end) { return end.signal != 0 || end.exit_status > 1; }

}  // namespace

ProcessesEnd run_as_processes(const ProcessOptions& options) {
  Processes processes(options);
  ProcessesEnd result;
  PauseCount pauses;
  bool told = false;
  Clock::time_point kill_at = Clock::time_point::max();
  while (processes.any()) {
    const Clock::time_point seen = Clock::now();
    pauses.look(seen);
    const Clock::time_point now = pauses.unpaused(seen);
    result.own_pause = seconds_of(seen) - seconds_of(now);
    std::vector<RankEnd> ends = processes.poll(now);
    std::ranges::stable_sort(ends, std::ranges::greater(), &RankEnd::signal);
    const int times_told = options.told_to_end ? options.told_to_end() : 0;
    const bool tell = !told && times_told > 0;
    for (const RankEnd& end : ends) {
      if (end.rank == 0 && end.exit_status == 1) result.answer = 1;
      if (end.signal != 0) result.killed.push_back(end);
      // A rank that ends after SIGTERM ends because of it.
      if (failed(end) && !told && !tell) result.failures.push_back(end);
    }
    if (!told) {
      result.stopped = processes.stopped(now);
      if (options.give_up) result.gave_up = options.give_up();
    }
    const bool hangs = !result.stopped.empty() && result.stopped.front().since >= options.stopped_limit;
    if (!told && (tell || hangs || !result.failures.empty() || !result.gave_up.empty())) {
      told = true;
      if (options.before_ending) options.before_ending();
      processes.tell_to_end();
      const Seconds grace = tell && options.grace_when_told ? options.grace_when_told() : options.grace;
      kill_at = after(now, grace);
    }
    if (times_told > 1 || now > kill_at) processes.send(SIGKILL);
    if (ends.empty()) std::this_thread::sleep_for(look_every);
  }
  return result;
}

void end_with_launcher() {
  const char* launcher = std::getenv("PLUMB_LAUNCHER");
  if (launcher == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the call.
  const std::string parent = std::to_string(::getppid());
  if (parent == launcher) return;
  const InputError error(
      "PLUMB_LAUNCHER",
      fmt::format("names process {} as this rank's launcher, but process {} has started it", launcher, parent),
      "plumb-exec sets it for its ranks: unset PLUMB_LAUNCHER RANK WORLD_SIZE, or the launcher has died");
  std::fprintf(stderr, "plumb-exec: %s\n", error.what());
  std::_Exit(static_cast<int>(error.status()));
}

}  // namespace plumb::exec
