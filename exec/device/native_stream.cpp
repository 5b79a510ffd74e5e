#include "exec/device/native_stream.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

template <class Guard>
constexpr bool tells_handles = requires(const Guard& guard, const c10::Stream& stream) {
  guard.getStreamNativeHandle(stream);
};

template <class Guard>
void* native_stream_of(const Guard& guard, const c10::Stream& stream) {
  if constexpr (tells_handles<Guard>) {
    return guard.getStreamNativeHandle(stream);
  } else {
    throw RunError("device", "LibTorch " TORCH_VERSION " does not tell the handle of a device's stream",
                   "build with LibTorch 2.11 or later, or run on CPU ranks");
  }
}

}  // namespace

void* native_stream(const c10::Stream& stream) {
  return native_stream_of(c10::impl::VirtualGuardImpl(stream.device_type()), stream);
}

bool tells_native_streams() { return tells_handles<c10::impl::VirtualGuardImpl>; }

}  // namespace plumb::exec
