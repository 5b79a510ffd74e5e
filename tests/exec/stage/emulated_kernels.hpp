// The kernels emulated on the host as a table for exec/stage's seam: what stages call on a device, without one.
#pragma once

#include <cstddef>

#include "exec/stage/primitives/kernel_table.hpp"

namespace plumb::exec::test {

// Of a shared library that hides all else: its functions have the names of the CUDA kernels, which the executor links.
[[nodiscard]] __attribute__((visibility("default"))) KernelTable emulated_kernels();

// While it lives, a block of the emulated device has at most this much shared memory.
class __attribute__((visibility("default"))) SharedMemoryOf {
 public:
  explicit SharedMemoryOf(std::size_t bytes);
  SharedMemoryOf(const SharedMemoryOf&) = delete;
  SharedMemoryOf& operator=(const SharedMemoryOf&) = delete;
  ~SharedMemoryOf();

 private:
  std::size_t before_;
};

// While it lives, stages on the host call this table.
class KernelsOnHost {
 public:
  explicit KernelsOnHost(const KernelTable& table) : before_(set_kernel_table(c10::DeviceType::CPU, &table)) {}
  KernelsOnHost(const KernelsOnHost&) = delete;
  KernelsOnHost& operator=(const KernelsOnHost&) = delete;
  ~KernelsOnHost() { (void)set_kernel_table(c10::DeviceType::CPU, before_); }

 private:
  const KernelTable* before_;
};

}  // namespace plumb::exec::test
