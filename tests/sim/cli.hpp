// Runs the built program `plumb` as a user would, and hands back what it wrote and its exit status.
#pragma once

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "common/base/files.hpp"

namespace plumb::tests {

// A folder of the test's own that goes away with it.
struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path / name).string(); }
  std::string file(const std::string& name, const std::string& content) const {
    write_file(path / name, content);
    return file(name);
  }
  // Everything in it, of which an error must leave nothing behind.
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }

  std::filesystem::path path = std::filesystem::temp_directory_path() / ("plumb_cli" + std::to_string(::getpid()));
};

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

// `arguments` as typed behind the program's name in a shell; `environment` like "NO_COLOR=1". Without lines of
// progress, which a slow machine would write and a fast one not.
inline Outcome run_plumb(const Folder& folder, const std::string& arguments, const std::string& environment = "") {
  const std::string out = folder.file(".out");
  const std::string err = folder.file(".err");
  const std::string command = "PLUMB_PROGRESS=off " + environment + " '" + std::string(PLUMB_BINARY_DIR) +
                              "/bin/plumb' " + arguments + " >'" + out + "' 2>'" + err + "' </dev/null";
  const int status = std::system(command.c_str());
  Outcome outcome{.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .out = read_file(out), .err = read_file(err)};
  std::filesystem::remove(out);
  std::filesystem::remove(err);
  return outcome;
}

// All that the program writes to a terminal of its own; none where the system has no pseudo-terminals, as in a bare
// chroot.
inline std::optional<std::string> on_terminal(const std::string& arguments, const std::string& environment) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) return std::nullopt;
  if (child == 0) {
    const std::string command =
        "exec env " + environment + " '" + std::string(PLUMB_BINARY_DIR) + "/bin/plumb' " + arguments;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(count));
  }
  ::waitpid(child, nullptr, 0);
  ::close(terminal);
  return text;
}

// A scenario of this repository.
inline std::string scenario(const std::string& name) {
  return "'" + std::string(PLUMB_SOURCE_DIR) + "/scenarios/" + name + ".yaml'";
}

}  // namespace plumb::tests
