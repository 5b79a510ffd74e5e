// What bench_kernels measures beside each kernel: the same work in LibTorch's operations, on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace plumb::bench {

struct Sizes {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
};

// Of the kernel that bench_kernels calls so; empty where LibTorch has nothing like it, or has no CUDA itself.
[[nodiscard]] std::function<void()> aten_version(const std::string& kernel, const Sizes& sizes);

// A square frozen projection's F and I, alone and with an adapter's F, I and W on the kernels; empty without CUDA.
struct LoraLayer {
  std::function<void()> base;
  std::function<void()> adapted;
};
[[nodiscard]] LoraLayer lora_layer(const Sizes& sizes, std::int64_t rank);

}  // namespace plumb::bench
