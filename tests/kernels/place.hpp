// Where the kernels under test run: emulated on the host, or on a GPU. One of on_host.cpp and on_gpu.cpp is linked.
#pragma once

#include <cstddef>
#include <functional>

namespace plumb::test {

// On a GPU: ends the program with status 77, which CTest counts as skipped, and one sentence if there is none. Every
// test case begins with it.
void need_device();

// Memory of that place, which begins at a multiple of 256 bytes, filled with 0xff; the emulated one ends where the
// array ends, so that the address sanitizer sees what goes beyond.
[[nodiscard]] void* allocate(std::size_t bytes);
void release(void* memory);
void copy_in(void* to, const void* from, std::size_t bytes);
void copy_out(void* to, const void* from, std::size_t bytes);  // after all that was queued

// Runs it several times: emulated, the threads of a block take turns in other orders each time.
void each_way(const std::function<void()>& run);

}  // namespace plumb::test
