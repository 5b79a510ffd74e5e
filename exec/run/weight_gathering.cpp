#include "exec/run/weight_gathering.hpp"

#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {

Bytes gather_weights(Stage& stage, Transport& world, std::span<const int> group, Clock::time_point deadline) {
  Bytes gathered;
  Collectives collectives(world);
  for (const Stage::StoredWeight& weight : stage.stored_weights()) {
    collectives.all_gather(group, equal_parts(weight.bytes, group.size(), weight.element_bytes), deadline);
    gathered += Bytes{static_cast<std::int64_t>(weight.bytes.size())};
  }
  return gathered;
}

}  // namespace plumb::exec
