// LibTorch's FlashAttention, which it has for GPUs alone, as its users see it, on the host in fp64.
#pragma once

namespace plumb::exec::test {

// Calls so far of its forward and of its backward pass.
struct FlashCalls {
  int forward = 0;
  int backward = 0;
};
[[nodiscard]] FlashCalls flash_calls();

}  // namespace plumb::exec::test
