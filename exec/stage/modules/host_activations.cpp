#include "exec/stage/modules/host_activations.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "exec/device/clock.hpp"
#include "exec/host/memory.hpp"

namespace plumb::exec {

void HostActivations::put(Block& block, int microbatch) {
  KeptTensors* const kept = block.kept(microbatch);
  if (kept == nullptr) return;
  std::vector<at::Tensor> tensors;
  kept->take(tensors);
  Parcel parts;
  EvictedTensors evicted(std::move(tensors), parts);
  copy(parts, &host_buffer);
  const bool is_new =
      there_.try_emplace({&block, microbatch}, Kept{.tensors = std::move(evicted), .parts = std::move(parts)}).second;
  if (!is_new) throw RunError("microbatch " + std::to_string(microbatch), "its activations are on the host already");
}

void HostActivations::bring_back(Block& block, int microbatch) {
  auto node = there_.extract({&block, microbatch});
  if (node.empty()) return;  // I says that it has no F before it
  Kept kept = std::move(node.mapped());
  copy(kept.parts, &tracked_buffer);
  std::vector<at::Tensor> tensors = kept.tensors.restored(std::move(kept.parts));
  auto next = tensors.begin();
  block.kept(microbatch)->put(next);
}

// Part by part, so that no more than one is on both sides.
void HostActivations::copy(Parcel& parts, std::shared_ptr<void> (*make)(std::size_t)) {
  const Clock::time_point start = Clock::now();
  for (Payload& part : parts) {
    std::shared_ptr<void> memory = make(part.size);
    std::memcpy(memory.get(), part.data, part.size);
    part.data = static_cast<std::byte*>(memory.get());
    part.owner = std::move(memory);
    copied_.bytes += Bytes{static_cast<std::int64_t>(part.size)};
  }
  copied_.time += seconds_of(Clock::now()) - seconds_of(start);
}

}  // namespace plumb::exec
