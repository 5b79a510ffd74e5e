// ZB auto's list scheduler: each rank, when free, takes of what could start the action that a policy prefers.
#pragma once

#include "common/schedule/zb_auto/model.hpp"

namespace plumb::zb_auto {

// W fills the time in which no F or I can start.
struct Policy {
  enum class Prefer : std::uint8_t { backward, forward, alternate };
  Prefer prefer = Prefer::backward;  // of F and I; of several stages' F the last stage's, of their I the first's
  bool room_first = false;           // W before I while an F waits for nothing but memory
  double patience = 0;               // waits for F or I that come within this part of the W that it would start
  std::vector<int> in_flight;        // per rank, chunks between F and I at most; empty: as many as fit
  const StepLists* order = nullptr;  // F and I strictly as in these lists: only W is placed anew
};

// Empty lists if it stands still: where an I adds more memory than it frees, or an order does not fit the limits.
[[nodiscard]] StepLists list_schedule(const Model& model, const Policy& policy);

}  // namespace plumb::zb_auto
