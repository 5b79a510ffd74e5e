#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "common/base/command_line.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {

namespace {

// Between this program and plumb-exec's first instruction nothing handles signals: they wait, and plumb-exec takes
// them.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t waiting;
    ::sigemptyset(&waiting);
    ::sigaddset(&waiting, SIGINT);
    ::sigaddset(&waiting, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &waiting, &before_);
  }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;
  ~SignalsWait() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace

void run_plumb_exec(char** arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside =
      (error ? std::filesystem::path(arguments[0]) : self).parent_path() / "plumb-exec";
  int error_of_start = 0;
  {
    const SignalsWait hand_over;
    ::execv(beside.c_str(), arguments);
    error_of_start = errno;
  }
  const std::string reason = error_of_start == ENOENT ? "is not there" : std::strerror(error_of_start);
  throw InputError(std::string("plumb ") + arguments[1], "needs the program " + beside.string() + ", which " + reason,
                   "it is built when LibTorch is found: see the output of cmake, or run ./bootstrap build");
}

void add_run(CLI::App& program) {
  const auto add = [&](const char* name, const char* description, const char* example) {
    add_command(program, name, description, example).allow_extras();
  };
  add("run",
      "Runs a plan on this machine's ranks: trains its model and measures each action; plumb-exec run --help has its "
      "options.",
      "plumb run plan.json --steps 10 -o measured.json");
  add("compare", "Alternates the steps of several plans; plumb-exec compare --help has its options.",
      "plumb compare uniform.json dynamic.json --steps 20");
  add("calibrate", "Measures this machine; plumb-exec calibrate --help has its options.",
      "plumb calibrate scenario.yaml -o profile.yaml");
}

}  // namespace plumb::sim
