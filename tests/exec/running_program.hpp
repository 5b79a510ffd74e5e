// The program as a process of its own: started, waited for, its output and status read.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/exec/tiny_plan.hpp"

extern char** environ;

namespace plumb::exec {

// A test that needs it has failed; no more than that is said by the time that something takes.
inline constexpr std::chrono::minutes given_up_after{8};

inline const std::string program = std::string(PLUMB_BINARY_DIR) + "/bin/plumb-exec";

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ended {
  int status = -1;  // exit status, or 128 + signal
  std::string out;
  std::string err;
};

class Running {
 public:
  // `through`: another program, with its words, that is to start this one.
  Running(const TemporaryFolder& folder, std::vector<std::string> words, const std::vector<std::string>& variables = {},
          const std::vector<std::string>& through = {})
      : out_(folder / ("out" + std::to_string(++count))), err_(folder / ("err" + std::to_string(count))) {
    words.insert(words.begin(), program);
    words.insert(words.begin(), through.begin(), through.end());
    std::vector<std::string> environment(variables);
    for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT, 0600);
    ::posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string file = words.front();
    const int error =
        ::posix_spawnp(&pid_, file.c_str(), &actions, nullptr, pointers(words).data(), pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    REQUIRE(error == 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] Ended wait() {
    int status = 0;
    const auto give_up = std::chrono::steady_clock::now() + given_up_after;
    while (std::chrono::steady_clock::now() < give_up) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                .out = content(out_),
                .err = content(err_)};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FAIL("plumb-exec still runs after minutes: " << content(err_));
    return {};
  }

  // The process of a rank that this one has started; 0: not there yet.
  [[nodiscard]] pid_t rank_process(int rank) const {
    std::istringstream children(
        content("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children"));
    for (pid_t child = 0; children >> child;) {
      const std::string variables = content("/proc/" + std::to_string(child) + "/environ");
      if (variables.find(std::string("\0RANK=", 6) + std::to_string(rank) + '\0') != std::string::npos) return child;
    }
    return 0;
  }

  // Whether it has a thread of this name: ranks that are threads are called "rank 0".
  [[nodiscard]] bool has_thread(const std::string& name) const {
    std::error_code gone;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task", gone)) {
      if (content(thread.path() / "comm") == name + "\n") return true;
    }
    return false;
  }

  // On standard error until now.
  [[nodiscard]] std::string told() const { return content(err_); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> made;
    for (std::string& text : texts) made.push_back(text.data());
    made.push_back(nullptr);
    return made;
  }

  inline static int count = 0;
  std::string out_;
  std::string err_;
  pid_t pid_ = 0;
};

inline Ended run(const TemporaryFolder& folder, const std::vector<std::string>& words,
                 const std::vector<std::string>& variables = {}) {
  Running running(folder, words, variables);
  return running.wait();
}

template <class Condition>
void wait_until(const Condition& holds) {
  const auto give_up = std::chrono::steady_clock::now() + given_up_after;
  while (!holds()) {
    REQUIRE(std::chrono::steady_clock::now() < give_up);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Its F, I and W are waited for 2 ms each.
inline std::string write_slow_plan(const TemporaryFolder& folder, int ranks, int microbatches,
                                   const std::string& name = "plan.json") {
  Plan plan = tiny_plan({.ranks = ranks, .microbatches = microbatches});
  for (ComputeCost& cost : plan.costs.stages) cost.forward = cost.input_gradient = cost.weight_gradient = {0.002};
  return folder.write(name, to_json(plan));
}

}  // namespace plumb::exec
