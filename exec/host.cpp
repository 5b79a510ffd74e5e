#include "exec/host.hpp"

#include "exec/device/torch_device.hpp"

namespace plumb::exec {

Host this_host() {
  return {.visible_devices = accelerator_count, .make_device = make_torch_device, .device_facts = [](int index) {
            return exec::device_facts(index);
          }};
}

}  // namespace plumb::exec
