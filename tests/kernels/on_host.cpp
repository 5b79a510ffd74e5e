#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/device/emulated.hpp"
#include "tests/kernels/place.hpp"

namespace plumb::test {

void need_device() {}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  std::memset(memory, 0xff, bytes);
  return memory;
}

void release(void* memory) { std::free(memory); }
void copy_in(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void copy_out(void* to, const void* from, std::size_t bytes) { copy_in(to, from, bytes); }

void each_way(const std::function<void()>& run) {
  using kernels::emulated::Order;
  for (const Order order : {Order::falling, Order::shuffled, Order::rising}) {
    kernels::emulated::set_order(order);
    run();
  }
}

}  // namespace plumb::test
