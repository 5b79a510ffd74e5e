#undef _FORTIFY_SOURCE  // its longjmp refuses to go to another stack

#include "kernels/device/emulated.hpp"

#include <ucontext.h>
#include <csetjmp>

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef PLUMB_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

#include "kernels/device/cuda_check.hpp"

namespace plumb::kernels::emulated {
namespace {

constexpr std::size_t stack_bytes = 256 * 1024;
constexpr std::size_t lanes = 32;

enum class State { runs, in_block_barrier, in_warp_barrier, ended };

struct Fiber {
  ucontext_t context = {};
#ifndef PLUMB_ADDRESS_SANITIZER
  std::jmp_buf left = {};  // where it goes on, once it has left
#endif
  bool is_fresh = true;
  std::unique_ptr<unsigned char[]> stack;
  State state = State::runs;
  Place place;
  unsigned exchanges = 0;  // of this lane so far
};

struct Warp {
  std::array<Lanes, 2> given;  // two, in turn: who is fast writes the next while who is slow reads the last
};

struct Machine {
  Order order = Order::rising;
  std::minstd_rand random;
  std::vector<Fiber> pool;  // as many as the largest block had
  std::span<Fiber> fibers;  // of the block: the first of them
  std::vector<Warp> warps;
  std::vector<std::size_t> turns;  // of the fibers, when shuffled
  std::vector<std::uint32_t> shared;
  std::size_t most_shared = shared_of_sm_90;
  const std::function<void()>* body = nullptr;
  ucontext_t scheduler = {};
#ifndef PLUMB_ADDRESS_SANITIZER
  std::jmp_buf scheduler_left = {};
#endif
  Fiber* running = nullptr;
  std::exception_ptr failure;
};

Machine one;
Machine& machine() { return one; }

#ifdef PLUMB_ADDRESS_SANITIZER

const void* scheduler_stack = nullptr;
std::size_t scheduler_bytes = 0;

void enter(Fiber& fiber) {
  Machine& m = machine();
  m.running = &fiber;
  // Of a context with a stack the sanitizer clears what it knows of all of it, at each switch: once is enough.
  if (!std::exchange(fiber.is_fresh, false)) fiber.context.uc_stack = {};
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, fiber.stack.get(), stack_bytes);
  swapcontext(&m.scheduler, &fiber.context);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

void leave(Fiber& fiber) {
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(fiber.state == State::ended ? nullptr : &fake, scheduler_stack, scheduler_bytes);
  swapcontext(&fiber.context, &machine().scheduler);
  __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_bytes);
}

#else

// A context begins a fiber; from then on it is switched by jumps, which leave the signal mask alone: of a context's
// switch that is two calls of the system, and a third of an emulated kernel's time.
void enter(Fiber& fiber) {
  Machine& m = machine();
  m.running = &fiber;
  if (_setjmp(m.scheduler_left) != 0) return;
  if (!std::exchange(fiber.is_fresh, false)) _longjmp(fiber.left, 1);
  setcontext(&fiber.context);
}

void leave(Fiber& fiber) {
  if (_setjmp(fiber.left) == 0) _longjmp(machine().scheduler_left, 1);
}

#endif

void wait(State state) {
  Fiber& self = *machine().running;
  self.state = state;
  leave(self);
}

void run_thread() {
  Machine& m = machine();
  try {
    (*m.body)();
  } catch (...) {
    m.failure = std::current_exception();
  }
  m.running->state = State::ended;
}

// One block's thread after the other, as to make a context and to enter it are calls of the system; under the sanitizer
// one alone, as that is told that the fiber ends.
void fiber_main() {
#ifdef PLUMB_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_bytes);
  run_thread();
  leave(*machine().running);
#else
  for (;;) {
    run_thread();
    leave(*machine().running);
  }
#endif
}

void prepare(Fiber& fiber, int thread) {
#ifdef PLUMB_ADDRESS_SANITIZER
  const bool goes_on = false;
#else
  const bool goes_on = fiber.state == State::ended;
#endif
  fiber.state = State::runs;
  fiber.exchanges = 0;
  fiber.place.thread = {static_cast<unsigned>(thread), 0, 0};
  if (goes_on) return;
  if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<unsigned char[]>(stack_bytes);
  fiber.is_fresh = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = stack_bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
}

bool all_are(std::span<const Fiber> fibers, State state) {
  return std::ranges::all_of(fibers, [state](const Fiber& fiber) { return fiber.state == state; });
}

void release(std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) machine().fibers[i].state = State::runs;
}

// Whether all lanes of the warp that begins with this fiber wait at its barrier; then they run again.
bool open_warp_barrier(std::size_t first) {
  if (!all_are(machine().fibers.subspan(first, lanes), State::in_warp_barrier)) return false;
  release(first, lanes);
  return true;
}

bool open_block_barrier() {
  Machine& m = machine();
  if (!all_are(m.fibers, State::in_block_barrier)) return false;
  release(0, m.fibers.size());
  return true;
}

void enter_if_it_runs(std::size_t number) {
  Machine& m = machine();
  if (m.fibers[number].state == State::runs) enter(m.fibers[number]);
  if (m.failure) std::rethrow_exception(std::exchange(m.failure, nullptr));
}

// Each warp as far as it comes alone: to a barrier of the block, or to its end.
void run_warps() {
  Machine& m = machine();
  const std::size_t count = m.fibers.size();
  const bool falling = m.order == Order::falling;
  for (std::size_t warp = 0; warp < count; warp += lanes) {
    const std::size_t first = falling ? count - lanes - warp : warp;
    do {
      for (std::size_t lane = 0; lane < lanes; ++lane) enter_if_it_runs(first + (falling ? lanes - 1 - lane : lane));
    } while (open_warp_barrier(first));
  }
}

// All threads a step each, to the next wait, in an order by chance; whether a warp goes on.
bool run_a_step() {
  Machine& m = machine();
  std::shuffle(m.turns.begin(), m.turns.end(), m.random);
  for (const std::size_t turn : m.turns) enter_if_it_runs(turn);
  bool opened = false;
  for (std::size_t first = 0; first < m.fibers.size(); first += lanes) opened = open_warp_barrier(first) || opened;
  return opened;
}

void run_block() {
  Machine& m = machine();
  std::ranges::fill(m.shared, 0xffffffffU);
  for (std::size_t i = 0; i < m.fibers.size(); ++i) prepare(m.fibers[i], static_cast<int>(i));
  do {
    if (m.order == Order::shuffled) {
      while (run_a_step()) {
      }
    } else {
      run_warps();
    }
  } while (open_block_barrier());
  if (!all_are(m.fibers, State::ended)) {
    throw std::logic_error("emulated block " + std::to_string(here().block.x) +
                           ": some threads wait for others in vain");
  }
}

}  // namespace

void set_order(Order order) {
  machine().order = order;
  machine().random.seed(1);
}

void set_most_shared(std::size_t bytes) { machine().most_shared = bytes; }
std::size_t most_shared() { return machine().most_shared; }

const Place& here() { return machine().running->place; }

unsigned char* dynamic_shared() {
  return reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(machine().shared.data()) + 31) / 32 * 32);
}

void run_grid(Index grid, int threads, std::size_t shared, const std::function<void()>& thread) {
  Machine& m = machine();
  if (threads <= 0 || threads % 32 != 0 || threads > 1024) {
    throw std::logic_error("emulated block of " + std::to_string(threads) +
                           " threads: expected whole warps, up to 1024");
  }
  if (shared > m.most_shared) {
    throw std::logic_error("emulated block of " + std::to_string(shared) + " bytes of shared memory: expected up to " +
                           std::to_string(m.most_shared));
  }
  if (m.pool.size() < static_cast<std::size_t>(threads)) m.pool.resize(static_cast<std::size_t>(threads));
  m.fibers = std::span(m.pool).first(static_cast<std::size_t>(threads));
  m.warps.resize(m.fibers.size() / lanes);
  m.shared.assign(shared / 4 + 8, 0);
  m.body = &thread;
  m.turns.resize(m.fibers.size());
  std::iota(m.turns.begin(), m.turns.end(), std::size_t{0});
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        for (Fiber& fiber : m.fibers) {
          fiber.place = {.thread = {}, .block = {x, y, z}, .grid = grid};
        }
        run_block();
      }
    }
  }
}

void sync_block() { wait(State::in_block_barrier); }
void sync_warp() { wait(State::in_warp_barrier); }

const Lanes& exchanged(std::array<std::uint32_t, 8> given) {
  Machine& m = machine();
  Fiber& self = *m.running;
  const unsigned thread = self.place.thread.x;
  Lanes& slots = m.warps[thread / lanes].given[self.exchanges++ % 2];
  slots[thread % lanes] = given;
  wait(State::in_warp_barrier);
  return slots;
}

}  // namespace plumb::kernels::emulated

namespace plumb::kernels {

int compute_capability() { return 90; }

}  // namespace plumb::kernels
