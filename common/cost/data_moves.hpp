// What data-parallel ranks that share out weights or gradients gather and reduce beside a block's or stage's actions.
#pragma once

#include <optional>

#include "common/base/units.hpp"

namespace plumb {

// By how much actions take longer.
struct DataWaits {
  Seconds forward = {};
  Seconds recompute = {};  // R: as F, but for a second copy of the weights
  Seconds input_gradient = {};
  Seconds weight_gradient = {};
  Seconds backward = {};  // I and W in one
  bool operator==(const DataWaits&) const = default;
};
void operator+=(DataWaits& sum, const DataWaits& waits);

// What actions need beside whole weights and gradients for those that travel quantised: blocks that come and go.
struct QuantisedMoves {
  Bytes forward = {};
  Bytes input_gradient = {};
  Bytes weight_gradient = {};
  bool operator==(const QuantisedMoves&) const = default;
};
void operator+=(QuantisedMoves& sum, const QuantisedMoves& moves);

// Of one rank; bytes of whole weights and gradients, as its pipeline and tensor ranks divide them.
struct DataMoves {
  Bytes gathered = {};     // weights that F, I or B, and R each gather for themselves
  Bytes reduced = {};      // gradients that each W, or B, reduces
  Bytes accumulated = {};  // the own part of these, to which they are added: it is in gradient_bytes
  Bytes replicated = {};   // the own part of all gradients, which the copies of HSDP add up once a step
  Bytes unsharded = {};    // weights that are there from UNSHARD to STEP, beside the own part in parameter_bytes
  Bytes second_copy = {};  // of this rank, of ZeRO++'s: it is in parameter_bytes
  QuantisedMoves quantised = {};
  // Of a block: `gathered` and `reduced` go beside the computing of its neighbours, as far as that takes; else they are
  // in its times.
  bool beside = false;
  int prefetch = 1;        // so many units are gathered ahead then
  bool joined = false;     // of a block: moved as one with the block before it in the stage, in whose times it is
  Seconds gathering = {};  // of all that one action gathers, or reduces, hidden or not
  std::optional<Seconds> gathering_again = {};  // of R, and I or B, where those gather from a second copy
  Seconds reducing = {};
  DataWaits waits = {};  // in the times of the actions
  bool operator==(const DataMoves&) const = default;
};
void operator+=(DataMoves& sum, const DataMoves& moves);
[[nodiscard]] inline Seconds gathering_again(const DataMoves& moves) {
  return moves.gathering_again.value_or(moves.gathering);
}

// R, which does F again, of an F that takes so long.
[[nodiscard]] inline Seconds recompute_time(Seconds forward, const DataMoves& moves) {
  const DataWaits& waits = moves.waits;
  return waits.forward == waits.recompute ? forward : forward - waits.forward + waits.recompute;
}

}  // namespace plumb
