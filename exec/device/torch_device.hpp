// An accelerator of LibTorch through its device-generic interface: compiles against the CPU build as well.
#pragma once

#include <memory>
#include <string>

#include "exec/device/device.hpp"

namespace plumb::exec {

// How many devices of the accelerator that this LibTorch was built for ("cuda") are here; 0 in a CPU build.
[[nodiscard]] int accelerator_count();
// Returns "for CUDA", or "for the CPU alone", as LibTorch was built.
[[nodiscard]] std::string libtorch_devices();

// The accelerator's device `index`. Throws InputError (where = "--device") when this LibTorch was built without one, or
// when there are fewer: how many there are, and what to install or to set.
[[nodiscard]] std::unique_ptr<Device> make_torch_device(int index);

}  // namespace plumb::exec
