// Worker processes give what one process gives, whatever their number; what goes wrong in one is named.
#include "common/base/workers.hpp"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// Answers of very different lengths, some longer than a pipe holds.
std::string answer(std::size_t item) { return std::string(item * item * 1000, static_cast<char>('a' + item % 26)); }

}  // namespace

TEST_CASE("any number of workers gives the same answers") {
  std::vector<std::optional<std::string>> expected;
  for (std::size_t item = 0; item < 30; ++item) expected.emplace_back(answer(item));
  for (const int processes : {1, 2, 3, 7, 40}) {
    CAPTURE(processes);
    std::size_t told = 0;
    CHECK(in_workers({.processes = processes, .done = [&](std::size_t done) { told = done; }}, 30, answer) == expected);
    CHECK(told == 30);
  }
  CHECK(in_workers({.processes = 4}, 0, answer).empty());
}

TEST_CASE("workers are processes of their own that see what their caller has") {
  int seen = 41;
  const auto answers = in_workers({.processes = 2}, 4, [&](std::size_t item) {
    std::string bytes;
    append_bytes(bytes, ::getpid());
    append_bytes(bytes, seen + static_cast<int>(item));
    seen = 0;
    return bytes;
  });
  CHECK(seen == 41);
  for (std::size_t item = 0; item < 4; ++item) {
    std::size_t at = 0;
    CHECK(take_bytes<pid_t>(*answers[item], at) != ::getpid());
    CHECK(take_bytes<int>(*answers[item], at) == (item < 2 ? 41 + static_cast<int>(item) : static_cast<int>(item)));
  }
}

TEST_CASE("the error of the smallest item is thrown, with its kind, place and hint") {
  for (const int processes : {1, 2, 3}) {
    try {
      (void)in_workers({.processes = processes}, 9, [](std::size_t item) -> std::string {
        if (item == 4) throw InputError("s.yaml:3", "four is too much", "three");
        if (item > 4) throw RunError("rank 1", "died");
        return "good";
      });
      FAIL("nothing was thrown");
    } catch (const InputError& error) {
      CHECK(error.where() == "s.yaml:3");
      CHECK(error.problem() == "four is too much");
      CHECK(error.hint() == "three");
    }
  }
}

TEST_CASE("a worker that crashes is named with its signal and the item") {
  const auto with = [](void (*end)()) {
    return in_workers({.processes = 2}, 6, [&](std::size_t item) -> std::string {
      if (item == 3) end();
      return "good";
    });
  };
  CHECK_THROWS_WITH(with([] { ::kill(::getpid(), SIGKILL); }),
                    ContainsSubstring("signal 9") && ContainsSubstring("at item 3 of 6"));
  CHECK_THROWS_AS(with([] { ::_exit(7); }), RunError);
  CHECK_THROWS_WITH(with([] { ::_exit(7); }), ContainsSubstring("ended with status 7"));
}

TEST_CASE("workers end when they are told to, and what they had not done is missing") {
  std::atomic<bool> told = false;
  const Stop stop(&told, std::nullopt);
  const auto answers = in_workers({.processes = 2, .stop = &stop, .done = [&](std::size_t) { told = true; }}, 40,
                                  [](std::size_t item) -> std::string {
                                    if (item >= 2) std::this_thread::sleep_for(std::chrono::hours(1));
                                    return "good";
                                  });
  CHECK((answers[0].has_value() || answers[1].has_value()));
  CHECK_FALSE(answers[39].has_value());
}
