// What CUDA calls a stream of LibTorch.
#pragma once

#include <c10/core/Stream.h>

namespace plumb::exec {

// A cudaStream_t where the stream is a CUDA device's. Throws RunError if this LibTorch cannot tell: 2.6 cannot, 2.11
// can.
[[nodiscard]] void* native_stream(const c10::Stream& stream);

// Whether this LibTorch can.
[[nodiscard]] bool tells_native_streams();

}  // namespace plumb::exec
