#include "common/cost/host_moves.hpp"

#include <algorithm>

namespace plumb {

void operator+=(HostMoves& sum, const HostMoves& moves) {
  sum.kept += moves.kept;
  sum.down += moves.down;
  sum.up += moves.up;
  sum.copying_down += moves.copying_down;
  sum.updating += moves.updating;
  sum.copying_up += moves.copying_up;
}

void operator+=(HostWaits& sum, const HostWaits& waits) {
  sum.forward += waits.forward;
  sum.input_gradient += waits.input_gradient;
  sum.backward += waits.backward;
}

void operator+=(ActivationMoves& sum, const ActivationMoves& moves) {
  sum.kept += moves.kept;
  sum.copying += moves.copying;
  sum.beside = sum.beside || moves.beside;
  sum.waits += moves.waits;
}

Seconds host_copy_time(const HostProfile& host, Bytes bytes) {
  if (bytes == Bytes{}) return {};
  return host.link.latency.value + bytes / host.link.bandwidth.value;
}

Seconds offloaded_step_time(const std::vector<HostMoves>& pieces, bool overlapped) {
  Seconds down;
  Seconds updated;
  Seconds up;
  for (const HostMoves& piece : pieces) {
    if (!overlapped) {
      up += piece.copying_down + piece.updating + piece.copying_up;
      continue;
    }
    down += piece.copying_down;
    updated = std::max(updated, down) + piece.updating;
    up = std::max(up, updated) + piece.copying_up;
  }
  return up;
}

}  // namespace plumb
