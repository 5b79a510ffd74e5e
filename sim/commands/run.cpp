#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/base/command_line.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {

void run_plumb_exec(char** arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside =
      (error ? std::filesystem::path(arguments[0]) : self).parent_path() / "plumb-exec";
  ::execv(beside.c_str(), arguments);
  const std::string reason = errno == ENOENT ? "is not there" : std::strerror(errno);
  throw InputError(std::string("plumb ") + arguments[1], "needs the program " + beside.string() + ", which " + reason,
                   "it is built when LibTorch is found: see the output of cmake, or run ./bootstrap build");
}

void add_run(CLI::App& program) {
  const auto add = [&](const char* name, const char* description, const char* example) {
    add_command(program, name, description, example).allow_extras();
  };
  add("run", "Trains a plan on this machine's ranks; plumb-exec run --help has its options.",
      "plumb run plan.json --steps 10 -o measured.json");
  add("compare", "Alternates the steps of several plans; plumb-exec compare --help has its options.",
      "plumb compare uniform.json dynamic.json --steps 20");
  add("calibrate", "Measures this machine; plumb-exec calibrate --help has its options.",
      "plumb calibrate scenario.yaml -o profile.yaml");
}

}  // namespace plumb::sim
