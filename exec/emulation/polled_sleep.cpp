#include "exec/emulation/polled_sleep.hpp"

#include <chrono>
#include <thread>

namespace plumb::exec {
namespace {

constexpr auto part_of_sleep = std::chrono::milliseconds(50);
constexpr auto part_beside_work = std::chrono::microseconds(500);

}  // namespace

void sleep_until(Clock::time_point end, Transport* run, const std::function<void()>& meanwhile) {
  const Clock::duration part = meanwhile ? Clock::duration(part_beside_work) : Clock::duration(part_of_sleep);
  while ((run != nullptr || meanwhile) && end - Clock::now() > part) {
    std::this_thread::sleep_for(part);
    if (run != nullptr) run->poll();
    if (meanwhile) meanwhile();
  }
  std::this_thread::sleep_until(end);
}

}  // namespace plumb::exec
