#include "common/base/program.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/catch.hpp"

using namespace plumb;

namespace {

struct Ended {
  int status = -1;  // or 128 + signal
  std::string err;
};

// In a process of its own: what is thrown may end it.
Ended run_apart(const std::function<ExitStatus()>& command) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::_exit(run_program("program", command));
  }
  ::close(ends[1]);
  Ended ended;
  for (char letter = 0; ::read(ends[0], &letter, 1) == 1;) ended.err += letter;
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace

TEST_CASE("memory that is refused ends a program with words and status 3") {
  const Ended ended = run_apart([]() -> ExitStatus { throw std::bad_alloc(); });
  CHECK(ended.status == 3);
  CHECK(ended.err.starts_with("program: there is no more memory\n  hint: "));
  CHECK_THAT(ended.err, ContainsSubstring("ulimit -v"));
}

TEST_CASE("only the first line of a library's exception is printed") {
  const Ended ended = run_apart([]() -> ExitStatus {
    throw std::runtime_error("tensors are on different devices\nframe #0: 0x1\nframe #1: 0x2");
  });
  CHECK(ended.status == 3);
  CHECK(ended.err == "program: tensors are on different devices\n");
}

TEST_CASE("an uncaught exception of a thread ends the program with a message and status 3") {
  const auto thrown_by_thread = [](const std::function<void()>& work) {
    return run_apart([&] {
      std::thread(work).join();
      return ExitStatus::done;
    });
  };
  const Ended memory = thrown_by_thread([] { throw std::bad_alloc(); });
  CHECK(memory.status == 3);
  CHECK(memory.err.starts_with("program: there is no more memory\n"));
  const Ended other = thrown_by_thread([] { throw std::runtime_error("accept: Too many open files\nframe #0: 0x1"); });
  CHECK(other.status == 3);
  CHECK(other.err == "program: accept: Too many open files\n");
}
