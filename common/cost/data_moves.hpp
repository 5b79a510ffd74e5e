// What data-parallel ranks that share out weights or gradients gather and reduce beside a block's or stage's actions.
#pragma once

#include "common/base/units.hpp"

namespace plumb {

// By how much actions take longer.
struct DataWaits {
  Seconds forward = {};  // and R
  Seconds input_gradient = {};
  Seconds weight_gradient = {};
  Seconds backward = {};  // I and W in one
  bool operator==(const DataWaits&) const = default;
};
void operator+=(DataWaits& sum, const DataWaits& waits);

// Of one rank; bytes of whole weights and gradients, as its pipeline and tensor ranks divide them.
struct DataMoves {
  Bytes gathered = {};     // weights that F, I or B, and R each gather for themselves
  Bytes reduced = {};      // gradients that each W, or B, reduces
  Bytes accumulated = {};  // the own part of these, to which they are added: it is in gradient_bytes
  Bytes replicated = {};   // the own part of all gradients, which the copies of HSDP add up once a step
  Bytes unsharded = {};    // weights that are there from UNSHARD to STEP, beside the own part in parameter_bytes
  // Of a block: `gathered` and `reduced` go beside the computing of its neighbours, as far as that takes; else they are
  // in its times.
  bool beside = false;
  Seconds gathering = {};  // of all that one action gathers, or reduces, hidden or not
  Seconds reducing = {};
  DataWaits waits = {};  // in the times of the actions
  bool operator==(const DataMoves&) const = default;
};
void operator+=(DataMoves& sum, const DataMoves& moves);

}  // namespace plumb
