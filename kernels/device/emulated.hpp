// A GPU's blocks on the host, for tests: each thread of a block is a fiber, which runs until a barrier or a warp's
// exchange and waits there for the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace plumb::kernels::emulated {

struct Index {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;

  Index() = default;
  Index(unsigned of_x, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};

// In which order the threads of a block run between two barriers: warp after warp, each as far as it comes alone, from
// the first or from the last; or all a step each, shuffled. A kernel whose result depends on it has a race.
enum class Order { rising, falling, shuffled };
void set_order(Order order);

// Of the thread that runs.
struct Place {
  Index thread;
  Index block;
  Index grid;
};
[[nodiscard]] const Place& here();
[[nodiscard]] unsigned char* dynamic_shared();

// Bytes of shared memory that a block can have: 227 KiB, as those of sm_90, until another limit is set.
constexpr std::size_t shared_of_sm_90 = 227 * 1024;
void set_most_shared(std::size_t bytes);
[[nodiscard]] std::size_t most_shared();

// Runs `thread` for every thread of every block, one block after the other. Shared memory begins as bytes of 0xff,
// which are NaN. Throws std::logic_error if a block wants more of it than there is, or if some threads end, or wait for
// something else, while others wait.
void run_grid(Index grid, int threads, std::size_t shared, const std::function<void()>& thread);

void sync_block();
void sync_warp();

// What the 32 lanes of this thread's warp gave, up to 32 bytes each; all 32 must take part.
using Lanes = std::array<std::array<std::uint32_t, 8>, 32>;
[[nodiscard]] const Lanes& exchanged(std::array<std::uint32_t, 8> given);

}  // namespace plumb::kernels::emulated
