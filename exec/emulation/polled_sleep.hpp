// A pause in place of work, which ends early where the run does.
#pragma once

#include <functional>

#include "exec/device/clock.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Until `end`, in parts, between which it polls `run`, the rank's own transport, and throws what that throws: a
// predicted time may be hours. Null: nobody can end the run. With `meanwhile` the parts are so short that what it does
// is hardly late.
void sleep_until(Clock::time_point end, Transport* run, const std::function<void()>& meanwhile = {});

}  // namespace plumb::exec
