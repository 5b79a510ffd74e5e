// Work on independent items by several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace plumb {

// Calls `work(thread, item)` once for each item below `count`, in ascending order on each thread; the caller's own
// thread is number 0. An exception ends all threads soon; of several the one of the smallest item is thrown here, which
// does not depend on the threads, since every smaller item has been begun and is ended.
template <class Work>
void in_parallel(int threads, std::int64_t count, std::int64_t items_at_once, const Work& work) {
  std::atomic<std::int64_t> next = 0;
  std::exception_ptr problem;
  std::int64_t failed = count;  // the smallest item
  std::mutex mutex;
  const auto run = [&](int thread) {
    std::int64_t item = 0;
    try {
      while (true) {
        const std::int64_t first = next.fetch_add(items_at_once);
        if (first >= count) return;
        for (item = first; item < std::min(count, first + items_at_once); ++item) work(thread, item);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (item < failed) {
        failed = item;
        problem = std::current_exception();
      }
      next = count;
    }
  };
  std::vector<std::jthread> others;
  const std::int64_t useful = (count + items_at_once - 1) / items_at_once;
  for (int thread = 1; thread < std::min<std::int64_t>(threads, useful); ++thread) others.emplace_back(run, thread);
  run(0);
  others.clear();  // waits
  if (problem) std::rethrow_exception(problem);
}

}  // namespace plumb
