#include "exec/emulation/polled_sleep.hpp"

#include <chrono>
#include <thread>

namespace plumb::exec {
namespace {

constexpr auto part_of_sleep = std::chrono::milliseconds(50);
constexpr auto part_beside_work = std::chrono::microseconds(500);

}  // namespace

void sleep_until(Clock::time_point end, Transport* run) {
  const bool goes_on = run != nullptr && run->meanwhile();
  const Clock::duration part = goes_on ? Clock::duration(part_beside_work) : Clock::duration(part_of_sleep);
  while (run != nullptr && end - Clock::now() > part) {
    std::this_thread::sleep_for(part);
    run->poll();
    if (goes_on) run->meanwhile()();
  }
  std::this_thread::sleep_until(end);
}

}  // namespace plumb::exec
