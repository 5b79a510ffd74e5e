#include "exec/host/host.hpp"

#include "common/base/error.hpp"
#include "exec/device/native_stream.hpp"
#include "exec/device/torch_device.hpp"

namespace plumb::exec {

Host this_host() {
  return {.visible_devices = accelerator_count,
          .make_device = make_torch_device,
          .device_facts = [](int index) { return exec::device_facts(index); },
          .tells_streams = tells_native_streams()};
}

void require_streams_for_nccl(const Host& host) {
  if (host.tells_streams) return;
  throw InputError("--transport", "'nccl' takes LibTorch 2.11 or later, and this plumb-exec is built with an older one",
                   "build with LibTorch 2.11 or later, or --transport local: ranks that share a GPU");
}

void require_kind_of_device(const std::string& kind) {
  if (kind == "cpu" || kind == "cuda") return;
  throw InputError("--device", "there is no device '" + kind + "'",
                   kind == "gpu" ? "did you mean 'cuda'?" : did_you_mean(kind, {"cpu", "cuda"}));
}

}  // namespace plumb::exec
