// Each item is worked on once, and of several errors the same one comes out, however many threads there are.
#include "common/base/parallel.hpp"

#include <chrono>
#include <string>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("every item is worked on once, on threads that are numbered") {
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t at_once : {1, 7}) {
      std::vector<std::atomic<int>> seen(100);
      std::atomic<bool> numbered = true;
      in_parallel(threads, 100, at_once, [&](int thread, std::int64_t item) {
        ++seen[static_cast<std::size_t>(item)];
        if (thread < 0 || thread >= threads) numbered = false;
      });
      CHECK(std::ranges::all_of(seen, [](const std::atomic<int>& count) { return count == 1; }));
      CHECK(numbered);
    }
  }
  in_parallel(3, 0, 1, [](int, std::int64_t) { FAIL("there is nothing to do"); });
}

TEST_CASE("the error of the smallest item is thrown") {
  for (int round = 0; round < 20; ++round) {
    for (const std::int64_t at_once : {1, 3}) {
      const auto work = [](int, std::int64_t item) {
        if (item < 10) return;
        // The smallest fails last, if another thread is there to fail before it.
        if (item == 10) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        throw InputError("item", std::to_string(item));
      };
      CHECK_THROWS_WITH(in_parallel(4, 100, at_once, work), ContainsSubstring("item: 10"));
    }
  }
}
