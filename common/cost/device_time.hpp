// How long a device takes for one kernel. Each formula's parameters stand in its profile, with where they come from.
#pragma once

#include <cstdint>

#include "common/base/units.hpp"
#include "common/cluster/machine.hpp"

namespace plumb {

// `batch` times [m, k] · [k, n].
struct MatmulSizes {
  double m = 0;
  double n = 0;
  double k = 0;
  double batch = 1;
  double element_bytes = 2;
  double output_bytes = 2;   // of one element of the result
  bool accumulates = false;  // adds to the result, which it reads first
  bool operator==(const MatmulSizes&) const = default;
};

// The fastest of six tile sizes: waves of tiles over the multiprocessors, each tile 2·tm·tn·(k + k0) FLOPs at the
// sustained rate, which falls by 5.5% with each halving of the tile; at least the time of its bytes; and the gap to the
// next kernel. A device without multiprocessors has no waves: FLOPs · (k + k0)/k at the sustained rate.
// Against published tables of single matmuls: 2.9% mean error on 39 shapes of an H100, 4.5% on 183 of an A100-PCIe.
[[nodiscard]] Seconds matmul_time(const DeviceProfile& device, const MatmulSizes& sizes);

// Bytes through memory at the bandwidth that streaming kernels reach.
[[nodiscard]] Seconds streaming_time(const DeviceProfile& device, double bytes);

// As a kernel of its own: with the gap.
[[nodiscard]] Seconds stream_time(const DeviceProfile& device, double bytes);

// A fused kernel of attention or a recurrence: its FLOPs at the rate that such kernels reach, at least its bytes, and
// the gap.
[[nodiscard]] Seconds core_time(const DeviceProfile& device, Flops flops, double bytes);

}  // namespace plumb
