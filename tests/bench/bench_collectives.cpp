// How long a sum over ranks of one host takes, on each transport: the slowest rank's time, the median of many, and the
// processor time of all ranks, which a machine that is busy with other work changes less.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <numeric>
#include <vector>

#include "exec/launch/launch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb::exec;

namespace {

struct Times {
  double median_s = 0;
  double processor_s = 0;  // of all ranks, of one sum
};

Times measure(const TransportKind& kind, int ranks, std::size_t bytes, int times) {
  std::vector<int> group(static_cast<std::size_t>(ranks));
  std::iota(group.begin(), group.end(), 0);
  std::vector<double> slowest(static_cast<std::size_t>(times));
  std::mutex mutex;
  const auto transports = kind.make(ranks);
  const std::clock_t start_of_all = std::clock();
  run_on_threads(transports, [&](Transport& transport) {
    std::vector<float> values(bytes / sizeof(float), 1);
    for (double& time : slowest) {
      transport.barrier(in_seconds(60));
      const auto start = Clock::now();
      transport.all_reduce(group, values, in_seconds(60));
      const std::chrono::duration<double> took = Clock::now() - start;
      const std::scoped_lock lock(mutex);
      time = std::max(time, took.count());
    }
  });
  const auto processor = static_cast<double>(std::clock() - start_of_all) / CLOCKS_PER_SEC;
  std::sort(slowest.begin(), slowest.end());
  return {.median_s = slowest[slowest.size() / 2], .processor_s = processor / times};
}

}  // namespace

int main(int argc, char** argv) {
  const int times = argc > 1 ? std::atoi(argv[1]) : 21;
  for (const TransportKind& kind : transport_kinds()) {
    for (const int ranks : {2, 4}) {
      for (const std::size_t mebibytes : {std::size_t{1}, std::size_t{64}}) {
        const Times time = measure(kind, ranks, mebibytes << 20U, times);
        std::printf("%-5s %d ranks: all-reduce of %2zu MiB fp32, median of %d: %8.3f ms, processor %8.3f ms\n",
                    kind.name.c_str(), ranks, mebibytes, times, time.median_s * 1e3, time.processor_s * 1e3);
      }
    }
  }
  return 0;
}
