#include "common/cluster/machine.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

namespace plumb {

int usable_cores() {
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  int cores = ::sched_getaffinity(0, sizeof affinity, &affinity) == 0
                  ? CPU_COUNT(&affinity)
                  : static_cast<int>(std::thread::hardware_concurrency());
  // "QUOTA PERIOD" in microseconds, or "max PERIOD" (Linux, cgroup-v2.rst).
  std::ifstream limit("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (limit >> quota >> period && quota > 0 && period > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(quota / period)));
  }
  return std::max(1, cores);
}

}  // namespace plumb
