#include "common/cost/device_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace plumb {
namespace {

struct Tile {
  double m;
  double n;
};
constexpr std::array<Tile, 6> tiles{{{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}}};
constexpr double largest_tile = 256.0 * 128.0;
constexpr double rate_of_half_a_tile = 0.945;

double tiled_seconds(const DeviceProfile& device, const MatmulSizes& sizes, double flops_per_s) {
  const double each = flops_per_s / device.multiprocessors;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    const double count = sizes.batch * std::ceil(sizes.m / tile.m) * std::ceil(sizes.n / tile.n);
    const double waves = std::ceil(count / device.multiprocessors);
    const double rate = each * std::pow(rate_of_half_a_tile, std::log2(largest_tile / (tile.m * tile.n)));
    best = std::min(best, waves * 2 * tile.m * tile.n * (sizes.k + device.matmul_depth.value) / rate);
  }
  return best;
}

}  // namespace

Seconds streaming_time(const DeviceProfile& device, double bytes) {
  return {bytes / (device.memory_bandwidth.value.value * device.memory_efficiency.value)};
}

Seconds matmul_time(const DeviceProfile& device, const MatmulSizes& sizes) {
  const double flops_per_s = device.peak.value.value * device.matmul_efficiency.value;
  const double seconds = device.multiprocessors > 0 ? tiled_seconds(device, sizes, flops_per_s)
                                                    : 2 * sizes.batch * sizes.m * sizes.n *
                                                          (sizes.k + device.matmul_depth.value) / flops_per_s;
  const double result = sizes.output_bytes * (sizes.accumulates ? 2 : 1) * sizes.m * sizes.n;
  const double bytes = sizes.batch * (sizes.element_bytes * (sizes.m * sizes.k + sizes.k * sizes.n) + result);
  return std::max(Seconds{seconds}, streaming_time(device, bytes)) + device.kernel_gap.value;
}

Seconds stream_time(const DeviceProfile& device, double bytes) {
  return streaming_time(device, bytes) + device.kernel_gap.value;
}

Seconds core_time(const DeviceProfile& device, Flops flops, double bytes) {
  const Seconds computing = flops / (device.peak.value * device.attention_efficiency.value);
  return std::max(computing, streaming_time(device, bytes)) + device.kernel_gap.value;
}

}  // namespace plumb
