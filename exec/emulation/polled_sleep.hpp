// A pause in place of work, which ends early where the run does.
#pragma once

#include "exec/device/clock.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Until `end`, in parts, between which it polls `run`, the rank's own transport, and throws what that throws: a
// predicted time may be hours. Null: nobody can end the run, and nothing goes on. What the rank goes on with meanwhile
// (meanwhile.hpp) it does between parts so short that it is hardly late: a wire carries beside what is computed.
void sleep_until(Clock::time_point end, Transport* run);

}  // namespace plumb::exec
