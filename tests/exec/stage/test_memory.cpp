// Bytes per rank: who allocates owns, a hand-over moves, the free counts for the owner on whichever thread it happens.
#include "exec/host/memory.hpp"

#include <ATen/ATen.h>

#include <thread>

#include "exec/stage/factory.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr int first = 901;  // ranks that no other test uses
constexpr int second = 902;
constexpr std::int64_t mebibyte = 1 << 20;

void on_rank(int rank, const std::function<void()>& work) {
  std::thread([&] {
    track_memory_of_thread(rank);
    work();
  }).join();
}

}  // namespace

TEST_CASE("A buffer counts for its rank until it is handed over, then for the other") {
  at::Tensor tensor;
  on_rank(first, [&] { tensor = at::empty({mebibyte}, at::kByte); });
  CHECK(current_memory(first).value == mebibyte);
  CHECK(current_memory(second).value == 0);
  move_memory(static_cast<const std::byte*>(tensor.const_data_ptr()), second);
  CHECK(current_memory(first).value == 0);
  CHECK(current_memory(second).value == mebibyte);
  CHECK(peak_memory(first).value == mebibyte);
  reset_peak_memory(first);
  CHECK(peak_memory(first).value == 0);
  on_rank(first, [&] { tensor.reset(); });  // freed on the thread of the rank that no longer has it
  CHECK(current_memory(first).value == 0);
  CHECK(current_memory(second).value == 0);
  CHECK(peak_memory(second).value == mebibyte);
  reset_peak_memory(second);
}

TEST_CASE("The peak is the worst moment since the last reset") {
  on_rank(first, [&] {
    reset_peak_memory(first);
    {
      const at::Tensor a = at::empty({mebibyte}, at::kByte);
      const at::Tensor b = at::empty({2 * mebibyte}, at::kByte);
    }
    const at::Tensor c = at::empty({mebibyte}, at::kByte);
    CHECK(peak_memory(first).value == 3 * mebibyte);
    reset_peak_memory(first);
    CHECK(peak_memory(first).value == mebibyte);
  });
  CHECK(current_memory(first).value == 0);
}

TEST_CASE("Buffers of receives count, foreign pointers do not") {
  on_rank(first, [&] {
    Payload payload = allocate_payload(static_cast<std::size_t>(mebibyte));
    CHECK(payload.size == static_cast<std::size_t>(mebibyte));
    CHECK(current_memory(first).value == mebibyte);
    memory_moved(payload.data + 1, second);
    CHECK(current_memory(first).value == mebibyte);
    payload = {};
    CHECK(current_memory(first).value == 0);
  });
}

TEST_CASE("A run leaves nothing behind") {
  const Bytes before = current_memory(0) + current_memory(1);
  (void)test::train(test::training_plan({.model = test::hybrid(), .schedule = "zb-h1", .ranks = 2, .recompute = true}),
                    2);
  (void)test::train(test::training_plan({.model = test::hybrid(), .schedule = "seq-1f1b", .ranks = 2, .slices = 4}), 2);
  CHECK(current_memory(0) + current_memory(1) == before);
}
