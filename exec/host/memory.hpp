// Counts the bytes that each rank holds, as LibTorch's allocator reports them; a pointer's owner moves with a
// hand-over.
#pragma once

#include <cstddef>
#include <memory>

#include "common/base/units.hpp"

namespace plumb::exec {

// Of this process: whether the memory of LibTorch's accelerators counts instead of the host's. Their allocators report
// as the host's does, so ranks that share a device have accounts of their own.
void track_accelerators(bool on);

// From now on, what this thread allocates counts as `rank`'s. A free counts for the owner, whichever thread frees.
void track_memory_of_thread(int rank);

// `data` belongs to `to_rank` from now on; a pointer that was not allocated under tracking is ignored.
void move_memory(const std::byte* data, int to_rank);

// An aligned buffer that counts as its thread's rank's.
[[nodiscard]] std::shared_ptr<void> tracked_buffer(std::size_t bytes);

// Memory of the host that counts apart from the rank's own, as if that stood on a device: for what is offloaded.
// `bytes` may be 0.
[[nodiscard]] std::shared_ptr<void> host_buffer(std::size_t bytes);
[[nodiscard]] Bytes host_memory(int rank);
[[nodiscard]] Bytes peak_host_memory(int rank);  // since the last reset

[[nodiscard]] Bytes current_memory(int rank);
[[nodiscard]] Bytes peak_memory(int rank);  // since the last reset
void reset_peak_memory(int rank);

}  // namespace plumb::exec
