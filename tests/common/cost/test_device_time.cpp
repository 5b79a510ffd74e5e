// Times of kernels and collectives against the formulas worked out by hand, and their limits.
#include "common/cost/device_time.hpp"

#include "common/cost/collective_time.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// 100 multiprocessors of 1 TFLOP/s each, half of it sustained.
DeviceProfile device() {
  DeviceProfile profile;
  profile.peak.value = {1e14};
  profile.matmul_efficiency.value = 0.5;
  profile.multiprocessors = 100;
  profile.matmul_depth.value = 200;
  profile.memory_bandwidth.value = {1e12};
  profile.memory_efficiency.value = 0.8;
  profile.attention_efficiency.value = 0.4;
  profile.kernel_gap.value = {1e-6};
  return profile;
}

Machine timed_machine() {
  Machine result;
  result.collective_bandwidth.value = {1e11};
  result.outside.bandwidth.value = {1e10};
  result.collective_latency.value = {1e-5};
  result.collective_latency_per_rank.value = {1e-6};
  return result;
}

}  // namespace

TEST_CASE("a matmul takes its waves of tiles, each with k + k0 of depth") {
  // 100 tiles of 256 × 128 are one wave, 101 would be two; smaller tiles run slower and are no better here.
  const double one_wave = 2.0 * 256 * 128 * (4096 + 200) / 0.5e12;
  CHECK(matmul_time(device(), {.m = 2560, .n = 1280, .k = 4096}).value == Approx(one_wave + 1e-6));
  // One row of tiles more: of 128 × 64, 21 · 21 tiles are five waves of an eighth the work... the best of all is taken.
  const Seconds more = matmul_time(device(), {.m = 2561, .n = 1280, .k = 4096});
  CHECK(more.value > one_wave + 1e-6);
  CHECK(more.value <= 2 * one_wave + 1e-6);
  // 25 tiles of 64 × 64 leave three quarters of a wave empty: four such matmuls at once take as long as one.
  const MatmulSizes head{.m = 320, .n = 320, .k = 4096};
  MatmulSizes heads = head;
  heads.batch = 4;
  CHECK(matmul_time(device(), heads) == matmul_time(device(), head));
  heads.batch = 5;
  CHECK(matmul_time(device(), heads) > matmul_time(device(), head));
}

TEST_CASE("a thin matmul takes the time of its bytes, and a result that is added to is read as well") {
  MatmulSizes thin{.m = 1 << 20, .n = 64, .k = 64, .element_bytes = 2, .output_bytes = 4};
  const double inputs = 2.0 * ((1 << 20) * 64.0 + 64 * 64);
  const double output = 4.0 * (1 << 20) * 64;
  DeviceProfile fast = device();
  fast.peak.value = {1e18};
  CHECK(matmul_time(fast, thin).value == Approx((inputs + output) / 0.8e12 + 1e-6));
  thin.accumulates = true;
  CHECK(matmul_time(fast, thin).value == Approx((inputs + 2 * output) / 0.8e12 + 1e-6));
}

TEST_CASE("a device without multiprocessors has no waves") {
  DeviceProfile plain = device();
  plain.multiprocessors = 0;
  plain.matmul_depth.value = 0;
  CHECK(matmul_time(plain, {.m = 100, .n = 1000, .k = 10000}).value == Approx(2e9 / 0.5e14 + 1e-6));
}

TEST_CASE("a fused core takes its FLOPs or its bytes, whichever is longer") {
  CHECK(core_time(device(), {4e10}, 1).value == Approx(1e-3 + 1e-6));
  CHECK(core_time(device(), {1}, 8e9).value == Approx(1e-2 + 1e-6));
}

// A ring over n ranks: nccl-tests, PERFORMANCE.md.
TEST_CASE("an all-reduce passes every byte 2(n−1)/n times, gather and scatter half of that") {
  const GroupPlacement eight{.ranks = 8, .per_machine = 8};
  const double all = 1e-5 + 8e-6 + 2 * 7.0 / 8 * 1e9 / 1e11;
  CHECK(collective_time(timed_machine(), Collective::all_reduce, 1e9, eight).value == Approx(all));
  CHECK(collective_time(timed_machine(), Collective::all_gather, 1e9, eight).value == Approx(all / 2));
  CHECK(collective_time(timed_machine(), Collective::reduce_scatter, 1e9, eight).value == Approx(all / 2));
  CHECK(collective_time(timed_machine(), Collective::all_reduce, 1e9, {.ranks = 1, .per_machine = 1}).value == 0);
}

TEST_CASE("across machines a group has the NICs of its ranks on one machine, and no more than the links inside") {
  const auto time = [](int per_machine) {
    return collective_time(timed_machine(), Collective::all_reduce, 1e9, {.ranks = 16, .per_machine = per_machine})
               .value -
           (1e-5 + 16e-6);
  };
  const double passes = 2 * 15.0 / 16 * 1e9;
  CHECK(time(1) == Approx(passes / 1e10));
  CHECK(time(4) == Approx(passes / 4e10));
  CHECK(time(15) == Approx(passes / 1e11));
}
