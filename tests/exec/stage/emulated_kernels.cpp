#include "tests/exec/stage/emulated_kernels.hpp"

#include "kernels/device/emulated.hpp"

namespace plumb::exec::test {

KernelTable emulated_kernels() { return linked_kernels(); }

SharedMemoryOf::SharedMemoryOf(std::size_t bytes) : before_(kernels::emulated::most_shared()) {
  kernels::emulated::set_most_shared(bytes);
}
SharedMemoryOf::~SharedMemoryOf() { kernels::emulated::set_most_shared(before_); }

}  // namespace plumb::exec::test
