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

void operator+=(ParameterMoves& sum, const ParameterMoves& moves) {
  sum.up += moves.up;
  sum.copying += moves.copying;
  sum.beside = sum.beside || moves.beside;
}

Seconds host_copy_time(const HostProfile& host, Bytes bytes) {
  if (bytes == Bytes{}) return {};
  return host.link.latency.value + bytes / host.link.bandwidth.value;
}

StepPiece updated_on_host(const HostMoves& moves) {
  return {.before = moves.copying_down, .updating = moves.updating, .behind = moves.copying_up};
}

StepPiece updated_on_device(const HostMoves& moves, Seconds updating) {
  return {.before = moves.copying_up, .updating = updating, .behind = moves.copying_down};
}

Seconds offloaded_step_time(const std::vector<StepPiece>& pieces, bool overlapped) {
  Seconds there;
  Seconds updated;
  Seconds back;
  for (const StepPiece& piece : pieces) {
    if (!overlapped) {
      back += piece.before + piece.updating + piece.behind;
      continue;
    }
    there += piece.before;
    updated = std::max(updated, there) + piece.updating;
    back = std::max(back, updated) + piece.behind;
  }
  return back;
}

}  // namespace plumb
