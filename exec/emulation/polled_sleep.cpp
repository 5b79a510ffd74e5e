#include "exec/emulation/polled_sleep.hpp"

#include <chrono>
#include <thread>

namespace plumb::exec {
namespace {

constexpr auto part_of_sleep = std::chrono::milliseconds(50);

}  // namespace

void sleep_until(Clock::time_point end, Transport* run) {
  while (run != nullptr && end - Clock::now() > part_of_sleep) {
    std::this_thread::sleep_for(part_of_sleep);
    run->poll();
  }
  std::this_thread::sleep_until(end);
}

}  // namespace plumb::exec
